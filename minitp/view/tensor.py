"""One parameter as a picture: the whole matrix, every rank's piece of it, and its numbers where a trace holds them.

A weight is stored (out, in) and drawn as its transpose, in × out, so that a cut by columns looks like columns; a table
(vocabulary or positions × hidden) is drawn as it is stored.
"""
from dataclasses import dataclass

import numpy as np

from minitp.placement import Parameter, Placement
from minitp.trace.file import Trace
from minitp.view.kept import Kept, KeptArrays
from minitp.view.packing import blocks
from minitp.view.shards import Band, bands

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


def picture(placement: Placement, parameter: Parameter, arrays: dict[int, Kept] | None = None) -> Picture:
    """`arrays`: rank → what a trace kept of its piece, as it is stored."""
    table = parameter.name.split(".")[0] in ("embedding", "positions")
    turned = len(parameter.shape) == 2 and not table
    shape = parameter.shape if len(parameter.shape) == 2 else (1, *parameter.shape)
    axes = parameter.axes if len(parameter.shape) == 2 else ("", *parameter.axes)
    cut = None if parameter.cut_axis is None else parameter.cut_axis + (len(parameter.shape) == 1)
    parts = bands(placement, parameter)
    pieces = [piece for band in parts
              for piece in _stripes(placement, parameter, band, _numbers(placement, parameter, band, arrays or {}))]
    if turned:
        shape, axes, cut = shape[::-1], axes[::-1], None if cut is None else 1 - cut
        pieces = [_transposed(piece) for piece in pieces]
    return Picture(parameter.name, (shape[0], shape[1]), (axes[0], axes[1]), cut, placement.ranks, parts, tuple(pieces))


def _stripes(placement: Placement, parameter: Parameter, band: Band, numbers: tuple[np.ndarray, bool] | None
             ) -> list[Piece]:
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
    return Piece(rank, band.ranks, across, down, blocks(matrix, CELLS).numbers)


def _part(matrix: np.ndarray, place: int, parts: int, axis: int) -> np.ndarray:
    return np.array_split(matrix, parts, axis=axis)[place]


def _transposed(piece: Piece) -> Piece:
    cells = None if piece.cells is None else piece.cells.T
    return Piece(piece.rank, piece.holders, piece.down, piece.across, cells, piece.exact)


def _numbers(placement: Placement, parameter: Parameter, band: Band, arrays: dict[int, Kept]
             ) -> tuple[np.ndarray, bool] | None:
    """The numbers of a band, (rows, columns or blocks of them), from the first of its ranks that has them."""
    for rank in band.ranks:
        kept, own = arrays.get(rank), placement.shape(parameter, rank)
        if kept is None or kept.shape != own:
            continue
        if parameter.cut_axis is None:
            return kept.numbers, kept.exact
        held = placement.slices(parameter, rank)[parameter.cut_axis]
        if (held.start, held.stop) == (band.start, band.stop):
            return kept.numbers, kept.exact
        rows = slice(band.start - held.start, band.stop - held.start)
        if len(parameter.shape) == 2 and parameter.cut_axis == 0:
            return kept.numbers[rows], kept.exact
        if kept.exact:
            return kept.numbers[:, rows], True
    return None


def kept_pieces(trace: Trace, parameter: str) -> dict[int, Kept]:
    """Rank → its piece of a parameter as loading by scatter handed it out; empty where no numbers were recorded."""
    if parameter not in trace.strings:
        return {}
    kept, found = KeptArrays(trace), {}
    for event in np.flatnonzero(trace.where(phase="load", site=parameter, plane="data")).tolist():
        array = kept.of(event, "after")
        if array is not None:
            found[int(trace.events["rank"][event])] = array
    return found
