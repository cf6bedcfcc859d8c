"""Place the cuts: each matrix by columns, by rows or whole; what must then be synced, why, and what each rank pays.

The syncs are found from the states (`minitp.view.chain`, by the rules of `minitp.comm.states`), the sizes of every
piece from the placement table. Nothing here is a list of known answers: the usual choice is one of 3⁶.

    cut = place(config, ranks=4, choice=Choice(gate_up="rows"), tokens=1, dtype="float32")
    cut.per_layer, cut.per_pass, cut.payload, [(s.site, s.op, s.why) for s in cut.syncs]
"""
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from math import prod

from minitp.comm.states import Split
from minitp.config import ModelConfig
from minitp.errors import ConfigError
from minitp.placement import Parameter, Placement
from minitp.trace.wording import count, dimensions, size
from minitp.view.chain import Link, Step, solve
from minitp.view.cut_words import operations, why
from minitp.view.shards import repeated

ITEM_BYTES = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2}
"""Bytes of one number; minitp computes in the first two."""

PARTS = ("embedding", "attention", "mlp", "head")
"""A pass: the embedding, then attention and MLP once for each layer, then the head."""


@dataclass(frozen=True)
class Choice:
    """How each matrix is held. The defaults are the usual choice: Shoeybi et al. 2019, section 3."""
    qkv: Split = "columns"
    o: Split = "rows"
    gate_up: Split = "columns"
    down: Split = "rows"
    embedding: Split = "rows"                # of the table, vocabulary × hidden: rows are words
    head: Split = "columns"                  # hidden × vocabulary: columns are words


USUAL = Choice()
MATRICES = tuple(field.name for field in fields(Choice))


@dataclass(frozen=True)
class PlacedSync:
    """One collective that the choice needs, `times` per pass. `shape`: of the whole array; `payload`: its bytes."""
    part: str
    site: str
    op: str
    before: str
    after: str
    shape: tuple[int, int, int]
    payload: int
    times: int
    why: str


@dataclass(frozen=True)
class Share:
    """What one rank holds and does: bytes of weights, operations per pass, bytes of KV cache for each token."""
    rank: int
    weights: int
    operations: int
    cache: int


@dataclass(frozen=True)
class CutPlan:
    """A choice on a number of ranks: its chains of states, its syncs, and every rank's share."""
    placement: Placement
    choice: Choice
    tokens: int
    item_bytes: int
    chains: dict[str, tuple[Link, ...]]

    def repeats(self, part: str) -> int:
        """How often a part is passed through in one pass."""
        return self.placement.config.layers if part in ("attention", "mlp") else 1

    def rows(self, part: str) -> int:
        """Rows of activations in a part: the head computes the last token's logits only."""
        return 1 if part == "head" else self.tokens

    @cached_property
    def syncs(self) -> tuple[PlacedSync, ...]:
        """The collectives in the order of the pass, those of a layer once."""
        found = []
        for part, links in self.chains.items():
            for number, link in enumerate(links):
                if link.syncs:
                    shape = (1, self.rows(part), link.width)
                    found.append(PlacedSync(part, site_before(part, links, number), str(link.change), str(link.before),
                                            str(link.taken), shape, prod(shape) * self.item_bytes, self.repeats(part),
                                            why(links, number)))
        return tuple(found)

    @property
    def per_layer(self) -> int:
        return sum(1 for sync in self.syncs if sync.part in ("attention", "mlp"))

    @property
    def per_pass(self) -> int:
        return sum(sync.times for sync in self.syncs)

    @property
    def payload(self) -> int:
        """Bytes of all collectives of one pass."""
        return sum(sync.times * sync.payload for sync in self.syncs)

    @cached_property
    def shares(self) -> tuple[Share, ...]:
        return tuple(Share(rank, self._weights(rank) * self.item_bytes, self._operations(rank), self._cache(rank))
                     for rank in range(self.placement.ranks))

    # --- what one rank holds and does ------------------------------------------------------------------------------

    def _held(self, rank: int) -> Iterator[tuple[Parameter, int, int]]:
        """(parameter of the first layer or outside the layers, numbers of it on this rank, how often it is there)."""
        for parameter, times in repeated(self.placement):
            mine = cut_by(parameter, self.choice)
            yield mine, prod(self.placement.shape(mine, rank)), times

    def _weights(self, rank: int) -> int:
        total = sum(numbers * times for _, numbers, times in self._held(rank))
        if self.placement.config.tied:
            table, head = self._tables()
            if table.cut_axis is not None and table.cut_axis != head.cut_axis:   # the head needs another piece of it
                own = prod(self.placement.shape(table, rank))
                total += prod(self.placement.shape(head, rank)) - (own if head.cut_axis is None else 0)
        return total

    def _tables(self) -> tuple[Parameter, Parameter]:
        """The one table of a tied model as the embedding holds it, and as the head does."""
        table = self.placement.parameter("embedding.weight")
        return cut_by(table, self.choice), cut_by(replace(table, name="head.weight"), self.choice)

    def _operations(self, rank: int) -> int:
        """Multiplications and additions of all products, q kᵀ and scores · v among them; the tokens see one another."""
        c, total = self.placement.config, 0
        for parameter, numbers, times in self._held(rank):
            if len(parameter.shape) > 1 and parameter.name.startswith("layers."):
                total += 2 * self.tokens * numbers * times
        head = self._tables()[1] if c.tied else cut_by(self.placement.parameter("head.weight"), self.choice)
        heads = len(self.placement.heads.of(rank)) if self._heads_cut else c.heads
        return (total + 2 * prod(self.placement.shape(head, rank))
                + 4 * self.tokens ** 2 * c.head_size * heads * c.layers)

    def _cache(self, rank: int) -> int:
        c = self.placement.config
        kv_heads = len(self.placement.kv_heads(rank)) if self._heads_cut else c.kv_heads
        return 2 * kv_heads * c.head_size * c.layers * self.item_bytes

    @cached_property
    def _heads_cut(self) -> bool:
        """Whether a rank attends with its own heads only."""
        return any(link.step.name == "heads" and link.taken.kind == "shard" for link in self.chains["attention"])


