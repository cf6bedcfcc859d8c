"""One parameter as a picture: the whole matrix, every rank's piece of it, and its numbers where a trace holds them.

A weight is stored (out, in) and drawn as its transpose, in × out, so that a cut by columns looks like columns; a table
(vocabulary or positions × hidden) is drawn as it is stored.
"""
from dataclasses import dataclass

import numpy as np

from minitp.placement import Parameter, Placement
from minitp.trace.file import Trace
from minitp.trace.kept import KeptArray
from minitp.view.packing import blocks
from minitp.view.shards import Band, bands, holders

CELLS = 64                             # of a piece, in either direction: more would be smaller than a pixel
SIGNED = 1024                          # numbers of a matrix up to which a dash marks the negative ones


@dataclass(frozen=True)
class Piece:
    """A rectangle of the drawn matrix that one rank holds, as fractions of its size from the top left.

    Where several ranks hold the same numbers each has a stripe of them; `holders` are all of them.
    cells    what is drawn of its numbers: exact ones, or the largest magnitude of each block; None: not known
    """
    rank: int
    holders: tuple[int, ...]
    across: tuple[float, float]
    down: tuple[float, float]
    cells: np.ndarray | None = None
    exact: bool = False


@dataclass(frozen=True)
class Picture:
    """`shape` is (down, across) as drawn, `axes` their names; `cut` is the drawn axis that is cut: 0 down, 1 across."""
    name: str
    shape: tuple[int, int]
    axes: tuple[str, str]
    cut: int | None
    ranks: int
    bands: tuple[Band, ...]
    pieces: tuple[Piece, ...]

    @property
    def largest(self) -> float:
        """The largest magnitude of all numbers: one scale for all pieces. 0 where no numbers are known."""
        found = [np.abs(piece.cells[np.isfinite(piece.cells)]).max(initial=0)
                 for piece in self.pieces if piece.cells is not None]
        return float(max(found, default=0.0))

    @property
    def known(self) -> bool:
        return any(piece.cells is not None for piece in self.pieces)

    @property
    def blocks(self) -> bool:
        """Whether a cell stands for a block of numbers."""
        return any(piece.cells is not None and not piece.exact for piece in self.pieces)

    @property
    def signed(self) -> bool:
        """Whether every number is there and they are few enough to mark the negative ones."""
        return self.known and not self.blocks and self.shape[0] * self.shape[1] <= SIGNED


def picture(placement: Placement, parameter: Parameter, arrays: dict[int, KeptArray] | None = None) -> Picture:
    """`arrays`: rank → what a trace kept of its piece, as it is stored."""
    table = parameter.name.split(".")[0] in ("embedding", "positions")
    turned = len(parameter.shape) == 2 and not table
    shape = parameter.shape if len(parameter.shape) == 2 else (1, *parameter.shape)
    axes = parameter.axes if len(parameter.shape) == 2 else ("", *parameter.axes)
    cut = None if parameter.cut_axis is None else parameter.cut_axis + (len(parameter.shape) == 1)
    parts = bands(placement, parameter)
    held = {rank: placement.slices(parameter, rank)[parameter.cut_axis or 0] for rank in range(placement.ranks)}
    pieces = [piece for band in parts
              for piece in _stripes(parameter, band, _numbers(parameter, band, held, arrays or {}))]
    if turned:
        shape, axes, cut = shape[::-1], axes[::-1], None if cut is None else 1 - cut
        pieces = [_transposed(piece) for piece in pieces]
    return Picture(parameter.name, (shape[0], shape[1]), (axes[0], axes[1]), cut, placement.ranks, parts, tuple(pieces))


def _stripes(parameter: Parameter, band: Band, numbers: tuple[np.ndarray, bool] | None) -> list[Piece]:
    """A band as stored (rows down, columns across), shared out among its holders along the other axis."""
    if parameter.cut_axis is None:                         # whole: nobody's own
        return [_piece(-1, band, (0.0, 1.0), (0.0, 1.0), numbers)]
    whole, shared = parameter.shape[parameter.cut_axis], len(band.ranks)
    along = band.start / whole, band.stop / whole
    down_is_cut = parameter.cut_axis == 0 and len(parameter.shape) == 2
    made = []
    for place, rank in enumerate(band.ranks):
        other = place / shared, (place + 1) / shared
        part = None if numbers is None else (_part(numbers[0], place, shared, 1 if down_is_cut else 0), numbers[1])
        across, down = (other, along) if down_is_cut else (along, other)
        made.append(_piece(rank, band, across, down, part))
    return made


def _piece(rank: int, band: Band, across: tuple[float, float], down: tuple[float, float],
           numbers: tuple[np.ndarray, bool] | None) -> Piece:
    if numbers is None or not numbers[0].size:
        return Piece(rank, band.ranks, across, down)
    matrix, exact = numbers
    if exact and max(matrix.shape) <= CELLS:
        return Piece(rank, band.ranks, across, down, matrix, True)
    return Piece(rank, band.ranks, across, down, blocks(matrix, CELLS, CELLS).numbers)


def _part(matrix: np.ndarray, place: int, parts: int, axis: int) -> np.ndarray:
    return np.array_split(matrix, parts, axis=axis)[place]


def _transposed(piece: Piece) -> Piece:
    cells = None if piece.cells is None else piece.cells.T
    return Piece(piece.rank, piece.holders, piece.down, piece.across, cells, piece.exact)


def _numbers(parameter: Parameter, band: Band, held: dict[int, slice], arrays: dict[int, KeptArray]
             ) -> tuple[np.ndarray, bool] | None:
    """The numbers of a band, (rows, columns or blocks of them), from the first of its ranks that has them.

    Of a piece that is kept as blocks a band has those whose middle lies in it.
    """
    axis = parameter.cut_axis
    for rank in band.ranks:
        kept, own = arrays.get(rank), held[rank]
        if kept is None:
            continue
        if axis is None or (own.start, own.stop) == (band.start, band.stop):
            return kept.cells, kept.whole
        along = axis if len(parameter.shape) == 2 else 1
        starts = own.start + kept.block[along] * np.arange(kept.cells.shape[along])
        middles = (starts + np.minimum(starts + kept.block[along], own.stop) - 1) / 2
        return np.compress((band.start <= middles) & (middles < band.stop), kept.cells, axis=along), kept.whole
    return None


def kept_pieces(trace: Trace, placement: Placement, parameter: Parameter) -> dict[int, KeptArray]:
    """Rank → its piece of a parameter as the trace has it; empty where no numbers, or none that fit, were recorded."""
    found = {rank: trace.weight(rank, parameter.name) for rank in range(placement.ranks)}
    return {rank: kept for rank, kept in found.items()
            if kept is not None and kept.cells.size and kept.shape == placement.shape(parameter, rank)}


def tensor_words(picture: Picture) -> str:
    """The alternative text."""
    numbers = ("its numbers as shades of the owners' hues" if picture.known
               else "as outlines, for its numbers are not on record")
    parts = ", ".join(f"{(band.stop - band.start) / sum(b.stop - b.start for b in picture.bands):.0%} held by "
                      f"{holders(band.ranks, picture.ranks)}" for band in picture.bands[:8])
    more = f" and {len(picture.bands) - 8} more parts" if len(picture.bands) > 8 else ""
    return f"{picture.name}, {picture.shape[0]:,} by {picture.shape[1]:,}, {numbers}: {parts}{more}."
