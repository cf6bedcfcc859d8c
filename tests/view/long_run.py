"""A long run of many ranks, made up: a real one would take minutes. Only its times are invented."""
import numpy as np

from minitp.trace import Event, Mark, Trace


def long_run(ranks: int, tokens: int, layers: int) -> Trace:
    """`tokens` passes of a model of `layers` layers; every rank computes for a time drawn for it."""
    sites = ["embedding", *(f"layers.{layer}.{part}" for layer in range(layers)
                            for part in ("attention.o", "mlp.down")), "head"]
    events, marks = [], []
    for rank in range(ranks):
        computing = np.random.default_rng(rank).integers(20_000, 300_000, (tokens, len(sites))).tolist()
        now = 0
        for step in range(tokens):
            phase, begin = "decode" if step else "prefill", now
            for i, site in enumerate(sites):
                enter, now = now + computing[step][i], (step * len(sites) + i + 1) * 400_000
                op, before = ("all_gather", "shard(-1)") if site == "head" else ("all_reduce", "partial")
                events.append(Event(rank, "tp", 0, step * len(sites) + i, "data", op, None, None, None, site, "why",
                                    phase, step, None, None, before, "whole", (1, 1, 576), "float32", 2304, enter, now,
                                    None, None, None, None, False, "minitp/model.py:50"))
            marks.append(Mark(rank, phase, step, None, begin, now))
    return Trace.of(events, marks, run={"ranks": ranks})
