"""Finite differences through the collectives: one global number is changed on all ranks that hold it, and the real
split forward runs on every rank.

A `Split` is one rank's part of a model in float64. A program is a scalar made by one of its parts: `value` runs the
forward, `back` the backward, which leaves weight gradients in the store and returns the whole gradient of x (None where
the input is token ids). Nothing here knows how a gradient is computed; nothing in minitp knows of this.
"""
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jaxtyping
import numpy as np

from minitp.comm import Communicator, Partial
from minitp.config import ModelConfig
from minitp.context import Context, plan_pass
from minitp.dropout import Dropout
from minitp.gradients import Gradients
from minitp.layers import IGNORED, Logits, VocabParallelCrossEntropy
from minitp.model import Transformer
from minitp.placement import Placement
from minitp.saved import Saved
from minitp.train.reduce import sum_copies
from minitp.weights import load_weights
from tests.families import FullSource

B, T = 2, 5
STEP = 2e-4                        # differences of fourth order: what is cut off is below 1e-9, rounding 1e-11
CLOSE = 1e-8                       # of the largest entry of a gradient


class Split:
    """One rank's part of a model in float64, and the data of one micro-batch."""

    def __init__(self, comm: Communicator, config: ModelConfig, embedding: str = "vocab", cut: str = "even",
                 recompute: str = "none", dropout: float = 0.0, smoothing: float = 0.1, source: Any = None):
        self.comm, self.config = comm, config
        self.placement = Placement(config, comm.size, embedding, cut)
        self.model = Transformer(config, self.placement, comm)
        self.weights = load_weights(source or FullSource(config), self.placement, comm, dtype=np.float64)
        self.recompute, self.dropout = recompute, dropout
        self.loss = VocabParallelCrossEntropy(comm, self.placement.vocab, smoothing)
        self.ids, self.targets = batch(config, B, T)

    def context(self, saved: Saved | None = None, ids: np.ndarray | None = None, first: int = 7) -> Context:
        """A pass over `ids`, the run's sequences number `first` and on."""
        b, t = (self.ids if ids is None else ids).shape
        dropout = Dropout(self.dropout, 3, range(first, first + b)) if self.dropout else None
        return plan_pass(self.config, np.broadcast_to(np.arange(t), (b, t)), dtype=np.float64, saved=saved,
                         recompute=self.recompute, dropout=dropout)

    def piece(self, name: str) -> np.ndarray:
        """This rank's part of a parameter: a view of what its layers multiply."""
        array, rows = self.placement.homes(self.comm.rank)[name]
        return self.weights[array.name][rows]

    def part_of(self, whole: np.ndarray, name: str) -> np.ndarray:
        return whole[self.placement.slices(self.placement.parameter(name), self.comm.rank)]

    def pieces(self, gradients: Gradients) -> dict[str, np.ndarray]:
        """This rank's gradient of each parameter, once the ranks have paid what they owe."""
        sum_copies(gradients, self.placement, self.comm)
        return {name: gradients[array.name][rows]
                for name, (array, rows) in self.placement.homes(self.comm.rank).items()}

    def added(self, own: float) -> float:
        return float(self.comm.all_reduce(Partial(np.array([own]), self.comm), site="value", reason="of shards")[0])


