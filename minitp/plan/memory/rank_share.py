"""One rank's share of a model and of a training, in the sizes that formulas multiply. Counts come from the placement.

Asking is cached by what an answer depends on: of a search's hundreds of layouts only what is new is counted.
"""
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

from minitp.config import ModelConfig
from minitp.cut import Cut
from minitp.plan.formula import Number
from minitp.plan.job import Inference, Job, Training
from minitp.plan.layout import Layout, Place
from minitp.plan.model import Held, PlannedModel, Where
from minitp.plan.schedule import held as held_by_chunk

Embedding = Literal["vocab", "hidden"]
CutRule = Literal["even", "balanced"]


class Widths(NamedTuple):
    """What a rank of a tp group holds of each axis that is cut; `vocab`: columns of its logits."""
    heads: int
    kv_heads: int
    ffn: int
    vocab: int


@dataclass(frozen=True)
class Share:
    """What the rank at `place` holds of a model, whatever the job.

    parts   numbers of the embedding, of ONE layer, the last norm and the head, where its stage has them
    layers  of each of its chunks
    experts of a layer's experts those of this rank
    """
    model: PlannedModel
    layout: Layout
    place: Place
    parts: dict[Where, Held]
    layers: tuple[int, ...]
    widths: Widths
    experts: int

    @property
    def config(self) -> ModelConfig:
        return self.model.config

    @property
    def first(self) -> bool:
        return self.place.pp == 0

    @property
    def last(self) -> bool:
        return self.place.pp == self.layout.pp - 1

    @property
    def whole_layers(self) -> int:
        return sum(self.layers)

    @property
    def kv_copied(self) -> bool:
        """Whether ranks of the tp group hold copies of kv heads."""
        return self.model.cuts(self.layout.tp, self.layout.embedding, self.layout.cut).kv_copied

    def symbols(self, job: Job) -> dict[str, Number]:
        """What the letters of formulas stand for on this rank (see `terms.SYMBOLS`)."""
        c, w = self.config, self.widths
        tokens, batch = (job.seq, job.micro_batch) if isinstance(job, Training) else (job.prompt, self.dealt(job))
        known: dict[str, Number] = {
            "b": batch, "s": tokens, "s_c": self.sequence(tokens), "s_t": self.residual(tokens), "h": c.hidden,
            "a": w.heads, "k": w.kv_heads, "e": c.head_size, "F": w.ffn, "V": w.vocab, "V_all": c.vocab,
            "A": self.model.active, "E": self.model.experts, "E_r": self.experts, "E_p": self.layout.ep,
            "L": self.whole_layers}
        if isinstance(job, Training):
            return known
        tokens = self.of_a_pass(job)
        return known | {"T": self.sequence(job.context), "n": tokens, "n_t": self._cut(tokens)}

    def dealt(self, job: Inference) -> int:
        """Sequences of a generation that this rank's replica works on."""
        return len(Cut(job.batch, self.layout.dp).of(self.place.dp))

    def of_a_pass(self, job: Inference) -> int:
        """Tokens of a generation that this rank works on at once, at most: a piece of the prompts, and where that is
        less a new token of each sequence."""
        sequences = self.dealt(job)
        return max(min(sequences * self.sequence(job.prompt), self.sequence(job.prefill_tokens)), sequences)

    def sequence(self, tokens: int) -> int:
        """Of a sequence's tokens those of this rank: context parallelism cuts them."""
        return len(Cut(tokens, self.layout.cp).of(self.place.cp))

    def residual(self, tokens: int) -> int:
        """Of those the ones whose residual stream, norms and dropout this rank has: sequence parallelism cuts them."""
        return self._cut(self.sequence(tokens))

    def _cut(self, tokens: int) -> int:
        return len(Cut(tokens, self.layout.tp).of(self.place.tp)) if self.layout.sequence else tokens

    def waiting(self, job: Training) -> tuple[int, ...]:
        """Micro-batches of each chunk that wait for their backward pass when this stage holds most."""
        layout = self.layout
        return held_by_chunk(layout.schedule, layout.pp, job.micro_batches(layout.dp), layout.chunks, self.place.pp,
                             self.layers)


@lru_cache(maxsize=8192)
def share(model: PlannedModel, layout: Layout, place: Place) -> Share:
    """Asked of the placement and of the layout."""
    expert_rank = (place.dp * layout.cp + place.cp) % layout.ep
    parts = dict(model.on_stage(layout, place))
    parts["layer"] = model.held("layer", layout.tp, place.tp, layout.ep, expert_rank, layout.embedding, layout.cut)
    layers = tuple(map(len, layout.layers_of(model.config.layers, place.pp)))
    return Share(model, layout, place, parts, layers, widths(model, layout.tp, place.tp, layout.embedding, layout.cut),
                 len(Cut(model.experts, layout.ep).of(expert_rank)))


@lru_cache(maxsize=4096)
def widths(model: PlannedModel, tp: int, shard: int, embedding: Embedding, cut: CutRule) -> Widths:
    """The logits of a tied table that is cut along hidden are partial sums: every column."""
    placement = model.cuts(tp, embedding, cut)
    partial = model.config.tied and embedding == "hidden"
    return Widths(len(placement.heads.of(shard)), len(placement.kv_heads(shard)), len(placement.ffn.of(shard)),
                  model.config.vocab if partial else len(placement.vocab.of(shard)))


@lru_cache(maxsize=1024)
def shards(model: PlannedModel, tp: int, embedding: Embedding, cut: CutRule) -> tuple[int, ...]:
    """The first rank of a tp group of each kind: ranks with equally much of every axis hold equally much."""
    placement = model.cuts(tp, embedding, cut)
    cuts = (placement.heads, placement.ffn, placement.vocab, placement.hidden)
    first: dict[tuple[int, ...], int] = {}
    for rank in range(tp):
        first.setdefault((*(len(cut.of(rank)) for cut in cuts), len(placement.kv_heads(rank))), rank)
    return tuple(first.values())
