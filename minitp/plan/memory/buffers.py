"""What comes and goes while a training step runs and has a size that a layout fixes, as terms: for one layer at once.

Libraries add their own (buckets, staging areas of collectives, the allocator's gaps): `memory.UNMODELED` names them.
"""
from collections.abc import Iterator

from minitp.plan.formula import literal
from minitp.plan.job import Training
from minitp.plan.memory.rank_share import Share
from minitp.plan.memory.states import replicas
from minitp.plan.memory.terms import Symbols, Term

ZERO_3 = "Rajbhandari et al. 2020 (ZeRO), section 5.3: a layer's parameters are there while it runs"
ZERO_2 = "Rajbhandari et al. 2020 (ZeRO), section 5.2: a layer's gradients are whole until they are reduced"
RING = "Liu et al. 2023 (Ring Attention), section 3: the block in use and the block that arrives"
PIPELINE = "Narayanan et al. 2021, section 4.1: b·s·h each way; what was sent is freed (Korthikanti et al. 2022)"
TENSOR = "Shoeybi et al. 2019, section 3: the sum of the ranks' terms, b·s·h"
GATHERED = "Korthikanti et al. 2022, section 4.2.2: a column cut's input, gathered over the sequence"

LARGEST = "of the largest part of the model that this rank computes with and holds a piece of"


def training(share: Share, job: Training) -> Iterator[Term]:
    """Buffers of the collectives and messages of this layout."""
    layout, precision = share.layout, job.precision
    neighbors = 1 if layout.chunks == 1 and (share.first or share.last) else 2
    yield from passing(share, precision.activations, share.symbols(job), neighbors)
    largest = {"N": largest_cut(share)}
    if layout.zero == 3 and largest["N"]:
        yield Term("buffers", "one layer's weights, gathered", f"{literal(precision.weights)} · N", largest, ZERO_3,
                   LARGEST)
    if layout.zero >= 2 and largest["N"]:
        yield Term("buffers", "one layer's gradients, whole", f"{literal(precision.gradients)} · N", largest, ZERO_2,
                   LARGEST)


def largest_cut(share: Share) -> int:
    """Numbers of the largest part of the model, of which ZeRO's cuts leave a rank a piece: what is cut over one rank
    alone is whole anyway and never gathered."""
    dense, experts = replicas(share.layout)
    return max(((part.shard + part.whole) * (dense > 1) + part.expert * (experts > 1)
                for where, part in share.parts.items() if where != "layer" or share.whole_layers), default=0)


def passing(share: Share, width: float, symbols: Symbols, neighbors: int, tokens: str = "b · s_c",
            cut: str = "b · s_t") -> Iterator[Term]:
    """What passes between ranks on a pass over so many `tokens`: over tp, around cp, along pp.

    `width`: bytes per number; `neighbors`: stages that a message comes from, or goes to, at once; `cut`: the tokens
    where sequence parallelism cuts them.
    """
    layout, w = share.layout, literal(width)
    if layout.tp > 1:
        name, source = ("one layer's input, gathered", GATHERED) if layout.sequence else ("one all-reduce", TENSOR)
        yield Term("buffers", name, f"{w} · {tokens} · h", symbols, source)
    if layout.cp > 1 and share.whole_layers:
        yield Term("buffers", "k and v passing round the ring", f"2 · 2 · {w} · {tokens} · k · e", symbols, RING)
    if layout.pp > 1:
        yield Term("buffers", "messages to and from other stages", f"{neighbors} · {w} · {cut} · h", symbols,
                   PIPELINE)
