"""How the play carries numbers: columns as base64, each word once, arrays as exact float32 or as block maxima."""
import base64
from dataclasses import dataclass

import numpy as np

LONGEST = 200                      # characters of a word or sentence from a file


class Strings:
    """A string table: each text once, referred to by number."""

    def __init__(self) -> None:
        self.table: list[str] = []
        self._number: dict[str, int] = {}

    def number(self, text: str) -> int:
        if text not in self._number:
            self._number[text] = len(self.table)
            self.table.append(text)
        return self._number[text]


def word(text: object, longest: int = LONGEST) -> str:
    """A token's text, spaces and line ends kept; other control characters and broken Unicode become �."""
    line = str(text)[:longest + 1]
    line = "".join(char if char.isprintable() or char in "\n\t" else "�" for char in line)
    return line if len(line) <= longest else line[:longest - 1] + "…"


def base64_of(array: np.ndarray, dtype: str) -> str:
    """The array's numbers, little-endian, as base64."""
    return base64.b64encode(array.astype(dtype).tobytes()).decode("ascii")


@dataclass(frozen=True)
class Cells:
    """A matrix as it is drawn: exact numbers ("f32"), or the largest magnitude of each block ("u8")."""
    numbers: np.ndarray            # (rows, cols)
    kind: str


def blocks(matrix: np.ndarray, rows: int, cols: int | None = None) -> Cells:
    """At most rows × cols cells (rows × rows without it): the largest magnitude of each of equal blocks of a matrix."""
    return Cells(_maxima(_maxima(np.abs(matrix), rows, 0), rows if cols is None else cols, 1), "u8")


def number_of_blocks(size: int, most: int) -> int:
    """How many equal blocks, the last perhaps smaller: as many as fit into `most`."""
    return -(-size // -(-size // most)) if size else 0


def _maxima(matrix: np.ndarray, most: int, axis: int) -> np.ndarray:
    size = matrix.shape[axis]
    if size <= most:
        return matrix
    return np.maximum.reduceat(matrix, np.arange(0, size, -(-size // most)), axis=axis)


class Blob:
    """Arrays one after the other, as bytes.

    f32: the numbers. u8: a float32 scale, then each cell as a share of it in 255 steps, padded to 4 bytes.
    """

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.holes = False             # whether a number was not finite: it becomes 0

    def add(self, named: list[tuple[str, Cells]]) -> None:
        """The arrays in this order; those of one name and kind share one scale, so that they can be compared."""
        coded: dict[int, bytes] = {}
        groups: dict[str, list[int]] = {}
        for i, (name, cells) in enumerate(named):
            groups.setdefault("" if cells.kind == "f32" else name, []).append(i)
        for name, members in groups.items():                       # one NumPy call for all: most arrays are tiny
            flat = self._finite(np.concatenate([named[i][1].numbers.reshape(-1) for i in members]))
            data, head, width = _floats(flat) if not name else _shares(flat)
            at = 0
            for i in members:
                size = named[i][1].numbers.size * width
                coded[i] = head + data[at:at + size] + bytes(-size % 4)
                at += size
        self.parts += [coded[i] for i in range(len(named))]

    def _finite(self, numbers: np.ndarray) -> np.ndarray:
        numbers = numbers.astype("<f4")
        if np.isfinite(numbers).all():
            return numbers
        self.holes = True
        return np.where(np.isfinite(numbers), numbers, 0).astype("<f4")

    def text(self) -> str:
        return base64.b64encode(b"".join(self.parts)).decode("ascii")


def _floats(numbers: np.ndarray) -> tuple[bytes, bytes, int]:
    """(the numbers, what stands before each array, bytes of a number)."""
    return numbers.tobytes(), b"", 4


def _shares(magnitudes: np.ndarray) -> tuple[bytes, bytes, int]:
    scale = magnitudes.max(initial=0)
    shares = np.rint(magnitudes * (255 / float(scale))) if scale > 0 else magnitudes
    return shares.astype(np.uint8).tobytes(), scale.astype("<f4").tobytes(), 1