def batch(config: ModelConfig, b: int, t: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Ids and targets with both ends of the vocabulary, a token twice, and targets that don't count."""
    rng = np.random.default_rng([seed, b, t])
    ids, targets = rng.integers(config.vocab, size=(2, b, t))
    ids[0, 0], ids[-1, -1], ids[0, -1] = 0, config.vocab - 1, 0
    targets[0, :2], targets[-1, -1] = (config.vocab - 1, 0), config.vocab - 1
    targets[0, -1] = targets[-1, 0] = IGNORED
    return ids, targets


def drawn(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


# --- programs ---------------------------------------------------------------------------------------------------------

class Program(ABC):
    """value = Σ c · y for a fixed random c: of the whole y, or of every rank's own shard of it."""
    inputs: str | None = "hidden"                 # the size of x's last axis: a size of the config, or None (token ids)
    sites: tuple[str, ...] = ()                   # of the parameters it uses
    shard = False

    def x(self, split: Split) -> np.ndarray | None:
        return None if self.inputs is None else drawn(11, B, T, getattr(split.config, self.inputs))

    def value(self, split: Split, x: Any) -> float:
        y = self.forward(split, x, split.context())
        own = float((self.factor(split, y) * y).sum())
        return split.added(own) if self.shard else own

    def back(self, split: Split, x: Any, gradients: Gradients) -> np.ndarray | None:
        ctx = split.context(Saved())
        return self.backward(split, self.factor(split, self.forward(split, x, ctx)), ctx, gradients)

    def factor(self, split: Split, y: np.ndarray) -> np.ndarray:
        return drawn(12 + split.comm.rank * self.shard, *y.shape)

    @abstractmethod
    def forward(self, split: Split, x: Any, ctx: Context) -> np.ndarray:
        """What is differentiated, run on this rank."""

    @abstractmethod
    def backward(self, split: Split, dy: np.ndarray, ctx: Context, gradients: Gradients) -> np.ndarray | None:
        """The backward that is on trial: dx, or None where the input is no numbers."""


@dataclass
class Layer(Program):
    """A part that takes x whole; its product or forward, by the kind of what it returns."""
    sites: tuple[str, ...]
    shard: bool = False

    def part(self, split: Split) -> Any:
        part = split.model if self.sites[0] in ("norm", "head") else split.model.blocks[0]
        for name in self.sites[0].split(".")[2:] or (self.sites[0],) * (part is split.model):
            part = getattr(part, {"gate_up": "up"}.get(name, name))
        return part

    def forward(self, split, x, ctx):
        part = self.part(split)
        if self.sites[0] == "head":
            return part.forward(x, split.weights, ctx, False).array
        if not hasattr(part, "product"):
            return part.forward(x, split.weights, ctx)
        row = getattr(part, "o", None) or part.down
        return row.add_bias(split.model.blocks[0].boundary.leave(part.product(x, split.weights, ctx), "y", "r"),
                            split.weights)

    def backward(self, split, dy, ctx, gradients):
        part = self.part(split)
        dx, pending = part.backward_input(dy, split.weights, ctx)
        part.backward_weight(pending, gradients)
        return split.model.blocks[0].boundary.enter_backward(dx, "x", "r") if isinstance(dx, Partial) else dx


class Row(Program):
    """x whole → this rank's slice of it → partial → whole + bias."""
    inputs, sites = "ffn", ("layers.0.mlp.down",)

    def forward(self, split, x, ctx):
        own = split.placement.ffn.of(split.comm.rank)
        return split.model.blocks[0].mlp.down.forward(x[..., own.start:own.stop], split.weights, ctx)

    def backward(self, split, dy, ctx, gradients):
        down = split.model.blocks[0].mlp.down
        dx, pending = down.backward_input(dy, split.weights, ctx)
        down.backward_weight(pending, gradients)
        return split.comm.all_gather(dx, axis=-1, cut=split.placement.ffn, site="x", reason="r")


class Boundary(Program):
    """enter, times a number that differs from rank to rank, leave: y = x · Σ numbers."""

    def forward(self, split, x, ctx):
        boundary = split.model.blocks[0].boundary
        return boundary.leave(Partial(boundary.enter(x) * (split.comm.rank + 0.5), split.comm), "y", "r")

    def backward(self, split, dy, ctx, gradients):
        boundary = split.model.blocks[0].boundary
        term = Partial(boundary.leave_backward(dy) * (split.comm.rank + 0.5), split.comm)
        return boundary.enter_backward(term, "x", "r")


class Embedding(Program):
    inputs, sites = None, ("embedding",)

    def forward(self, split, x, ctx):
        return split.model.embedding.forward(split.ids, split.weights, ctx)

    def backward(self, split, dy, ctx, gradients):
        _, pending = split.model.embedding.backward_input(dy, split.weights, ctx)
        split.model.embedding.backward_weight(pending, gradients)


class OfLoss(Program):
    """The loss of whole logits x, each rank reading its own slice."""
    inputs, scale = "vocab", 0.7

    def forward(self, split, x, ctx):
        own = split.placement.vocab.of(split.comm.rank)
        logits = Logits(x[..., own.start:own.stop], split.placement.vocab)
        return np.array(self.scale * split.loss.forward(logits, split.targets, ctx).total)

    def factor(self, split, y):
        return np.array(1.0)

    def backward(self, split, dy, ctx, gradients):
        dz = split.loss.backward_input(self.scale, ctx)
        return split.comm.all_gather(dz, axis=-1, cut=split.placement.vocab, site="x", reason="r")


class Model(OfLoss):
    """The whole model with its loss, per token that counts."""
    inputs, sites = None, ("embedding", "positions", "layers", "norm", "head")

    def forward(self, split, x, ctx):
        logits = split.model.forward(split.ids, split.weights, ctx, gathered=False)
        return np.array(split.loss.forward(logits, split.targets, ctx).total / self.tokens(split))

    def backward(self, split, dy, ctx, gradients):
        split.model.backward(split.loss.backward_input(1 / self.tokens(split), ctx), split.weights, ctx, gradients)

    def tokens(self, split: Split) -> int:
        return int((split.targets != IGNORED).sum())


def programs(config: ModelConfig) -> dict[str, Program]:
    """Every part of a model of this kind, by name."""
    at, table = "layers.0", "embedding" if config.tied else "head"
    up = ("gate", "up") if config.gated else ("up",)
    made = {
        "column": Layer((f"{at}.attention.qkv", *(f"{at}.attention.{part}" for part in "qkv")), shard=True),
        "row": Row(),
        "boundary": Boundary(),
        "norm": Layer(("norm",)),
        "attention": Layer((f"{at}.attention",)),
        "mlp": Layer((f"{at}.mlp",)),
        "up": Layer((f"{at}.mlp.{'gate_up' if config.gated else 'up'}", *(f"{at}.mlp.{part}" for part in up)),
                    shard=True),
        "block": Layer((at,)),
        "embedding": Embedding(),
        "head": Layer(("head", table), shard=True),
        "loss": OfLoss(),
        "model": Model(),
    }
    return made


# --- differences ------------------------------------------------------------------------------------------------------

def differences(comm: Communicator, config: dict, names: list[str] | None = None, every: int = 0, ways: int = 1,
                **options: Any) -> dict:
    """For each program, x's and each of its parameters' gradient as this rank has it, and measured slopes of the value:
    along `ways` random directions, and for every entry of arrays of at most `every` entries."""
    split, found = Split(comm, ModelConfig.from_dict(config), **options), {}
    made = programs(split.config)
    for name in names or made:
        program, gradients = made[name], Gradients(split.weights)
        x = program.x(split)
        dx = program.back(split, x, gradients)
        pieces = split.pieces(gradients)
        assert all(not piece.any() for other, piece in pieces.items() if not used(program, other)), name
        found[name] = {"pieces": {p: piece for p, piece in pieces.items() if used(program, p)},
                       "slopes": {p: measured(split, program, x, p, every, ways) for p in pieces if used(program, p)}}
        if dx is not None:
            found[name]["pieces"]["x"] = dx
            found[name]["slopes"]["x"] = measured(split, program, x, "x", every, ways)
    return found


def used(program: Program, parameter: str) -> bool:
    return any(parameter.startswith(site + ".") for site in program.sites)


def measured(split: Split, program: Program, x: Any, name: str, every: int, ways: int) -> list:
    """(direction, slope) pairs of one array; a direction of one entry is its index."""
    shape = x.shape if name == "x" else split.placement.parameter(name).shape
    entries = [list(at) for at in np.ndindex(*shape)] if np.prod(shape) <= every else []
    with unchecked():
        return [(which, slope(split, program, x, name, direction(shape, which))) for which in [*range(ways), *entries]]


@contextmanager
def unchecked(really: bool = True) -> Iterator[None]:
    """Without the checks of shapes, which the first pass has met and which take most of the time of a small one."""
    jaxtyping.config.update("jaxtyping_disable", really)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


def direction(shape: tuple[int, ...], which: int | list[int]) -> np.ndarray:
    """Of length 1: random by a seed, or along one entry."""
    if isinstance(which, int):
        way = drawn(100 + which, *shape)
        return way / np.linalg.norm(way)
    way = np.zeros(shape)
    way[tuple(which)] = 1.0
    return way


def slope(split: Split, program: Program, x: Any, name: str, way: np.ndarray) -> float:
    """d value / d (array along `way`), by values at ±1 and ±2 steps."""
    held, own = (x, way) if name == "x" else (split.piece(name), split.part_of(way, name))
    before, values = held.copy(), []
    for steps in (1, -1, 2, -2):
        held[...] = before + steps * STEP * own
        values.append(program.value(split, x))
    held[...] = before
    return (8 * (values[0] - values[1]) - (values[2] - values[3])) / (12 * STEP)


# --- what is compared, on the test's own side -------------------------------------------------------------------------

def assembled(pieces: list[dict[str, np.ndarray]], placement: Placement) -> dict[str, np.ndarray]:
    """Every rank's pieces laid into the whole arrays; where several ranks hold a number, theirs are the same bits."""
    whole = {}
    for name in pieces[0]:
        if name == "x":
            assert all(np.array_equal(p[name], pieces[0][name]) for p in pieces), "x: the ranks part ways"
            whole[name] = pieces[0][name]
            continue
        parameter = placement.parameter(name)
        whole[name] = np.full(parameter.shape, np.nan)
        for rank, held in enumerate(pieces):
            place = whole[name][placement.slices(parameter, rank)]
            known = ~np.isnan(place)
            assert np.array_equal(place[known], held[name][known]), f"{name}: rank {rank} parts ways"
            place[...] = held[name]
        assert not np.isnan(whole[name]).any(), f"{name}: nobody has all of it"
    return whole


def wrong(ranks: list[dict], placement: Placement) -> list[str]:
    """Each gradient that is not the slope measured, in words; and each that is zero, which would prove nothing."""
    complaints = []
    for program, found in ranks[0].items():
        whole = assembled([rank[program]["pieces"] for rank in ranks], placement)
        for name, slopes in found["slopes"].items():
            scale = np.abs(whole[name]).max()
            same_for_all_keys = name.endswith("attention.k.bias") and placement.config.rotary is None      # q · b
            if scale < 1e-6 and not same_for_all_keys:
                complaints.append(f"{program}, {name}: no gradient to compare")
            for which, numeric in slopes:
                exact = float((whole[name] * direction(whole[name].shape, which)).sum())
                if not abs(exact - numeric) <= CLOSE * max(1.0, scale):
                    complaints.append(f"{program}, {name} along {which}: {exact:.12g}, measured {numeric:.12g}, "
                                      f"ratio {exact / numeric if numeric else np.nan:.6g}")
    return complaints
