"""Shards: every parameter, its cut, who holds what, how often, and the bytes of each rank. All from the placement."""
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import prod

from minitp.placement import Parameter, Placement
from minitp.trace.wording import count, dimensions, kind_of_site, size
from minitp.view.weights import cut_name

KINDS = ("embedding", "attention", "mlp", "norm", "head")


def repeated(placement: Placement) -> Iterator[tuple[Parameter, int]]:
    """Each parameter of the first layer and outside the layers, and how often the model has one like it."""
    for parameter in placement.parameters:
        layer = parameter.name.startswith("layers.")
        if not layer or parameter.name.startswith("layers.0."):
            yield parameter, placement.config.layers if layer else 1


def kind_of(parameter: Parameter) -> str:
    """Which part of the model a parameter belongs to: one of KINDS."""
    parts = parameter.name.split(".")
    if parts[-2].endswith("norm"):
        return "norm"
    return "embedding" if parts[0] == "positions" else parts[2] if parts[0] == "layers" else parts[0]


# --- the whole model -------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Totals:
    """Bytes of every rank by kind: held[kind][rank]; `model`: of the model once."""
    held: dict[str, tuple[int, ...]]
    model: int

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(map(sum, zip(*self.held.values(), strict=True)))

    @property
    def evenness(self) -> float:
        """The mean rank's bytes as a share of the fullest one's: 1 is perfectly even."""
        return sum(self.ranks) / len(self.ranks) / max(self.ranks)

    @property
    def copies(self) -> float:
        """How often the model is held, on average over its numbers."""
        return sum(self.ranks) / self.model

    def sentence(self) -> str:
        low, high = min(self.ranks), max(self.ranks)
        each = f"each holds {size(high)}" if low == high else f"they hold from {size(low)} to {size(high)}"
        alone = len(self.ranks) == 1
        return (f"{size(self.model)} of weights on {count(len(self.ranks), 'rank')}: "
                + ("all of them. " if alone else f"{each}; the mean is {100 * self.evenness:.1f} % of the fullest. ")
                + ("" if alone else "Nearly every number is held once." if self.copies < 1.005 else
                   f"A number is held {self.copies:.3g} times on average."))


def totals(placement: Placement, item_bytes: int) -> Totals:
    held = {kind: [0] * placement.ranks for kind in KINDS}
    for parameter, times in repeated(placement):
        for rank in range(placement.ranks):
            held[kind_of(parameter)][rank] += prod(placement.shape(parameter, rank)) * times * item_bytes
    model = sum(parameter.size * times for parameter, times in repeated(placement)) * item_bytes
    return Totals({kind: tuple(bytes_) for kind, bytes_ in held.items() if any(bytes_)}, model)


def total_rows(sums: Totals) -> list[dict[str, str | int]]:
    return [{"rank": rank, **{kind: size(sums.held[kind][rank]) for kind in sums.held}, "together": size(together),
             "exact bytes": together} for rank, together in enumerate(sums.ranks)]


@dataclass(frozen=True)
class Trained:
    """Bytes of every rank in training: the weights in the chosen precision, their gradients, AdamW's two moments, and
    below 4 bytes a number a master copy of the weights. What passes keep for their backward is not among them."""
    weights: tuple[int, ...]
    gradients: tuple[int, ...]
    moments: tuple[int, ...]
    master: tuple[int, ...]

    def rows(self) -> list[dict[str, str | int]]:
        kinds = {"weights": self.weights, "gradients": self.gradients, "AdamW's two moments": self.moments,
                 **({"master weights": self.master} if any(self.master) else {})}
        return [{"rank": rank, **{kind: size(held[rank]) for kind, held in kinds.items()},
                 "together": size(sum(held[rank] for held in kinds.values()))} for rank in range(len(self.weights))]


def trained(placement: Placement, item_bytes: int) -> Trained:
    """What training adds to the weights; gradients and moments are kept in 4 bytes a number at least."""
    numbers = [placement.elements(rank) for rank in range(placement.ranks)]
    kept = max(item_bytes, 4)
    return Trained(*(tuple(n * each for n in numbers) for each in (
        item_bytes, kept, 2 * kept, kept if item_bytes < kept else 0)))


# --- one parameter ---------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Band:
    """Indices start … stop - 1 along the cut axis, and the ranks that hold them."""
    start: int
    stop: int
    ranks: tuple[int, ...]


