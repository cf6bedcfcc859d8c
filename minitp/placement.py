"""Who holds what: the one table that loading, layers, caches, checkpoints, plans and pictures ask.

No other code divides a size by the number of ranks. The table has two levels here, and is asked, not built (it
answers for 405B on 16,384 ranks):

  logical   one entry per parameter of the model: its axes, the one that is cut, each rank's slice, its gradient's state
  physical  what a rank keeps in memory: q, k, v in one matrix and gate, up in one matrix, so that each is one product

The third level, where a parameter lies in a file, belongs to the file's format: `minitp.checkpoint`.

Weights are stored (out, in): y = x Wᵀ. "Column-parallel" cuts the columns of Wᵀ, the rows of the stored W: axis 0.
"""
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from math import prod
from typing import Literal

from minitp.config import ModelConfig
from minitp.cut import Cut, Slices
from minitp.errors import ConfigError

GradientState = Literal["shard", "whole", "partial"]


@dataclass(frozen=True)
class Parameter:
    """One parameter of the model, as the mathematics knows it.

    `axes` names each axis: vocab, head, kv_head, ffn, hidden or position. `cut_axis` is the one cut over the ranks,
    None where every rank holds the whole. `gradient` is its gradient's state after a backward pass: shard, whole, or
    partial (kv heads that several ranks hold: the copies' gradients are terms of one sum).
    """
    name: str
    shape: tuple[int, ...]
    axes: tuple[str, ...]
    cut_axis: int | None
    gradient: GradientState

    @property
    def state(self) -> str:
        return "whole" if self.cut_axis is None else f"shard({self.cut_axis})"

    @property
    def size(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True)
class Physical:
    """One array of a rank's memory: its logical parts, stacked along axis 0."""
    name: str
    parts: tuple[Parameter, ...]


