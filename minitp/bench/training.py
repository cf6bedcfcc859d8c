"""A training step: how fast, and whether what a rank holds by kind explains the memory that its process takes.

explained = baseline + weights + gradients + optimizer + activations, against the peak of private memory during a step.
The baseline is the process before it holds any of the model. What is left is temporary arrays, and what the allocator
keeps for later.
"""
from pathlib import Path
from typing import Any

import numpy as np

from minitp.bench.measure import alternate, check_rounds, every_rank, facts, median, own_recorder, thread_ranks
from minitp.comm import Communicator
from minitp.errors import ConfigError
from minitp.model import Transformer
from minitp.placement import Placement
from minitp.train.config import BYTES, TrainConfig
from minitp.train.initial import InitialWeights, make_learner, working_dtype
from minitp.train.memory import Held
from minitp.weights import load_weights

LARGE: dict[str, dict[str, Any]] = {
    "model": {"family": "llama", "hidden": 512, "layers": 8, "heads": 8, "positions": 256},
    "train": {"batch": 4, "tokens": 256}, "run": {"save_every": 0}}
"""Settings of a model that is large enough to tell: 25 million weights, 1024 tokens a step."""
_ONE_PROCESS = "memory is that of the one process that all thread ranks share, so it can't be told per rank"


def training(group: Communicator, config: TrainConfig, *, rounds: int = 5) -> list[dict[str, Any]]:
    """One row per rank. The weights are random ones of the settings' sizes, and so is the text."""
    check_rounds(rounds)
    if config.model.from_ is not None:
        raise ConfigError("bench train measures random weights of some sizes: [model] name or family, not from")
    settings = config.train
    peak = PrivatePeak()
    baseline = peak.take()
    placement = Placement(config.model.config(config.data.vocab or BYTES, settings.tokens), group.size,
                          config.cut.embedding, config.cut.cut)                                # type: ignore[arg-type]
    model = Transformer(placement.config, placement, group)
    weights = load_weights(InitialWeights(placement.config), placement, group, dtype=working_dtype(config))
    learner = make_learner(config, model, weights)
    ids = np.random.Generator(np.random.Philox(key=0)).integers(
        placement.config.vocab, size=(settings.batch, settings.tokens + 1))
    with own_recorder(group) as recorder:
        recorder.keep_events = False
        learner.step(0, ids)                                          # whatever is made once is there from now on
        peak = PrivatePeak()
        activations = learner.step(0, ids).activations
        most = peak.take()
        times, _ = alternate(group, lambda: learner.step(0, ids), lambda: None, rounds)
    held = Held.of(weights, learner.gradients, learner.optimizer, activations)
    own = {"baseline_bytes": baseline, **{f"{kind}_bytes": n for kind, n in held.to_row().items()},
           "held_bytes": held.total, "private_peak_bytes": most}
    shared = facts(group, "train") | {
        "model": config.name, "parameters": sum(p.size for p in placement.parameters), "dtype": settings.dtype,
        "batch": settings.batch, "tokens": settings.tokens, "micro_batches": settings.micro_batches,
        "recompute": settings.recompute, "step_s": median(times), "rounds": rounds}
    if not thread_ranks(group):
        shared["tokens_per_second"] = settings.batch * settings.tokens / shared["step_s"]
    return _rows(group, shared, own)


def _rows(group: Communicator, shared: dict[str, Any], own: dict[str, int]) -> list[dict[str, Any]]:
    """Every rank's numbers as a row of its own, on all ranks."""
    rows, alone = [], not thread_ranks(group)
    for rank, numbers in enumerate(every_rank(group, list(own.values()))):
        row = shared | {"rank": rank} | {name: int(n) for name, n in zip(own, numbers, strict=True)}
        explained = row["baseline_bytes"] + row["held_bytes"]
        row |= {"explained_share": explained / row["private_peak_bytes"] if alone else None,
                "temporary_bytes": row["private_peak_bytes"] - explained if alone else None}
        rows.append(row if alone else row | {"note": f"{row['note']}; {_ONE_PROCESS}"})
    return rows


class PrivatePeak:
    """The most memory that this process has had for itself alone since this was made, in bytes.

    The kernel keeps the peak of all resident pages (VmHWM) and can be told to start anew. Pages of files and those that
    MPI shares between ranks are taken off: they hardly change within a step.
    """

    def __init__(self) -> None:
        try:
            Path("/proc/self/clear_refs").write_text("5")
        except OSError as error:
            raise ConfigError(f"the peak of a rank's memory is read from /proc, as Linux has it: {error}") from error

    def take(self) -> int:
        pages = {}
        for line in Path("/proc/self/status").read_text().splitlines():
            name, _, size = line.partition(":")
            if name in ("VmHWM", "RssFile", "RssShmem"):
                pages[name] = int(size.split()[0]) * 1024
        return pages["VmHWM"] - pages["RssFile"] - pages["RssShmem"]
