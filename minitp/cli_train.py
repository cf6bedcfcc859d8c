"""The verb `minitp train`: its options. Each is a setting of the run's file, over which it wins."""
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from minitp.cli_options import (
    CUT,
    RECORD,
    CheckedOption,
    CutRule,
    DeadlineOption,
    Embedding,
    RanksOption,
    TimeoutOption,
    World,
    WorldOption,
    on_ranks,
    opt,
)

DATA, LEARN, KEEP = "What it reads", "How it learns", "What it keeps, and shows"


class Tokenizer(StrEnum):
    bytes = "bytes"
    bpe = "bpe"
    model = "model"


class TrainPrecision(StrEnum):
    float32 = "float32"
    float64 = "float64"
    bf16 = "bf16"


class Recompute(StrEnum):
    none = "none"
    selective = "selective"
    full = "full"


def train(
        config: Annotated[Path | None, opt("Settings in TOML; the options below win over it.", metavar="FILE.toml")
                          ] = None,
        model: Annotated[str | None, opt("tiny, llama or gpt2 (sizes by --set), or a checkpoint to go on from: a "
                                         "folder, a name of `minitp models`.", "--model", "-m", metavar="NAME",
                                         show_default="tiny")] = None,
        ranks: RanksOption = None,
        world: WorldOption = World.auto,
        steps: Annotated[int | None, opt("Steps of the optimizer, in all. With --resume another number changes the "
                                         "rates of the steps to come: they are those of a run of that length.",
                                         show_default="200")] = None,
        resume: Annotated[bool, opt("Go on from the last checkpoint of the run in --out.", "--resume")] = False,
        text: Annotated[str | None, opt("A text file, a folder of them, or pydoc_data.topics: Python's own language "
                                        "reference.", panel=DATA, show_default="pydoc_data.topics")] = None,
        tokenizer: Annotated[Tokenizer | None, opt("A byte a token, or byte pairs learned from the text (with --vocab)"
                                                   ".", panel=DATA, show_default="bytes")] = None,
        vocab: Annotated[int | None, opt("Tokens that bpe may learn.", panel=DATA)] = None,
        batch: Annotated[int | None, opt("Sequences of a step.", panel=LEARN, show_default="16")] = None,
        tokens: Annotated[int | None, opt("Tokens of a sequence.", panel=LEARN, show_default="64")] = None,
        micro_batches: Annotated[int | None, opt("Parts in which a step's batch is computed; their gradients add up.",
                                                 panel=LEARN, show_default="1")] = None,
        rate: Annotated[float | None, opt("Highest learning rate.", panel=LEARN, show_default="0.003")] = None,
        warmup: Annotated[int | None, opt("Steps until it is reached.", panel=LEARN, show_default="a tenth")] = None,
        dropout: Annotated[float | None, opt("Share of activations that are dropped.", panel=LEARN, show_default="0"
                                             )] = None,
        seed: Annotated[int | None, opt("Of weights, order of the text, and dropout.", panel=LEARN, show_default="0"
                                        )] = None,
        dtype: Annotated[TrainPrecision | None, opt("Numbers to compute with; bf16: rounded weights, float32 masters.",
                                               panel=CUT, show_default="float32")] = None,
        recompute: Annotated[Recompute | None, opt("What the backward pass computes again instead of keeping it: "
                                                   "attention's scores, or whole blocks.", panel=CUT,
                                                   show_default="none")] = None,
        embedding: Annotated[Embedding | None, opt("Cut the table along the vocabulary or along hidden.", panel=CUT,
                                                   show_default="vocab")] = None,
        cut: Annotated[CutRule | None, opt("even, or balanced: the ffn evens out bytes.", panel=CUT,
                                           show_default="even")] = None,
        out: Annotated[str | None, opt("Folder of the run: log, checkpoints, settings.", "--out", "-o",
                                       metavar="FOLDER", panel=KEEP, show_default="runs/MODEL")] = None,
        save_every: Annotated[int | None, opt("Steps between checkpoints; 0: none at all.", panel=KEEP,
                                              show_default="100")] = None,
        evaluate_every: Annotated[int | None, opt("Steps between evaluations; 0: never.", panel=KEEP,
                                                  show_default="50")] = None,
        sample_every: Annotated[int | None, opt("Steps between samples of its text; 0: never.", panel=KEEP,
                                                show_default="100")] = None,
        sample_prompt: Annotated[str | None, opt("How a sample begins.", panel=KEEP, show_default="The ")] = None,
        set_: Annotated[list[str] | None, opt("Any setting: model.layers=4, optimizer.decay=0, run.keep=5.", "--set",
                                              metavar="SECTION.KEY=VALUE", panel=KEEP)] = None,
        trace: Annotated[str | None, opt("Write the record of every collective.", metavar="FILE", panel=RECORD)] = None,
        values: Annotated[bool, opt("Keep arrays and weights in the trace, large ones as maxima.", "--values",
                                    panel=RECORD)] = False,
        trace_steps: Annotated[int | None, opt("Of the first so many steps; of the last ones, if negative.",
                                               panel=RECORD, show_default="all")] = None,
        show_comm: Annotated[bool, opt("Print a line for every pass: its sync points, bytes and time.", "--show-comm",
                                       panel=RECORD)] = False,
        json: Annotated[bool, opt("Print one JSON object at the end instead of text.", "--json", panel=RECORD)] = False,
        progress: Annotated[bool | None, opt("A live bar, or plain lines.", "--bar/--lines", panel=RECORD,
                                             show_default="a bar on a terminal")] = None,
        checked: CheckedOption = None,
        deadline: DeadlineOption = 300.0,
        timeout: TimeoutOption = None) -> None:
    """Train a model whose matrices are cut over the ranks; every collective of it can be on record."""
    from minitp.commands.train import TrainOptions
    from minitp.commands.train import train as train_on_rank
    from minitp.launcher.telling import INTERRUPTED
    given: dict[str, dict[str, Any]] = {
             "model": chosen_model(model), "data": {"text": text, "tokenizer": tokenizer, "vocab": vocab},
             "train": {"steps": steps, "batch": batch, "tokens": tokens, "micro_batches": micro_batches, "seed": seed,
                       "dtype": dtype, "recompute": recompute, "dropout": dropout},
             "optimizer": {"rate": rate, "warmup": warmup}, "cut": {"embedding": embedding, "cut": cut},
             "run": {"folder": out, "save_every": save_every, "evaluate_every": evaluate_every,
                     "sample_every": sample_every, "sample_prompt": sample_prompt}}
    options = TrainOptions(None if config is None else str(config), plain_settings(given), tuple(set_ or ()), resume,
                           trace, values, trace_steps, show_comm, json, progress)
    try:
        on_ranks(lambda group: train_on_rank(group, options), ranks, world, deadline=deadline, timeout=timeout,
                 checked=checked, recorder=options.recorder, trace=trace)
    except KeyboardInterrupt as stop:
        if (way := options.way_on()) is not None:
            stop.add_note(way)
        raise
    except typer.Exit as end:                           # of a job of processes, which has told the rest
        if end.exit_code == INTERRUPTED and (way := options.way_on()) is not None:
            typer.echo(f"  {way}", err=True)
        raise


def chosen_model(model: str | None) -> dict[str, str]:
    """The setting that `--model` stands for."""
    if model is None:
        return {}
    return {"name" if model == "tiny" else "family" if model in ("llama", "gpt2") else "from": model}


def plain_settings(given: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Only what was given, words as plain text."""
    return {section: {key: str(value) if isinstance(value, StrEnum) else value for key, value in keys.items()
                      if value is not None} for section, keys in given.items()}
