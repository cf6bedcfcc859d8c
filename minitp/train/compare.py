"""The first steps of one training run, measured on one mesh of ranks and held against the same steps on one rank.

A split is right if its gradients are those of one rank, up to rounding; what it costs is sync points, bytes and memory.
Rank 0 puts each parameter's gradient together from its shards by the placement. The run on one rank leaves its own in a
folder, where the other runs, in other processes too, find them.
"""
import time
from collections.abc import Callable, Mapping
from math import isfinite, prod
from pathlib import Path
from typing import Any

import numpy as np

from minitp.bench.measure import every_rank, median
from minitp.comm import Communicator
from minitp.plan.network.collectives import cost
from minitp.trace.schema import Event
from minitp.train import memory
from minitp.train.checkpoint import wholes
from minitp.train.config import TrainConfig
from minitp.train.data import Corpus
from minitp.train.loop import Learner
from minitp.train.memory import Held

Mesh = Mapping[str, int]
"""Axis → size: {"tp": 4}. Their product is the number of ranks."""

Row = dict[str, Any]
PHASES = ("forward", "backward", "optimizer")


def ranks_of(mesh: Mesh) -> int:
    return prod(mesh.values())


def mesh_name(mesh: Mesh) -> str:
    """tp=4"""
    return " ".join(f"{axis}={size}" for axis, size in mesh.items())


class PhaseCounter:
    """A recorder's listener: what this rank's collectives come to, by phase, since it was last asked."""

    def __init__(self, ranks: int):
        self.ranks = ranks
        self._met: list[tuple[str, int, float]] = []             # phase, payload, bytes sent if it were a ring

    def __call__(self, event: Event) -> None:
        if event.plane == "data" and event.phase in PHASES:
            sent = float(cost(event.op, "ring", self.ranks).volume) * event.payload
            self._met.append((event.phase, event.payload, sent))

    def take(self) -> Row:
        """What was counted, as a part of a row; from now on it counts from zero."""
        met, self._met = self._met, []
        of_phase = {phase: [payload for at, payload, _ in met if at == phase] for phase in PHASES}
        return {"sync_points": len(met), "sync_points_by_phase": {at: len(found) for at, found in of_phase.items()},
                "payload": sum(payload for _, payload, _ in met),
                "payload_by_phase": {at: sum(found) for at, found in of_phase.items()},
                "bytes_per_rank": round(sum(sent for *_, sent in met))}


def measure(group: Communicator, mesh: Mesh, learner: Learner, corpus: Corpus, config: TrainConfig, folder: Path,
            progress: Callable[[], Any] = lambda: None) -> Row:
    """Take the steps of `config` on every rank; the row of this run, whole on rank 0.

    The first run that comes to `folder` is the reference: its gradients stay there. `progress` is called after each
    step. The row, per step where not said otherwise:

      losses, loss             of every step, in nats; of the last one
      max_gradient_difference  largest difference of an element of a gradient from the reference's, over all steps
      max_gradient             the largest element itself: what the difference is to be held against
      sync_points, payload     (and _by_phase) counted; bytes of the whole arrays, the same on every rank
      bytes_per_rank           modelled: what a rank sends if every collective is a ring
      memory, memory_by_rank   bytes held by kind, on the rank that holds most, and on each
      seconds_per_step         median of the steps after the first, each of the slowest rank
    """
    settings, counter = config.train, PhaseCounter(ranks_of(mesh))
    results, seconds, differences = [], [], []
    counted: Row = {}
    group.recorder.listener = counter
    for number in range(settings.steps):
        windows = corpus.batch(number, settings.batch, settings.tokens, settings.seed)
        begin = time.perf_counter()
        results.append(learner.step(number, windows))
        seconds.append(time.perf_counter() - begin)
        counted = counter.take()
        differences.append(_against_reference(learner, group, folder / f"gradients-{number}.npz"))
        progress()
    difference, largest = np.array(differences).max(axis=0).tolist()
    losses = [finite(result.loss) for result in results]
    return {"mesh": dict(mesh), "ranks": group.size, "world": group.transport.world, **_asked(config),
            "text": corpus.record()["text"], "losses": losses, "loss": losses[-1],
            "max_gradient_difference": finite(difference), "max_gradient": finite(largest), **counted,
            **_memory(learner, max(result.activations for result in results), group), **_times(seconds, group)}


def finite(number: float) -> float | None:
    """None for what JSON can't say."""
    return number if isfinite(number) else None


def _asked(config: TrainConfig) -> Row:
    settings = ("dtype", "steps", "batch", "tokens", "micro_batches", "recompute", "seed")
    return {"model": config.name, **{name: getattr(config.train, name) for name in settings},
            "embedding": config.cut.embedding, "cut": config.cut.cut}


def _memory(learner: Learner, activations: int, group: Communicator) -> Row:
    table = memory.every_rank(Held.of(learner.weights, learner.gradients, learner.optimizer, activations), group)
    rank, held = memory.fullest(table)
    return {"memory": held.to_row() | {"rank": rank}, "memory_by_rank": [of_rank.to_row() for of_rank in table]}


def _times(seconds: list[float], group: Communicator) -> Row:
    """The first step is slower: it takes memory from the system, and BLAS starts its threads."""
    slowest = every_rank(group, seconds).max(axis=0).tolist()
    return {"seconds_per_step": median(slowest[1:] or slowest), "seconds": slowest}


def _against_reference(learner: Learner, group: Communicator, file: Path) -> tuple[float, float]:
    """(largest difference from the reference's gradients, largest gradient) of the step just taken, on rank 0."""
    placement = learner.model.placement
    with group.recorder.mark("compare"):
        arrays = wholes([("", parameter) for parameter in placement.parameters], {"": learner.gradients}, placement,
                        group, reason="rank 0 compares whole gradients with those of one rank")
        whole = {parameter.name: array for parameter, array in zip(placement.parameters, arrays, strict=True)}
    if group.rank > 0:
        return 0.0, 0.0
    largest = float(np.max([np.abs(array).max(initial=0) for array in whole.values()]))
    if not file.exists():
        np.savez(file, **whole)
        return 0.0, largest
    with np.load(file) as reference:
        return float(np.max([np.abs(whole[name] - reference[name]).max(initial=0) for name in whole])), largest
