"""Traces whose times a test chooses: what each rank computes before each sync, and how long the sync then moves."""
from collections.abc import Sequence

from minitp.trace import Trace
from minitp.trace.schema import Event, Mark

RUN = {"world": "mpi", "cores": 64, "ranks_per_core": 0.1}


def event(rank: int, number: int, enter: int, leave: int, **other) -> Event:
    given = {"op": "all_reduce", "plane": "data", "site": f"layers.{number}.mlp.down", "reason": "why", "root": None,
             "peer": None, "phase": "decode", "step": 1, "payload": 4000, "axis": "tp", "group": 0,
             "sequence": number, "broken": False} | other
    return Event(rank=rank, chunk=None, micro_batch=None, draft=None, before="partial", after="whole", shape=(1, 1000),
                 dtype="float32", enter=enter, leave=leave, start=None, wait=None, complete=None, wire=None,
                 caller="minitp/layers/mlp.py:33", **given)


def all_reduces(own: Sequence[Sequence[int]], moving: Sequence[float], *, per_pass: int = 1000, **other) -> Trace:
    """own[sync][rank] ns of computing, then an all-reduce that moves for moving[sync] ns once the last rank is there.

    `per_pass` syncs are one token; the first token is decode 1.
    """
    ranks = len(own[0])
    now = [0] * ranks
    events, marks, begins = [], [], [0] * ranks
    for number, (work, move) in enumerate(zip(own, moving, strict=True)):
        step = 1 + number // per_pass
        arrivals = [begin + w for begin, w in zip(now, work, strict=True)]
        leave = int(max(arrivals) + move)
        events += [event(rank, number, arrivals[rank], leave, **{"step": step} | other) for rank in range(ranks)]
        now = [leave] * ranks
        if number + 1 == len(own) or (number + 1) % per_pass == 0:
            marks += [Mark(rank, "decode", step, None, begins[rank], leave) for rank in range(ranks)]
            begins = list(now)
    return Trace.of(events, marks, run=RUN)
