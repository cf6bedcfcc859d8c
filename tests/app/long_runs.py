"""Traces of runs that would take long to make: the closed form's events of a model, with drawn times.

As many events, sites, marks and words as a real run of that size; nothing in them is measured, and they are for sizes
and speeds only.
"""
from dataclasses import replace
from pathlib import Path

import numpy as np

from minitp.config import ModelConfig
from minitp.placement import Placement
from minitp.trace.file import Trace
from minitp.trace.predict import GenerationPlan, predict
from minitp.trace.schema import Event, Expected, Mark

SMOLLM2_LIKE = ModelConfig(name="drawn times", hidden=576, layers=30, heads=9, kv_heads=3, head_size=64, ffn=1536,
                           vocab=49_152, positions=8192, tied=True)
WORDS = (" the", " river", " runs", " down", " to", " a", " town", ",", " and", " on")


def long_run(ranks: int, tokens: int, layers: int = 30, seed: int = 0) -> Trace:
    """`tokens` new tokens of a model with 2·layers + 2 sync points on `ranks` ranks."""
    config = replace(SMOLLM2_LIKE, layers=layers)
    passes = [("prefill", 6), *[("decode", 1)] * (tokens - 1)]
    plan = GenerationPlan(Placement(config, ranks), "slice", "float32", 1, passes, tokens)
    foretold = predict(plan)
    events, marks = _timed(foretold, ranks, np.random.default_rng(seed))
    words = [WORDS[i % len(WORDS)] for i in range(tokens)]
    run = plan.to_run() | {
        "id": f"drawn{ranks}x{tokens}", "world": "mpi", "ranks": ranks, "cores": 64, "ranks_per_core": ranks / 64,
        "prompts": list(range(6)), "tokens": list(range(tokens)), "pieces": [words], "text": "".join(words)}
    run["model"]["name"] = f"drawn times, {2 * layers + 2} sync points"
    return Trace.of(events, marks, run=run)


def _timed(foretold: list[Expected], ranks: int, draw: np.random.Generator) -> tuple[list[Event], list[Mark]]:
    """Each rank computes for a while, waits for the last one, and all leave a little later."""
    compute = draw.integers(60_000, 120_000, (len(foretold), ranks))
    enter, leave, now = np.empty_like(compute), np.empty(len(foretold), np.int64), np.zeros(ranks, np.int64)
    for i, row in enumerate(compute):
        enter[i] = now + row
        leave[i] = enter[i].max() + 20_000
        now[:] = leave[i]
    events, marks = [], []
    for rank in range(ranks):
        events += [Event(rank, "tp", 0, i, e.plane, e.op, None, None, None, e.site, f"what {e.op} at {e.site} is for",
                         e.phase, e.step, None, None, e.before, e.after, e.shape, e.dtype, e.payload,
                         int(enter[i, rank]), int(leave[i]), None, None, None, None, False, "minitp/model.py:64")
                   for i, e in enumerate(foretold)]
        for step in range(1 + max(e.step or 0 for e in foretold)):
            mine = [i for i, e in enumerate(foretold) if e.step == step]
            begin = int(leave[mine[0] - 1]) if mine[0] else 0
            marks.append(Mark(rank, foretold[mine[0]].phase, step, None, begin, int(leave[mine[-1]])))
    return events, marks


def write_long_run(path: Path, ranks: int, tokens: int, layers: int = 30) -> Path:
    long_run(ranks, tokens, layers).write(path)
    return path
