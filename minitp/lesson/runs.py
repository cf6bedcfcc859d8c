"""One function on every rank, and what is to be seen of it afterwards: all ranks' results, and the trace."""
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from minitp.errors import ConfigError
from minitp.launcher import launch
from minitp.launcher.rescue import Rescued
from minitp.launcher.world import script_defaults, script_ranks
from minitp.lesson.carry import from_plain, to_plain
from minitp.lesson.stage import mpi_ranks
from minitp.trace.file import Trace
from minitp.trace.merge import align_clocks, collect, of_threads, run_info
from minitp.trace.recorder import Recorder
from minitp.trace.schema import Event
from minitp.trace.wording import size

if TYPE_CHECKING:
    from minitp.comm.communicator import Communicator

_SITE = "lesson"
_MOST_THREADS = 64


def met_by_first(trace: Trace) -> list[Event]:
    """What rank 0 sent, received and took part in, control messages left out."""
    return [event for event in trace if event.rank == 0 and event.plane != "control"]


@dataclass(frozen=True)
class Run:
    """results: what each rank returned, in rank order; trace: all that they said to each other."""
    results: list[Any]
    trace: Trace

    @property
    def ranks(self) -> int:
        return len(self.results)

    @cached_property
    def events(self) -> list[Event]:
        """What rank 0 sent, received and took part in, control messages left out."""
        return met_by_first(self.trace)

    @property
    def sync_points(self) -> int:
        """Collectives that the mathematics needs. One rank records the same as many."""
        return sum(event.plane == "data" and event.peer is None for event in self.events)

    @property
    def payload(self) -> int:
        """Bytes of the whole arrays of its sync points."""
        return sum(event.payload for event in self.events if event.plane == "data" and event.peer is None)

    def tell(self) -> None:
        """Print each sync point of rank 0 on a line."""
        for event in self.events:
            print(f"{event.op} at {event.site}: {event.before} → {event.after}, shape {event.shape}, "
                  f"{size(event.payload)}: {event.reason}")


def run(fn: "Callable[[Communicator], Any]", ranks: int = 4, *, threads: bool = False, values: bool = False,
        kind: "type[Communicator] | None" = None, deadline: float | None = None,
        rescued: Rescued | None = None) -> Run:
    """fn(tp) on every rank.

    ranks    how many threads; under mpirun and `minitp run` the ranks are those that were started
    threads  there too, each process starts `ranks` threads of its own: for what needs just so many, or is to fail
    values   also keep the arrays that the collectives saw
    kind     a class of communicators other than Communicator, as launch() takes it
    deadline seconds that all of it may take; None: no limit
    rescued  takes the trace of a run that failed, as launch() has it

    ConfigError for what isn't of this kind, in every world: a lesson that runs here runs elsewhere.
    """
    _check(fn, ranks, deadline)
    ranks = int(ranks)
    recorders: dict[int, Recorder] = {}
    about: dict[str, Any] = {}

    def recorder(rank: int) -> Recorder:
        recorders[rank] = Recorder(rank, keep_values=values)
        return recorders[rank]

    def on_rank(tp: "Communicator") -> Any:
        tp.recorder.about = lambda: {"command": []}
        align_clocks(tp)
        about.update(run_info(tp, argv=[]))
        with tp.recorder.mark("run"):
            return fn(tp)

    def shown(tp: "Communicator") -> tuple[list[Any], Trace]:
        result = on_rank(tp)
        return _everybody_s(tp, result, collect(tp, tp.recorder, about))

    started = None if threads else mpi_ranks()
    if started is not None:
        return Run(*launch(shown, world="mpi", recorder=recorder, kind=kind, run_deadline=deadline,
                           rescued=rescued)[0])
    count = ranks if threads else script_ranks() or ranks
    with script_defaults(None, None):
        results = launch(on_rank, ranks=count, world="threads", recorder=recorder, kind=kind, run_deadline=deadline,
                         rescued=rescued)
    return Run(results, of_threads([recorders[rank] for rank in range(count)], about))


def _check(fn: Any, ranks: Any, deadline: Any) -> None:
    if not callable(fn):
        raise ConfigError(f"run() takes a function that every rank calls, as run(lambda tp: tp.rank); {fn!r} is none")
    if isinstance(ranks, bool) or not isinstance(ranks, int | np.integer) or not 1 <= ranks <= _MOST_THREADS:
        raise ConfigError(f"run(…, ranks={ranks!r}): each rank is a thread of this process, and there can be a whole "
                          f"number of them from 1 to {_MOST_THREADS}, as ranks=4")
    number = isinstance(deadline, int | float | np.integer | np.floating) and not isinstance(deadline, bool)
    if deadline is not None and not (number and 0 < deadline < inf):
        raise ConfigError(f"run(…, deadline={deadline!r}): the seconds that the run may take, more than 0, as "
                          "deadline=10; without it there is no limit")


def _everybody_s(tp: "Communicator", result: Any, trace: Trace | None) -> tuple[list[Any], Trace]:
    """All results and the trace, on every process."""
    with tp.recorder.pause():
        text = json.dumps(to_plain(result))
        texts = [tp.share(text, root=rank, site=_SITE, reason="show every rank's result") for rank in range(tp.size)]
        plain = tp.share(None if trace is None else trace.to_plain(), site=_SITE, reason="show the trace")
    return [from_plain(json.loads(one)) for one in texts], Trace.from_plain(plain)
