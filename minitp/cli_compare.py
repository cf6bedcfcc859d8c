"""The verb `minitp compare`: its options, which are those of `minitp train` as far as they bear on the steps."""
from pathlib import Path
from typing import Annotated, Any

import typer

from minitp.cli_options import CUT, RECORD, CutRule, Embedding, TimeoutOption, World, opt
from minitp.cli_train import Recompute, TrainPrecision, chosen_model, plain_settings


def compare(
        ranks: Annotated[str, opt("Numbers of ranks; one rank is always run, as the reference.", "--ranks", "-n",
                                  metavar="N,N,…")] = "1,2,3,4,8",
        model: Annotated[str | None, opt("tiny, llama or gpt2 (sizes by --set), or a checkpoint: a folder, a name of "
                                         "`minitp models`.", "--model", "-m", metavar="NAME", show_default="tiny")
                         ] = None,
        steps: Annotated[int, opt("Steps of training.")] = 3,
        batch: Annotated[int | None, opt("Sequences of a step.", show_default="4")] = None,
        tokens: Annotated[int | None, opt("Tokens of a sequence.", show_default="32")] = None,
        micro_batches: Annotated[int | None, opt("Parts of a batch, computed in turn.", show_default="1")] = None,
        text: Annotated[str | None, opt("A text file, a folder of them, or pydoc_data.topics.",
                                        show_default="pydoc_data.topics")] = None,
        seed: Annotated[int | None, opt("Of weights, order of the text, and dropout.", show_default="0")] = None,
        world: Annotated[World, opt("threads: ranks of this process; mpi: an MPI job for each number of ranks; auto: "
                                    "MPI if it is there.")] = World.threads,
        dtype: Annotated[TrainPrecision | None, opt("Numbers to compute with.", panel=CUT,
                                                    show_default="float64")] = None,
        recompute: Annotated[Recompute | None, opt("What the backward pass computes again.", panel=CUT,
                                                   show_default="none")] = None,
        embedding: Annotated[Embedding | None, opt("Cut the table along the vocabulary or along hidden.", panel=CUT,
                                                   show_default="vocab")] = None,
        cut: Annotated[CutRule | None, opt("even, or balanced: the ffn evens out bytes.", panel=CUT,
                                           show_default="even")] = None,
        config: Annotated[Path | None, opt("Settings of `minitp train` in TOML; the options win over them, and of its "
                                           "steps only --steps are taken.", metavar="FILE.toml")] = None,
        set_: Annotated[list[str] | None, opt("Any setting of `minitp train`: model.layers=4, train.dropout=0.1.",
                                              "--set", metavar="SECTION.KEY=VALUE")] = None,
        json: Annotated[bool, opt("Print a JSON row for each run instead of a table.", "--json", panel=RECORD)] = False,
        timeout: TimeoutOption = None) -> None:
    """Take the same few steps on several numbers of ranks: gradients against one rank's, syncs, bytes, memory, time."""
    from minitp.commands.compare import CompareOptions, JobFailedError, base_settings
    from minitp.commands.compare import compare as compare_runs
    from minitp.commands.train import setting
    from minitp.train.config import merged
    given: dict[str, dict[str, Any]] = {
        "model": chosen_model(model), "data": {"text": text}, "cut": {"embedding": embedding, "cut": cut},
        "train": {"steps": steps, "batch": batch, "tokens": tokens, "micro_batches": micro_batches, "seed": seed,
                  "dtype": dtype, "recompute": recompute}}
    settings = merged(base_settings(config), plain_settings(given), *map(setting, set_ or ()))
    try:
        compare_runs(CompareOptions(settings, ranks, world.value, json, timeout))
    except JobFailedError as error:
        raise typer.Exit(error.code) from None
