"""Which terms of a memory grow with the parameters, which with the batch, and which with both.

Nothing is looked up: the same rows are computed again for a model twice as wide, for twice the sequences, for sequences
twice as long, and compared. Total memory isn't proportional to parameters × batch: it is a sum of three kinds of terms.
"""
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, get_args

from minitp.plan import memory
from minitp.plan.job import Inference, Job
from minitp.plan.layout import Layout, Place
from minitp.plan.model import PlannedModel
from minitp.plan.rows import Row

Grows = Literal["with parameters", "with batch", "with both", "with neither"]


@dataclass(frozen=True)
class Growth:
    """A row and by what its bytes are multiplied when one input doubles.

    width    hidden size, heads and feed-forward width (about 4 times the parameters of a layer)
    batch    sequences at once
    tokens   of each sequence
    """
    row: Row
    width: float
    batch: float
    tokens: float

    @property
    def grows(self) -> Grows:
        wider, more = self.width > 1, self.batch > 1
        if wider and more:
            return "with both"
        return "with parameters" if wider else "with batch" if more else "with neither"


def growth(model: PlannedModel, layout: Layout, job: Job, place: Place | None = None) -> list[Growth]:
    """Each row of a rank (the fullest, if none is named) with its growth."""
    place = memory.fullest(model, layout, job)[0] if place is None else place
    doubled = [_by_term(wider(model), layout, job, place), _by_term(model, layout, more_sequences(job), place),
               _by_term(model, layout, longer(job), place)]
    return [Growth(row, *(by_term.get((row.kind, row.term), 0) / row.bytes for by_term in doubled))
            for row in memory.rows(model, layout, job, place)]


def by_growth(grown: Iterable[Growth]) -> dict[Grows, int]:
    """Bytes of the terms of each kind: total = parameters' + batch's + that of their product + the rest."""
    held = dict.fromkeys(get_args(Grows), 0)
    for one in grown:
        held[one.grows] += one.row.bytes
    return held


def wider(model: PlannedModel) -> PlannedModel:
    """The same model at twice the width: hidden size, heads and feed-forward width; the head size stays."""
    c = model.config
    return replace(model, config=replace(c, hidden=2 * c.hidden, heads=2 * c.heads, kv_heads=2 * c.kv_heads,
                                         ffn=2 * c.ffn))


def more_sequences(job: Job) -> Job:
    """Twice the sequences at once."""
    if isinstance(job, Inference):
        return replace(job, batch=2 * job.batch)
    return replace(job, batch=2 * job.batch, micro_batch=2 * job.micro_batch)


def longer(job: Job) -> Job:
    """Sequences of twice the tokens."""
    if isinstance(job, Inference):
        return replace(job, prompt=2 * job.prompt, new=2 * job.new)
    return replace(job, seq=2 * job.seq)


def _by_term(model: PlannedModel, layout: Layout, job: Job, place: Place) -> dict[tuple[str, str], int]:
    return {(row.kind, row.term): row.bytes for row in memory.rows(model, layout, job, place)}
