"""What comes and goes while a training step runs and has a size that a layout fixes, as terms: for one layer at once.

Libraries add their own (buckets, staging areas of collectives, the allocator's gaps): `memory.UNMODELED` names them.
"""
from collections.abc import Iterator

from minitp.plan.job import Training
from minitp.plan.share import Share
from minitp.plan.terms import Factor, Term, factors, per

ZERO_3 = "Rajbhandari et al. 2020 (ZeRO), section 5.3: a layer's parameters are there while it runs"
ZERO_2 = "Rajbhandari et al. 2020 (ZeRO), section 5.2: a layer's gradients are whole until they are reduced"
RING = "Liu et al. 2023 (Ring Attention), section 3: the block in use and the block that arrives"
PIPELINE = ("Narayanan et al. 2021, section 4.1: b·s·h each way; what was sent is freed (Korthikanti et al. 2022, "
            "appendix B)")
TENSOR = "Shoeybi et al. 2019, section 3: the sum of the ranks' terms, b·s·h"
GATHERED = "Korthikanti et al. 2022, section 4.2.2: a column cut's input, gathered over the sequence"


def training(share: Share, job: Training) -> Iterator[Term]:
    """Buffers of the collectives and messages of this layout."""
    layout, c, precision = share.layout, share.config, job.precision
    width = per(precision.activations)
    tokens = factors(("b", job.micro_batch), ("s_c", share.sequence(job.seq)))
    if layout.tp > 1:
        name, source = ("one layer's input, gathered", GATHERED) if layout.sequence else ("one all-reduce", TENSOR)
        yield Term("buffers", name, (width, *tokens, Factor("h", c.hidden)), source)
    if layout.cp > 1 and share.whole_layers:
        yield Term("buffers", "k and v passing round the ring", (
            per(2), per(2), width, *tokens, Factor("k", share.widths.kv_heads), Factor("e", c.head_size)), RING)
    if layout.pp > 1:
        stream = (width, *factors(("b", job.micro_batch), ("s_t", share.residual(job.seq)), ("h", c.hidden)))
        neighbors = 1 if layout.chunks == 1 and (share.first or share.last) else 2
        yield Term("buffers", "messages to and from other stages", (per(neighbors), *stream), PIPELINE)
    largest = max(part.total for part in share.parts.values())
    if layout.zero == 3 and layout.dp > 1:
        yield Term("buffers", "one layer's weights, gathered", (per(precision.weights), Factor("N", largest)), ZERO_3,
                   "the largest part of the model that this rank computes with")
    if layout.zero >= 2 and layout.dp > 1:
        yield Term("buffers", "one layer's gradients, whole", (per(precision.gradients), Factor("N", largest)), ZERO_2)
