"""The options that several verbs share, and how a verb's work reaches the ranks.

Imports are inside the functions: `minitp --help` must answer at once.
"""
import sys
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from minitp.comm.communicator import Communicator

MORE = "More"
DRAW, CUT, RECORD, SAFETY = "How tokens are drawn", "How the model is cut", "What is on record", "Safety"
FAULT = "What goes wrong on purpose"


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


def opt(text: str, *names: str, panel: str | None = None, **more: Any) -> Any:
    """An option with its help text, in a panel of the help page."""
    return typer.Option(*names, help=text, rich_help_panel=panel, **more)


ModelOption = Annotated[str, opt("A name of `minitp models`, a folder with config.json, a .gguf file, or a Hub id.",
                                 "--model", "-m", metavar="NAME")]
RanksOption = Annotated[int | None, opt("How many ranks; under mpirun, mpirun's number.", "--ranks", "-n", min=1)]
WorldOption = Annotated[World, opt("mpi: processes; threads: ranks of this process; auto: MPI if it is there and more "
                                   "than one rank is asked for.")]
EmbeddingOption = Annotated[Embedding, opt("Cut the table along the vocabulary (Llama 3) or along hidden (LLaMA 1 "
                                           "and 2).", panel=CUT)]
CutOption = Annotated[CutRule, opt("even: as even as whole units allow; balanced: the ffn evens out bytes.", panel=CUT)]
LoadOption = Annotated[Load, opt("slice: every rank reads its slices; scatter: rank 0 reads and sends.", panel=CUT)]
DtypeOption = Annotated[Precision, opt("Numbers to compute with.", panel=CUT)]
BackendOption = Annotated[Backend, opt("Arrays on the host, or on a GPU by CuPy.", panel=CUT)]
CheckedOption = Annotated[bool | None, opt("Compare the ranks' calls before every collective.", "--checked/--unchecked",
                                           panel=SAFETY, show_default="on with threads")]
DeadlineOption = Annotated[float, opt("Seconds a rank may wait in one collective.", panel=SAFETY, min=0.1,
                                      max=86400)]
TimeoutOption = Annotated[float | None, opt("Seconds the whole run may take.", panel=SAFETY, min=0.1,
                                            max=31_536_000)]


def on_ranks(body: "Callable[[Communicator], Any]", ranks: int | None, world: World, *, deadline: float = 300.0,
             timeout: float | None = None, checked: bool | None = None, backend: Backend = Backend.numpy,
             recorder: Callable[[int], Any] | None = None, kind: "type[Communicator] | None" = None,
             trace: str | None = None) -> list[Any]:
    """Run `body` on every rank: of this MPI job, of a new one (then this process passes its output on), or threads.

    trace: the file that a run writes its trace to; of one that fails, what there is of it is written here.
    """
    from minitp.launcher import launch, relaunch
    from minitp.launcher.rescue import written_to
    code = relaunch(sys.argv[1:], ranks, world.value, timeout=timeout)
    if code is not None:
        raise typer.Exit(code)
    return launch(body, ranks, world=world.value, deadline=deadline, run_deadline=timeout, recorder=recorder,
                  checked=checked, arrays=backend.value, kind=kind, rescued=written_to(trace))
