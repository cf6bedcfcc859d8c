"""Exercises of lesson 03: the MLP of a real model."""
from collections.abc import Callable
from typing import Any

import numpy as np

from minitp.checkpoint import Checkpoint, open_checkpoint
from minitp.comm import Communicator
from minitp.errors import FetchError
from minitp.layers.mlp import activate
from minitp.lesson.exercises.base import Exercise, Verdict, number
from minitp.lesson.exercises.checking import has_shape, is_near, meetings, met, on_ranks
from minitp.models import Bundled, resolve
from minitp.placement import Placement
from minitp.runs import samples
from minitp.trace.file import Trace

RANKS, SMOL_RANKS, SMOL = 5, 4, "smollm2-135m"
CLOSE = 1e-9                           # of numbers near 0
Matrices = tuple[np.ndarray, np.ndarray, np.ndarray]


def _payload() -> float:
    """3.1: bytes of the MLPs' syncs of one decode pass, as the bundled run of SmolLM2 has them."""
    file = next(sample for sample in samples() if sample.name.startswith("smollm2"))
    trace = Trace.read(file.path)
    mlp = [site.endswith(".mlp.down") for site in trace.words("site")]
    return int(trace.events["payload"][trace.where(rank=0, phase="decode", step=1) & mlp].sum())


def matrices(checkpoint: Checkpoint, layer: int, placement: Placement, rank: int) -> Matrices:
    """A rank's slices of gate and up (F_p, D), down (D, F_p)."""
    wanted = [placement.parameter(f"layers.{layer}.mlp.{name}.weight") for name in ("gate", "up", "down")]
    gate, up, down = (checkpoint.read(p, placement.slices(p, rank), np.float64) for p in wanted)
    return gate, up, down


def _mlp_on(mlp: Any, checkpoint: Checkpoint, ranks: int, of: str) -> Verdict:
    """`mlp(tp, x, gate, up, down)` with the last layer of a checkpoint, against one rank's answer."""
    config, layer = checkpoint.config, checkpoint.config.layers - 1
    x = np.random.default_rng(2).normal(size=config.hidden)
    whole = matrices(checkpoint, layer, Placement(config, 1), 0)
    cut = [matrices(checkpoint, layer, Placement(config, ranks), rank) for rank in range(ranks)]

    def on_rank(tp: Communicator) -> Any:
        return mlp(tp, x, *cut[tp.rank])

    run = on_ranks(on_rank, ranks)
    if isinstance(run, Verdict):
        return run
    wanted = _gated(x, *whole, lambda gate, up: activate(gate, "silu", np) * up)
    for rank, y in enumerate(run.results):
        if not has_shape(y, wanted.shape):
            return Verdict(False, f"rank {rank} returned {y!r:.200}; the whole y has shape {wanted.shape}.")
        if not is_near(y, wanted, atol=CLOSE):
            return Verdict(False, f"rank {rank}'s y[0] is {y[0]:.4f}, it should be {wanted[0]:.4f}. "
                                  + _mistake(y, x, whole, cut[rank]))
    if meetings(run) > 1:
        return Verdict(False, f"the numbers are right, with {met(run)}: h is a shard, and the row cut takes it as it "
                              "is; only y has to be summed.")
    return Verdict(True, f"right, {of} on {ranks} ranks, with {met(run)}.")


def _gated(x: np.ndarray, gate: np.ndarray, up: np.ndarray, down: np.ndarray,
           bend: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> np.ndarray:
    return bend(x @ gate.T, x @ up.T) @ down.T


def _mistake(y: np.ndarray, x: np.ndarray, whole: Matrices, mine: Matrices) -> str:
    """What a wrong y was made by, where it is a known mistake."""
    def silu(a: np.ndarray) -> np.ndarray:
        return activate(a, "silu", np)

    known = [(whole, lambda gate, up: gate * up, "The activation is missing: silu(gate · x) × up · x."),
             (whole, lambda gate, up: gate * silu(up), "The activation belongs to gate, not to up."),
             (whole, lambda gate, up: silu(gate * up), "silu acts on gate · x alone, before it meets up · x."),
             (whole, lambda gate, up: silu(gate) * silu(up), "silu acts on gate · x only."),
             (whole, lambda gate, up: silu(gate), "up is missing: silu(gate · x) × up · x, entry by entry."),
             (mine, lambda gate, up: silu(gate) * up, "This is the rank's own term: the others' are missing.")]
    return next((words for matrices, bend, words in known if is_near(y, _gated(x, *matrices, bend), atol=CLOSE)),
                "h = silu(gate · x) × up · x on this rank's slices; then down, then the sum over the ranks.")


def _tiny(mlp: Any) -> Verdict:
    return _mlp_on(mlp, open_checkpoint(Bundled("tiny").folder), RANKS, "layer 1 of tiny")


def _smol(mlp: Any) -> Verdict:
    """3.3: on SmolLM2 where it has been fetched; else on tiny, and the verdict says so."""
    try:
        found = resolve(SMOL, fetch=False)
    except FetchError:
        verdict = _tiny(mlp)
        return Verdict(verdict.passed, verdict.words if verdict.passed is None else
                       f"{SMOL} isn't on this machine (minitp models fetch {SMOL}), so tiny was taken: {verdict.words}")
    return _mlp_on(mlp, open_checkpoint(found.folder if isinstance(found, Bundled) else found), SMOL_RANKS,
                   f"the last layer of {SMOL}")


EXERCISES = {
    "3.1": number(_payload, lambda found: f"{found:,} bytes: a vector of D numbers in each of the L layers.",
                  hint="Each MLP's sync moves y: D numbers of 4 bytes. How many MLPs are there?"),
    "3.2": Exercise(_tiny),
    "3.3": Exercise(_smol),
}