def bands(placement: Placement, parameter: Parameter) -> tuple[Band, ...]:
    """A parameter along its cut axis, parted wherever another rank begins to hold it; one band where it is whole."""
    axis = parameter.cut_axis
    if axis is None:
        return (Band(0, parameter.shape[0], tuple(range(placement.ranks))),)
    held = [placement.slices(parameter, rank)[axis] for rank in range(placement.ranks)]
    edges = sorted({edge for piece in held if piece.stop > piece.start for edge in (piece.start, piece.stop)})
    return tuple(Band(start, stop, tuple(rank for rank, piece in enumerate(held)
                                         if piece.start <= start and stop <= piece.stop))
                 for start, stop in pairwise(edges))


def holders(ranks: tuple[int, ...], of: int) -> str:
    """rank 0; ranks 0 and 1; ranks 0, 1 and 2; all 4 ranks."""
    if len(ranks) == of and of > 1:
        return f"all {of} ranks"
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"


def piece_in_words(placement: Placement, parameter: Parameter, rank: int) -> str:
    """What `rank` holds of it: all, nothing, or heads 3–4 of 9."""
    if parameter.cut_axis is None:
        return "all"
    piece = placement.slices(parameter, rank)[parameter.cut_axis]
    return "nothing" if piece.stop <= piece.start else span(placement, parameter, piece.start, piece.stop)


def span(placement: Placement, parameter: Parameter, start: int, stop: int) -> str:
    """A part of the cut axis by its name: vocab 0–12,287 of 49,152; heads by their numbers: kv head 1 of 3."""
    axis, whole = parameter.axes[parameter.cut_axis or 0], parameter.shape[parameter.cut_axis or 0]
    name = axis.replace("_", " ")
    if axis in ("head", "kv_head"):
        start, stop, whole = (n // placement.config.head_size for n in (start, stop, whole))
        name += "s" if stop - start > 1 else ""
    numbers = f"{start:,}–{stop - 1:,}" if stop - start > 1 else f"{start:,}"
    return f"{name} {numbers} of {whole:,}"


def band_rows(placement: Placement, parameter: Parameter, item_bytes: int) -> list[dict[str, str]]:
    """The bands of one parameter as a table."""
    axis = parameter.cut_axis
    others = parameter.size // parameter.shape[axis or 0]
    return [{"part": "all" if axis is None else span(placement, parameter, band.start, band.stop),
             "held by": holders(band.ranks, placement.ranks), "copies": str(len(band.ranks)),
             "bytes of one copy": size((band.stop - band.start) * others * item_bytes)}
            for band in bands(placement, parameter)]


def sentence(placement: Placement, parameter: Parameter) -> str:
    """How one parameter is cut, and what that makes of its gradient."""
    cut = cut_name(parameter)
    axes = " × ".join(parameter.axes)
    said = f"{dimensions(parameter.shape)} numbers, stored {axes}. "
    if parameter.cut_axis is None:
        return said + f"Whole: {holders(tuple(range(placement.ranks)), placement.ranks)} " \
                      f"{'hold' if placement.ranks > 1 else 'holds'} all of it, and so its gradient is whole."
    how = {"vocab": "along the vocabulary, the rows of the table", "hidden": "along hidden, the columns of the table",
           "heads": "by heads, which are columns of its transpose", "columns": "by columns of its transpose",
           "rows": "by rows of its transpose"}[cut]
    said += f"Cut {how}. "
    shared = [band for band in bands(placement, parameter) if len(band.ranks) > 1]
    if shared:
        said += (f"{count(len(shared), 'part')} of it {'is' if len(shared) == 1 else 'are'} held more than once (the "
                 f"first by {holders(shared[0].ranks, placement.ranks)}): query heads on several ranks need the same "
                 "kv head. The copies' gradients are terms of one sum.")
    else:
        said += "Each number is on one rank, and so is its gradient."
    return said


def parameter_rows(placement: Placement, item_bytes: int, rank: int, every_layer: bool = False
                   ) -> list[dict[str, str | int]]:
    """Every parameter as a row; those of all layers as one, unless each is asked for. `rank`: whose piece is named."""
    chosen = [(p, 1) for p in placement.parameters] if every_layer else list(repeated(placement))
    made: list[dict[str, str | int]] = []
    for parameter, times in chosen:
        sizes = [prod(placement.shape(parameter, r)) * item_bytes for r in range(placement.ranks)]
        low, high = size(min(sizes)), size(max(sizes))
        made.append({
            "parameter": parameter.name if every_layer else kind_of_site(parameter.name), "layers": times,
            "shape": dimensions(parameter.shape), "axes": " × ".join(parameter.axes), "cut": cut_name(parameter),
            f"rank {rank} holds": piece_in_words(placement, parameter, rank),
            "bytes per rank": high if low == high else f"{low} – {high}",
            "copies": f"{placement.copies(parameter):.3g}", "gradient": parameter.gradient})
    return made