def place(config: ModelConfig, ranks: int, choice: Choice = USUAL, tokens: int = 1, dtype: str = "float32") -> CutPlan:
    """What `choice` needs. ConfigError for sizes that can't be, and for blocks whose parts stand side by side."""
    if config.parallel_block:
        raise ConfigError("the cuts are placed in a block of attention, then MLP; this model's stand side by side "
                          "(parallel_block) and share one sync")
    if dtype not in ITEM_BYTES or tokens < 1:
        raise ConfigError(f"a pass has at least 1 token, and its numbers are {', '.join(ITEM_BYTES)}; "
                          f"got {tokens} tokens of {dtype!r:.40}")
    placement = Placement(config, ranks)
    return CutPlan(placement, choice, tokens, ITEM_BYTES[dtype], chains(placement, choice))


def chains(placement: Placement, choice: Choice) -> dict[str, tuple[Link, ...]]:
    """Every part of a pass as a chain of states, from a whole array to a whole array."""
    c = placement.config
    d, e = c.hidden, c.head_size
    up = (2 if c.gated else 1) * c.ffn
    # kv heads that two ranks need are a cover, not a cut: no collective hands the same piece to both, or joins copies
    copied = ("reduce_scatter", "all_gather") if placement.kv_copied else ()
    norm = Step("norm", d, "hidden", rule="norm")
    add = Step("residual", d, "hidden", rule="residual")
    return {
        "embedding": solve(c.vocab, "vocab", (Step("embedding", d, "hidden", choice.embedding), add)),
        "attention": solve(d, "hidden", (
            norm, Step("qkv", (c.heads + 2 * c.kv_heads) * e, "head", choice.qkv),
            Step("heads", c.heads * e, "head", rule="heads", without=copied), Step("o", d, "hidden", choice.o), add)),
        "mlp": solve(d, "hidden", (
            norm, Step("gate_up", up, "ffn", choice.gate_up), Step("activation", c.ffn, "ffn", rule="activation"),
            Step("down", d, "hidden", choice.down), add)),
        "head": solve(d, "hidden", (
            norm, Step("head", c.vocab, "vocab", choice.head), Step("sample", c.vocab, "vocab", rule="sample"))),
    }


