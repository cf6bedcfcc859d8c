"""Runs that never ran: the closed form's events with times of a simple machine, as large as a test wants them."""
from minitp.config import TINY, ModelConfig
from minitp.placement import Placement
from minitp.trace.file import Trace
from minitp.trace.predict import GenerationPlan, predict
from minitp.trace.schema import Event, Mark

import numpy as np


def synthetic(ranks=4, tokens=5, config: ModelConfig = TINY, *, load="slice", gathered=True, slow=None, seed=0,
              compute=50_000, moving=10_000, run=None) -> Trace:
    """`tokens` passes on `ranks` ranks: each computes about `compute` ns before a sync and moves about `moving` ns in it.

    Rank `slow` computes twice as long.
    """
    passes = [("prefill", 4)] + [("decode", 1)] * (tokens - 1)
    plan = GenerationPlan(Placement(config, ranks), load, "float32", 1, passes, tokens, gathered)
    events = predict(plan)
    random = np.random.default_rng(seed)
    work = random.integers(compute // 2, compute * 3 // 2, (len(events), ranks))
    if slow is not None:
        work[:, slow] *= 2
    move = random.integers(moving // 2, moving * 3 // 2, (len(events), ranks))
    leave = np.zeros(ranks, np.int64)
    times = np.empty((len(events), ranks, 2), np.int64)
    for number, event in enumerate(events):
        times[number, :, 0] = leave + work[number]
        ready = times[number, 0, 0] if event.op in ("scatter", "broadcast") else times[number, :, 0].max()
        leave = times[number, :, 1] = np.maximum(times[number, :, 0], ready) + move[number]
    rows, marks = [], []
    for rank in range(ranks):
        for number, e in enumerate(events):
            enter, out = times[number, rank].tolist()
            root = 0 if e.op in ("scatter", "broadcast") else None
            rows.append(Event(rank, "tp", 0, number, e.plane, e.op, root, None, None, e.site, f"because of {e.site}",
                              e.phase, e.step, None, None, e.before, e.after, e.shape, e.dtype, e.payload, enter, out,
                              None, None, None, None, False, "minitp/layers/mlp.py:33"))
        for phase, step in dict.fromkeys((e.phase, e.step) for e in events):
            own = [n for n, e in enumerate(events) if (e.phase, e.step) == (phase, step)]
            begin = int(times[own[0], rank, 0] - work[own[0], rank])
            marks.append(Mark(rank, phase, step, None, begin, int(times[own[-1], rank, 1])))
    header = plan.to_run() | {"prompts": [1, 2, 3, 4], "tokens": list(range(tokens)), "text": "x" * tokens,
                              "pieces": [["x"] * tokens], "world": "mpi", "cores": ranks, "ranks_per_core": 1.0}
    return Trace.of(rows, marks, run=header | (run or {}))
