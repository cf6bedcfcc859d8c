"""What comes and goes while a training step runs and has a size that a layout fixes, as terms: for one layer at once.

Libraries add their own (buckets, staging areas of collectives, the allocator's gaps): `memory.UNMODELED` names them.
"""
from collections.abc import Iterator

from minitp.plan.job import Training
from minitp.plan.share import Share
from minitp.plan.terms import Factor, Term, per

ZERO_3 = "Rajbhandari et al. 2020 (ZeRO), section 5.3: a layer's parameters are there while it runs"
ZERO_2 = "Rajbhandari et al. 2020 (ZeRO), section 5.2: a layer's gradients are whole until they are reduced"
RING = "Liu et al. 2023 (Ring Attention), section 3: the block in use and the block that arrives"
PIPELINE = "Narayanan et al. 2021, section 4.1: b·s·h each way; what was sent is freed (Korthikanti et al. 2022)"
TENSOR = "Shoeybi et al. 2019, section 3: the sum of the ranks' terms, b·s·h"
GATHERED = "Korthikanti et al. 2022, section 4.2.2: a column cut's input, gathered over the sequence"

LARGEST = "of the largest part of the model that this rank computes with"


def training(share: Share, job: Training) -> Iterator[Term]:
    """Buffers of the collectives and messages of this layout."""
    layout, precision = share.layout, job.precision
    b = Factor("b", job.micro_batch)
    neighbors = 1 if layout.chunks == 1 and (share.first or share.last) else 2
    yield from passing(share, precision.activations, b, job.seq, neighbors)
    parts = [part.total for where, part in share.parts.items() if where != "layer" or share.whole_layers]
    largest = Factor("N", max(parts, default=0))
    if layout.zero == 3 and layout.dp > 1:
        yield Term("buffers", "one layer's weights, gathered", (per(precision.weights), largest), ZERO_3, LARGEST)
    if layout.zero >= 2 and layout.dp > 1:
        yield Term("buffers", "one layer's gradients, whole", (per(precision.gradients), largest), ZERO_2, LARGEST)


def passing(share: Share, width: float, b: Factor, tokens: int, neighbors: int) -> Iterator[Term]:
    """What passes between ranks on a pass over `tokens` tokens of `b` sequences: over tp, around cp, along pp.

    `width`: bytes per number; `neighbors`: stages that a message comes from, or goes to, at once.
    """
    layout, c = share.layout, share.config
    h = Factor("h", c.hidden)
    mine = (per(width), b, Factor("s_c", share.sequence(tokens)))
    if layout.tp > 1:
        name, source = ("one layer's input, gathered", GATHERED) if layout.sequence else ("one all-reduce", TENSOR)
        yield Term("buffers", name, (*mine, h), source)
    if layout.cp > 1 and share.whole_layers:
        yield Term("buffers", "k and v passing round the ring", (
            per(2), per(2), *mine, Factor("k", share.widths.kv_heads), Factor("e", c.head_size)), RING)
    if layout.pp > 1:
        yield Term("buffers", "messages to and from other stages", (
            per(neighbors), per(width), b, Factor("s_t", share.residual(tokens)), h), PIPELINE)
