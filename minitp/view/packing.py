"""How the play carries numbers: columns as base64, words and shapes once, arrays as exact float32 or as block maxima."""
import base64
from dataclasses import dataclass, field

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
    return base64.b64encode(np.ascontiguousarray(array, dtype)).decode("ascii")


@dataclass(frozen=True)
class Cells:
    """A matrix as it is drawn: exact numbers ("f32"), or the largest magnitude of each block ("u8")."""
    numbers: np.ndarray            # (rows, cols)
    kind: str

    @property
    def shape(self) -> tuple[int, int]:
        return self.numbers.shape[0], self.numbers.shape[1]

    def nbytes(self) -> int:
        return 4 * self.numbers.size if self.kind == "f32" else 4 + -(-self.numbers.size // 4) * 4


def blocks(matrix: np.ndarray, most: int) -> Cells:
    """At most `most` × `most` cells: the largest magnitude of each of equal blocks of a matrix."""
    return Cells(_maxima(_maxima(np.abs(matrix), most, 0), most, 1), "u8")


def _maxima(matrix: np.ndarray, most: int, axis: int) -> np.ndarray:
    size = matrix.shape[axis]
    if size <= most:
        return matrix
    return np.maximum.reduceat(matrix, np.arange(0, size, -(-size // most)), axis=axis)


@dataclass
class Blob:
    """Arrays one after the other, as bytes."""
    parts: list[bytes] = field(default_factory=list)
    holes: bool = False            # whether a number was not finite

    def add(self, cells: Cells, scale: float) -> None:
        """f32: the numbers. u8: `scale`, then each cell as a share of it in 255 steps, padded to 4 bytes."""
        finite = np.isfinite(cells.numbers)
        if not finite.all():
            self.holes = True
        numbers = np.where(finite, cells.numbers, 0)
        if cells.kind == "f32":
            self.parts.append(np.clip(numbers, -3e38, 3e38).astype("<f4").tobytes())
            return
        shares = np.rint(numbers * (255 / scale)) if scale > 0 else np.zeros_like(numbers)
        data = np.clip(shares, 0, 255).astype(np.uint8).tobytes()
        self.parts.append(np.float32(scale).astype("<f4").tobytes() + data + bytes(-len(data) % 4))

    def text(self) -> str:
        return base64.b64encode(b"".join(self.parts)).decode("ascii")


def scale_of(many: list[Cells]) -> float:
    """One scale for cells that are to be compared: their largest finite magnitude."""
    largest = [float(np.max(np.abs(one.numbers), initial=0, where=np.isfinite(one.numbers))) for one in many]
    return min(max(largest, default=0.0), 3e38)