def cut_by(parameter: Parameter, choice: Choice) -> Parameter:
    """`parameter` as the choice cuts it. Weights are stored (out, in): columns of y = x Wᵀ are axis 0 of the stored W,
    but the embedding's table is vocabulary × hidden as it is stored. A bias is cut with its columns, else whole."""
    part = parameter.name.split(".")[-2]
    matrix = {"q": "qkv", "k": "qkv", "v": "qkv", "gate": "gate_up", "up": "gate_up"}.get(part, part)
    if matrix not in MATRICES:
        return replace(parameter, cut_axis=None)
    split: Split = getattr(choice, matrix)
    columns, rows = (1, 0) if matrix == "embedding" else (0, 1)
    if split == "columns":
        return replace(parameter, cut_axis=columns)
    return replace(parameter, cut_axis=rows if split == "rows" and len(parameter.shape) > 1 else None)


def site_before(part: str, links: tuple[Link, ...], number: int) -> str:
    """Where in the model the array stands that is changed before step `number`, as traces name it."""
    made_by = links[number - 1].step.name
    if part in ("embedding", "head"):
        return part
    inside = {"heads": "", "activation": "", "norm": ""}.get(made_by, f".{made_by}")
    return f"layers.*.{part}{inside}"


# --- beside the usual choice -----------------------------------------------------------------------------------------

def verdict(plan: CutPlan, usual: CutPlan) -> str:
    """What the choice costs beside the usual one, in a sentence or three."""
    if plan.choice == usual.choice:
        said = [f"This is the usual choice: {count(plan.per_layer, 'sync')} per layer, {plan.per_pass:,} per pass, "
                f"{size(plan.payload)} in them."]
    else:
        said = [f"Your choice needs {_beside(plan.per_layer, usual.per_layer)}: {count(plan.per_pass, 'sync')} per "
                f"pass instead of {usual.per_pass:,}, {size(plan.payload)} in them instead of {size(usual.payload)}."]
        mine, theirs = (max(share.weights for share in p.shares) for p in (plan, usual))
        if abs(mine - theirs) > theirs / 100:
            said.append(f"The fullest rank holds {size(mine)} of weights, with the usual choice {size(theirs)}.")
        mine, theirs = (max(share.operations for share in p.shares) for p in (plan, usual))
        if mine > 1.01 * theirs:
            said.append(f"The busiest rank computes {mine / theirs:.2g} times as much.")
    if plan.placement.ranks == 1:
        said.append("On 1 rank there is nobody to sync with: the calls are made and move nothing.")
    return " ".join(said)


def _beside(mine: int, theirs: int) -> str:
    if mine > theirs:
        return f"{count(mine, 'sync')} per layer where {theirs} do"
    if mine < theirs:
        return f"{count(mine, 'sync')} per layer, {theirs - mine} fewer than usual"
    return f"{count(mine, 'sync')} per layer, as many as usual"


def comparison(plan: CutPlan, usual: CutPlan) -> list[dict[str, str]]:
    """The choice and the usual one, number beside number, as words."""
    def row(what: str, one) -> dict[str, str]:
        return {"": what, "yours": one(plan), "usual": one(usual)}

    def largest(what: str):
        return lambda p: max(getattr(share, what) for share in p.shares)

    return [
        row("syncs per layer", lambda p: f"{p.per_layer}"),
        row("syncs per pass", lambda p: f"{p.per_pass:,}"),
        row("bytes in syncs, per pass", lambda p: size(p.payload)),
        row("weights of the fullest rank", lambda p: size(largest("weights")(p))),
        row("weights of all ranks together", lambda p: size(sum(share.weights for share in p.shares))),
        row("work of the busiest rank, per pass", lambda p: operations(largest("operations")(p))),
        row("KV cache per token, fullest rank", lambda p: size(largest("cache")(p))),
    ]


def sync_rows(plan: CutPlan) -> list[dict[str, str | int]]:
    """Every collective as a row of a table; `why` in full."""
    return [{"where": sync.site, "collective": sync.op.replace("_", "-"), "before": sync.before, "after": sync.after,
             "shape": dimensions(sync.shape), "bytes": size(sync.payload), "per pass": sync.times,
             "bytes per pass": size(sync.payload * sync.times), "why": sync.why} for sync in plan.syncs]


def share_rows(plan: CutPlan) -> list[dict[str, str | int]]:
    return [{"rank": share.rank, "weights": size(share.weights), "work per pass": operations(share.operations),
             "KV cache per token": size(share.cache)} for share in plan.shares]
