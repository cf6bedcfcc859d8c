"""Machines of known α and β, and traces that they would have made."""
from collections.abc import Iterable
from pathlib import Path

from minitp.config import TINY
from minitp.placement import Placement
from minitp.plan.links import Link
from minitp.plan.machine import Device, Level, Machine
from minitp.trace.file import Trace
from minitp.trace.predict import GenerationPlan, TrainingPlan, predict
from minitp.trace.predict_training import Steps
from minitp.trace.schema import Event, Expected, Mark

ALPHA, BETA = 5e-6, 2e-9
DEVICE = Device("a rank", "cpu", 2**30, 2**30, "RAM", 10e9, {"float32": 50e9, "float64": 25e9}, "made for tests", 1.0,
                1.0)


def known(ranks: int = 2, **more) -> Machine:
    """A machine whose link has α = 5 µs and β = 2 ns per byte."""
    return Machine("known", DEVICE, (Level("wire", ranks, Link("wire", ALPHA, 1 / BETA, "made for tests")),),
                   "made for tests", **more)


def seconds(event: Expected) -> float:
    """On two ranks: an all-reduce is one message of the whole array, a gather or scatter one of half of it."""
    volume = 1.0 if event.op.startswith("all_reduce") or event.op == "broadcast" else 0.5
    return ALPHA + volume * event.payload * BETA


def plan(gathered: bool = True) -> GenerationPlan:
    passes = [("prefill", 5), *[("decode", 1)] * 3]
    return GenerationPlan(Placement(TINY, 2), "scatter", "float32", 1, passes, 4, gathered)


def training() -> TrainingPlan:
    return TrainingPlan(Placement(TINY, 2), "float32", [Steps(0, 2, ((1, 8), (2, 8)))])


def trace_of(what: GenerationPlan | TrainingPlan, expected: Iterable[Expected] | None = None, late: int = 3_000
             ) -> Trace:
    """What two ranks record on the known machine: rank 1 is `late` ns late everywhere, 10 µs of computing between."""
    events, marks, now = [], [], 1000
    for number, event in enumerate(predict(what) if expected is None else expected):
        leave, begin = now + late + round(1e9 * seconds(event)), now - 500
        root = 0 if event.op in ("scatter", "broadcast") else None
        for rank in range(2):
            enter = now + (late if rank or root is not None else 0)        # a root that waits for nobody is late, too
            events.append(Event(rank, "tp", 0, number, event.plane, event.op, root, None, None, event.site, "why",
                                event.phase, event.step, event.micro_batch, None, event.before, event.after,
                                event.shape, event.dtype, event.payload, enter, leave, None, None, None, None,
                                event.broken, ""))
            marks.append(Mark(rank, event.phase, event.step, event.micro_batch, begin, leave))
        now = leave + 10_000
    return Trace.of(sorted(events, key=lambda e: e.rank), sorted(marks, key=lambda m: m.rank),
                    run={"ranks": 2, "world": "mpi", "cores": 2, "ranks_per_core": 1.0, "hosts": 1, **what.to_run()})


def written(trace: Trace, folder: Path) -> Path:
    path = folder / "run.json"
    trace.write(path)
    return path