@dataclass(frozen=True)
class Placement:
    """The answer to "who holds what" for one model on `ranks` ranks.

    embedding  `vocab`: the table is cut by rows of the vocabulary (Llama 3); `hidden`: by columns (LLaMA 1 and 2)
    cut        `even`: every axis as even as its units allow; `balanced`: the ffn evens out what heads leave uneven
    """
    config: ModelConfig
    ranks: int
    embedding: Literal["vocab", "hidden"] = "vocab"
    cut: Literal["even", "balanced"] = "even"
    _by_name: dict[str, Parameter] = field(init=False, repr=False, compare=False)

    def __post_init__(self):
        if isinstance(self.ranks, bool) or not isinstance(self.ranks, int) or self.ranks < 1:
            raise ConfigError(f"a model is cut over at least 1 rank, got {self.ranks!r}")
        if self.embedding not in ("vocab", "hidden"):
            raise ConfigError(f"the embedding is cut along vocab or hidden, not {self.embedding!r}")
        if self.cut not in ("even", "balanced"):
            raise ConfigError(f"the cut is even or balanced, not {self.cut!r}")
        object.__setattr__(self, "_by_name", {p.name: p for p in self._parameters()})

    # --- the cuts ------------------------------------------------------------------------------------------------

    @cached_property
    def heads(self) -> Cut:
        """Query heads: the unit of cut of attention."""
        return Cut(self.config.heads, self.ranks)

    @cached_property
    def ffn(self) -> Cut:
        return self._balanced_ffn() if self.cut == "balanced" else Cut(self.config.ffn, self.ranks)

    @cached_property
    def vocab(self) -> Cut:
        return Cut(self.config.vocab, self.ranks)

    @cached_property
    def hidden(self) -> Cut:
        return Cut(self.config.hidden, self.ranks)

    def kv_heads(self, rank: int) -> range:
        """The kv heads that `rank`'s query heads need. A cover, not a cut: two ranks may hold the same one."""
        held, group = self.heads.of(rank), self.config.heads_per_kv
        first = held.start // group
        return range(first, -(-held.stop // group) if held else first)

    @cached_property
    def kv_copied(self) -> bool:
        """Whether any kv head is held by more than one rank."""
        group = self.config.heads_per_kv
        return any(self.heads.of(rank).start % group for rank in self.ranks_with_heads)

    @property
    def ranks_with_heads(self) -> range:
        """The ranks that own a query head: the first ones."""
        return range(min(self.ranks, self.config.heads))

    def owners(self, axis: str) -> Cut:
        """A cut axis by the first holder of each index: for what must be counted, or written, once.

        It differs from what ranks hold only where a kv head is held by several: the first of them owns it.
        """
        held = [self.held(axis, rank) for rank in range(self.ranks)]
        size = max(of_rank.stop for of_rank in held)
        return Cut(size, self.ranks, ends=tuple(accumulate((of_rank.stop for of_rank in held), max)))

    def _balanced_ffn(self) -> Cut:
        """Shares of the ffn that even out the bytes of a layer: fill the emptiest ranks first, to one water level."""
        c, ranks = self.config, range(self.ranks)
        held = [(2 * len(self.heads.of(r)) + 2 * len(self.kv_heads(r))) * c.head_size * c.hidden for r in ranks]
        row = (3 if c.gated else 2) * c.hidden
        emptiest = sorted(ranks, key=lambda r: (held[r], r))
        filled, water = self.ranks, sum(held) + row * c.ffn    # what the `filled` emptiest ranks hold in the end
        while water < filled * held[emptiest[filled - 1]]:     # this rank's heads stand above the level: no ffn for it
            filled -= 1
            water -= held[emptiest[filled]]
        shares = [0] * self.ranks
        for rank in emptiest[:filled]:
            shares[rank] = (water - filled * held[rank]) // (filled * row)
        left = c.ffn - sum(shares)                             # rows that reach over the level: the emptiest first
        for rank in sorted(emptiest[:filled], key=lambda r: (held[r] + shares[r] * row, r))[:left]:
            shares[rank] += 1
        return Cut(c.ffn, self.ranks, ends=tuple(accumulate(shares)))

    # --- logical: the parameters -----------------------------------------------------------------------------------

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Every parameter in table order: the order in which they are scattered and saved."""
        return tuple(self._by_name.values())

    def parameter(self, name: str) -> Parameter:
        if name not in self._by_name:
            raise ConfigError(f"the model has no parameter {name!r}")
        return self._by_name[name]

    def slices(self, parameter: Parameter, rank: int) -> Slices:
        """Where `rank`'s piece lies in the whole parameter."""
        slices = [slice(0, size) for size in parameter.shape]
        if parameter.cut_axis is not None:
            held = self.held(parameter.axes[parameter.cut_axis], rank)
            slices[parameter.cut_axis] = slice(held.start, held.stop)
        return tuple(slices)

    def shape(self, parameter: Parameter, rank: int) -> tuple[int, ...]:
        return tuple(s.stop - s.start for s in self.slices(parameter, rank))

    def copies(self, parameter: Parameter) -> float:
        """How often an element is held, on average over the parameter (1 for a clean cut, p for a whole one)."""
        held = sum(prod(self.shape(parameter, rank)) for rank in range(self.ranks))
        return held / parameter.size

    def elements(self, rank: int) -> int:
        """How many numbers of the model `rank` holds."""
        return sum(prod(self.shape(p, rank)) for p in self.parameters)

    def held(self, axis: str, rank: int) -> range:
        """The indices along a named axis that fall to `rank` where that axis is cut."""
        e = self.config.head_size
        match axis:
            case "head":
                held = self.heads.of(rank)
                return range(held.start * e, held.stop * e)
            case "kv_head":
                held = self.kv_heads(rank)
                return range(held.start * e, held.stop * e)
            case "ffn":
                return self.ffn.of(rank)
            case "vocab":
                return self.vocab.of(rank)
            case "hidden":
                return self.hidden.of(rank)
        raise ConfigError(f"the axis {axis!r} is never cut")

    def _parameters(self) -> Iterator[Parameter]:
        c = self.config
        size = {"vocab": c.vocab, "hidden": c.hidden, "head": c.heads * c.head_size,
                "kv_head": c.kv_heads * c.head_size, "ffn": c.ffn, "position": c.positions}

        def cut(name: str, *axes: str, along: int | None = None) -> Parameter:
            partial = along is not None and axes[along] == "kv_head" and self.kv_copied
            gradient: GradientState = "whole" if along is None else "partial" if partial else "shard"
            return Parameter(name, tuple(size[a] for a in axes), axes, along, gradient)

        yield cut("embedding.weight", "vocab", "hidden", along=0 if self.embedding == "vocab" else 1)
        if c.learned_positions:
            yield cut("positions.weight", "position", "hidden")
        for layer in range(c.layers):
            at = f"layers.{layer}"
            yield from self._norm(f"{at}.attention_norm", cut)
            for part, axis in (("q", "head"), ("k", "kv_head"), ("v", "kv_head")):
                yield cut(f"{at}.attention.{part}.weight", axis, "hidden", along=0)
                if c.qkv_bias:
                    yield cut(f"{at}.attention.{part}.bias", axis, along=0)
            yield cut(f"{at}.attention.o.weight", "hidden", "head", along=1)
            if c.attention_bias:
                yield cut(f"{at}.attention.o.bias", "hidden")
            if not c.parallel_block:
                yield from self._norm(f"{at}.mlp_norm", cut)
            for part in ("gate", "up") if c.gated else ("up",):
                yield cut(f"{at}.mlp.{part}.weight", "ffn", "hidden", along=0)
                if c.mlp_bias:
                    yield cut(f"{at}.mlp.{part}.bias", "ffn", along=0)
            yield cut(f"{at}.mlp.down.weight", "hidden", "ffn", along=1)
            if c.mlp_bias:
                yield cut(f"{at}.mlp.down.bias", "hidden")
        yield from self._norm("norm", cut)
        if not c.tied:
            yield cut("head.weight", "vocab", "hidden", along=0)

    def _norm(self, site: str, cut) -> Iterator[Parameter]:
        yield cut(f"{site}.weight", "hidden")
        if self.config.norm == "layer":
            yield cut(f"{site}.bias", "hidden")

    # --- physical: what a rank keeps -------------------------------------------------------------------------------

    @property
    def physical(self) -> tuple[Physical, ...]:
        """The arrays of a rank's `weights`, in table order. A tied head shares `embedding.weight`."""
        fused: dict[str, list[Parameter]] = {}
        for p in self.parameters:
            site, part, kind = p.name.rsplit(".", 2) if p.name.count(".") > 1 else ("", *p.name.split("."))
            if part in ("q", "k", "v"):
                part = "qkv"
            elif part in ("gate", "up") and self.config.gated:
                part = "gate_up"
            fused.setdefault(".".join(filter(None, (site, part, kind))), []).append(p)
        return tuple(Physical(name, tuple(parts)) for name, parts in fused.items())

    def homes(self, rank: int) -> dict[str, tuple[Physical, slice]]:
        """Where each parameter lies in `rank`'s memory: the physical array, and its rows there."""
        homes = {}
        for array in self.physical:
            start = 0
            for part in array.parts:
                stop = start + self.shape(part, rank)[0]
                homes[part.name] = array, slice(start, stop)
                start = stop
        return homes

    def physical_shape(self, array: Physical, rank: int) -> tuple[int, ...]:
        shapes = [self.shape(part, rank) for part in array.parts]
        return (sum(s[0] for s in shapes), *shapes[0][1:])
