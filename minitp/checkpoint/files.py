"""Files seen as bytes, which both formats share: bounded reading, JSON, and slices.

A file is opened anew for each read: a checkpoint holds no descriptor and no mapping, so ranks that are threads may
share it, and what is read counts as page cache, not as a process's memory.
"""
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from math import prod
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from minitp.cut import Slices
from minitp.errors import ConfigError, FileFormatError

BLOCK = 1 << 17
"""How many bytes of a file are held at a time where they must be converted or cut on their way to the result.

Small enough that a block, its numbers and the work arrays of dequantization stay in a core's cache, and that the
allocator reuses their memory: with 1 MiB each block was fresh pages, and dequantizing took twice as long."""


@dataclass(frozen=True)
class TensorEntry:
    """One tensor of a file: `nbytes` bytes from byte `offset` of the file on, rows first, the last axis densest."""
    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int


@runtime_checkable
class TensorFile(Protocol):
    """What a checkpoint needs of a file of either format: a checked table of tensors, and slices of them."""
    @property
    def path(self) -> Path: ...

    @property
    def tensors(self) -> dict[str, TensorEntry]: ...

    def readable(self, dtype: str) -> bool: ...

    def read_into(self, name: str, slices: Slices, out: np.ndarray) -> None: ...


@contextmanager
def opened(path: Path) -> Iterator[tuple[BufferedReader, int]]:
    """The file and its length in bytes."""
    try:
        with open(path, "rb") as file:
            yield file, os.fstat(file.fileno()).st_size
    except OSError as error:
        raise FileFormatError(f"{path}: can't be read: {error.strerror or error}") from error


def likely_cause(head: bytes) -> str:
    """Why a file may not be what its name says, from its first bytes; empty where they tell nothing."""
    known = {b"": "it is empty: an interrupted download, or a full disk",
             b"version https://git-lfs": "it is a Git LFS pointer, not the data: `git lfs pull` fetches the file",
             b"<": "it looks like a web page, saved in place of the file",
             b"PK\x03\x04": "it is a zip, probably PyTorch's with pickles inside, which minitp never reads: "
                            "convert it to safetensors",
             b"GGUF": "it is a GGUF file: its name should end in .gguf"}
    for start, cause in known.items():
        if head.startswith(start) if start else not head:
            return f" ({cause})"
    return ""


def read_json(path: Path, cap: int = 100_000_000) -> dict[str, Any]:
    """A JSON object from a file of at most `cap` bytes."""
    return parse_json(read_bounded(path, cap), str(path))


def read_bounded(path: Path, cap: int) -> bytes:
    """The file's bytes; a file of more than `cap` is refused before it is read, and one that grows is not followed."""
    with opened(path) as (file, size):
        if size > cap:
            raise FileFormatError(f"{path}: {size:,} bytes are over minitp's cap of {cap:,} for such a file")
        return file.read(size)


def parse_json(data: bytes, what: str) -> dict[str, Any]:
    """A JSON object with no name given twice; `what` opens the error's message."""
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            double = next(name for name in found if names.count(name) > 1)
            raise FileFormatError(f"{what}: the name {double!r} is given twice")
        return found

    try:
        value = json.loads(data.decode("utf-8-sig"), object_pairs_hook=once)
    except FileFormatError:
        raise
    except UnicodeDecodeError:
        raise FileFormatError(f"{what}: this is not JSON: it isn't text in UTF-8{likely_cause(data[:64])}") from None
    except RecursionError:
        raise FileFormatError(f"{what}: the JSON is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise FileFormatError(f"{what}: this is not JSON: {error}{likely_cause(data[:64])}") from None
    except ValueError:
        raise FileFormatError(f"{what}: this is not JSON that can be read: a number in it has thousands of digits"
                              ) from None
    if not isinstance(value, dict):
        raise FileFormatError(f"{what}: a JSON object was expected, not {type(value).__name__}")
    return value


def some(names: Any, most: int = 4) -> str:
    """The first few names, for a message."""
    names = sorted(names)
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def plain_slices(slices: Slices, shape: tuple[int, ...], what: str) -> Slices:
    """`slices` with both ends written out; a step, a negative index or one beyond the shape is refused."""
    if len(slices) != len(shape):
        raise ConfigError(f"{what} has shape {shape}; {len(slices)} slices don't fit it")
    plain = tuple(slice(0 if s.start is None else s.start, size if s.stop is None else s.stop)
                  for s, size in zip(slices, shape, strict=True))
    for given, s, size in zip(slices, plain, shape, strict=True):
        if given.step not in (None, 1) or not 0 <= s.start <= s.stop <= size:
            raise ConfigError(f"{what}: the slice {given.start}:{given.stop}:{given.step} is not a run of 0…{size}; "
                              "step 1 and ends inside the shape would work")
    return plain


def shape_of(slices: Slices) -> tuple[int, ...]:
    return tuple(s.stop - s.start for s in slices)


def read_exactly(file: BufferedReader, out: memoryview, what: str) -> None:
    """Fill `out`; a file that ends early (cut since it was checked) is an error."""
    got = file.readinto(out)
    if got != len(out):
        raise FileFormatError(f"{what}: {len(out)} bytes were promised and {got} are left: the file changed in use")


def read_rows(path: Path, entry: TensorEntry, rows: slice, row_bytes: int,
              decode: Callable[[np.ndarray], np.ndarray] | None, out: np.ndarray) -> None:
    """Fill `out` with the tensor's `rows`, each `row_bytes` long in the file.

    With `decode` (n, row_bytes) bytes become n rows of `out`, a block at a time; without it the file's bytes are
    the result's, and go straight there.
    """
    if not out.size:
        return
    what = f"{path}: tensor {entry.name!r}"
    with opened(path) as (file, _):
        file.seek(entry.offset + rows.start * row_bytes)
        if decode is None:
            return read_exactly(file, out.data.cast("B"), what)
        count = rows.stop - rows.start
        step = min(count, max(1, BLOCK // row_bytes))
        block = np.empty((step, row_bytes), np.uint8)
        for start in range(0, count, step):
            raw = block[:min(step, count - start)]
            read_exactly(file, raw.data.cast("B"), what)
            out[start:start + len(raw)] = decode(raw)


def elements(shape: tuple[int, ...]) -> int:
    """How many numbers a shape holds, as a Python integer: NumPy's product of [2^32, 2^32] is 0."""
    return prod(shape)
