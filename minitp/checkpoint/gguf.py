"""GGUF: llama.cpp's one-file format. A checked header, and slices of its quantized tensors.

    "GGUF"  version (2 or 3)  number of tensors  number of metadata pairs
    the metadata     key, type, value, …       (strings and arrays begin with their 64-bit length)
    the tensor table name, axes, type, offset, …    (axes densest first; offsets from the data's beginning)
    padding to `general.alignment`, then the data

Every count is compared with the bytes that are left before it is believed, so a file of 160 bytes can't ask for
gigabytes. The specification is ggml/docs/gguf.md; values are dequantized by the `gguf` package, whose own reader takes
seconds for a large vocabulary (this one: a tenth of one).

    manifest = read_manifest(path)                       # FileFormatError, or every tensor lies inside the file
    manifest.read_into("blk.0.ffn_down.weight", (slice(0, 576), slice(0, 512)), out)
"""
import re
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from minitp.checkpoint.files import TensorEntry, elements, likely_cause, opened, plain_slices, read_rows
from minitp.checkpoint.safetensors import WEIGHT_DTYPES, read_floats
from minitp.cut import Slices
from minitp.errors import FileFormatError

MAX_AXES, MAX_ALIGNMENT, MAX_NESTING = 4, 1 << 20, 4

SCALARS = {0: "u1", 1: "i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?", 10: "<u8", 11: "<i8", 12: "<f8"}
STRING, ARRAY = 8, 9


@dataclass(frozen=True)
class Manifest:
    """What a GGUF file holds. Arrays of numbers in `metadata` are NumPy arrays, arrays of strings lists.

    `notes` says what is odd but does no harm (bytes after the last tensor).
    """
    path: Path
    metadata: dict[str, Any]
    tensors: dict[str, TensorEntry]
    notes: tuple[str, ...] = ()

    def unsupported(self) -> dict[str, int]:
        """How many tensors there are of each type that minitp can't turn into floats."""
        counts = Counter(entry.dtype for entry in self.tensors.values())
        return {dtype: count for dtype, count in sorted(counts.items()) if not self.readable(dtype)}

    def readable(self, dtype: str) -> bool:
        return dtype in WEIGHT_DTYPES or _can_dequantize(dtype)

    def read_into(self, name: str, slices: Slices, out: np.ndarray) -> None:
        """Fill `out` (float32 or float64) with a slice of tensor `name`: the numbers that the whole tensor has there.

        Quantized numbers come in blocks along the last axis: the blocks that cover the columns are dequantized, a few
        rows at a time, and cut.
        """
        entry = self.tensors[name]
        if entry.dtype in WEIGHT_DTYPES:
            return read_floats(self.path, entry, slices, out)
        if not _can_dequantize(entry.dtype):
            raise FileFormatError(f"{self.path}: tensor {name!r} is {entry.dtype}, which can't be dequantized")
        slices = plain_slices(slices, entry.shape, f"{self.path}: tensor {name!r}")
        if len(slices) == 1:                                                     # one row
            slices, out = (slice(0, 1), *slices), out[None]
        rows, columns = slices
        block, block_bytes = _block(entry.dtype)
        first, last = columns.start // block, -(-columns.stop // block)

        def decode(raw: np.ndarray) -> np.ndarray:
            covering = raw[:, first * block_bytes:last * block_bytes].reshape(1, -1)   # blocks don't know their row
            values = _dequantize(covering, entry.dtype).reshape(len(raw), -1)
            return values[:, columns.start - first * block:columns.stop - first * block]

        read_rows(self.path, entry, rows, entry.shape[-1] // block * block_bytes, decode, out)


# --- quantized blocks, as the gguf package knows them (imported on first use: it takes 0.1 s) -------------------------

@cache
def _types() -> dict[int, tuple[str, int, int]]:
    """Type number -> name, numbers per block, bytes per block."""
    from gguf.constants import GGML_QUANT_SIZES
    return {int(kind): (kind.name, *sizes) for kind, sizes in GGML_QUANT_SIZES.items()}


@cache
def _block(dtype: str) -> tuple[int, int]:
    return next((block, size) for name, block, size in _types().values() if name == dtype)


def _dequantize(blocks: np.ndarray, dtype: str) -> np.ndarray:
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import dequantize
    with np.errstate(all="ignore"):                              # a scale may be infinite or NaN: so then is the weight
        return dequantize(blocks, GGMLQuantizationType[dtype])


@cache
def _can_dequantize(dtype: str) -> bool:
    try:
        _dequantize(np.zeros((1, _block(dtype)[1]), np.uint8), dtype)
    except (NotImplementedError, StopIteration):
        return False
    return True


# --- the header -------------------------------------------------------------------------------------------------------

class _Cursor:
    """Takes values off the front of a file, and never believes a length that the file can't hold."""

    def __init__(self, path: Path, file: BinaryIO, size: int):
        self.path, self.file, self.left, self.size = path, file, size, size

    def fail(self, message: str) -> FileFormatError:
        return FileFormatError(f"{self.path}: {message}")

    def take(self, count: int, what: str) -> bytes:
        if count > self.left:
            raise self.fail(f"{what} needs {count:,} bytes and {self.left:,} are left (cut short, or damaged)")
        self.left -= count
        data = self.file.read(count)
        if len(data) < count:
            raise self.fail(f"{what}: the file became shorter while it was read")
        return data

    def number(self, dtype: str, what: str) -> Any:
        return np.frombuffer(self.take(np.dtype(dtype).itemsize, what), dtype)[0].item()

    def count(self, what: str, each: int, width: int = 8) -> int:
        """A count of things of at least `each` bytes."""
        count = int.from_bytes(self.take(width, what), "little")
        if count * each > self.left:
            raise self.fail(f"{what} is {count:,}, at least {count * each:,} bytes, and {self.left:,} are left "
                            "(cut short, or damaged)")
        return count

    def string(self, what: str) -> str:
        data = self.take(self.count(f"the length of {what}", 1), what)
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise self.fail(f"{what} is not UTF-8: {data[:40]!r}") from None

    def value(self, kind: int, what: str, depth: int = 0) -> Any:
        if kind in SCALARS:
            return self.number(SCALARS[kind], what)
        if kind == STRING:
            return self.string(what)
        if kind != ARRAY:
            raise self.fail(f"{what} has the unknown type {kind}")
        if depth == MAX_NESTING:
            raise self.fail(f"{what} nests arrays more than {MAX_NESTING} deep")
        inner = self.number("<u4", what)
        if inner in SCALARS:
            dtype = np.dtype(SCALARS[inner])
            return np.frombuffer(self.take(self.count(what, dtype.itemsize) * dtype.itemsize, what), dtype)
        return [self.value(inner, what, depth + 1) for _ in range(self.count(what, 8 if inner == STRING else 12))]


def read_manifest(path: Path) -> Manifest:
    """The header of `path`, checked. FileFormatError says which rule is broken, and the likely cause."""
    refuse_part(path)
    with opened(path) as (file, size):
        head = file.read(64)
        if head[:4] != b"GGUF":
            raise FileFormatError(f"{path}: a GGUF file begins with the letters GGUF, this one with "
                                  f"{head[:4]!r}{likely_cause(head)}")
        file.seek(4)
        cursor = _Cursor(path, file, size)
        cursor.left -= 4
        _check_version(cursor)
        tensor_count = cursor.count("the number of tensors", 24)
        metadata = _read_metadata(cursor, cursor.count("the number of metadata pairs", 13))
        alignment = metadata.get("general.alignment", 32)
        if type(alignment) is not int or not 0 < alignment <= MAX_ALIGNMENT or alignment & (alignment - 1):
            raise cursor.fail(f"general.alignment must be a power of two up to {MAX_ALIGNMENT:,}, "
                              f"not {alignment!r:.40}")
        parts = metadata.get("split.count")
        if type(parts) is int and parts > 1:
            raise cursor.fail(f"this is one of {parts} parts of a model; join them into one file "
                              "(`llama-gguf-split --merge`)")
        table = [_read_entry(cursor) for _ in range(tensor_count)]
        data_start = -(-(size - cursor.left) // alignment) * alignment
    tensors: dict[str, TensorEntry] = {}
    for name, dtype, shape, offset, nbytes in table:
        if name in tensors:
            raise cursor.fail(f"the tensor {name!r} is given twice")
        tensors[name] = TensorEntry(name, dtype, shape, data_start + offset, nbytes)
    return Manifest(path, metadata, tensors, _check_ranges(path, list(tensors.values()), alignment, size))


def _check_version(cursor: _Cursor) -> None:
    version = cursor.number("<u4", "the version")
    if version & 0xFFFF == 0:
        raise cursor.fail("this is a big-endian GGUF file; minitp reads little-endian ones, which nearly all are")
    if version not in (2, 3):
        raise cursor.fail(f"GGUF version {version}; minitp reads 2 and 3")


def _read_metadata(cursor: _Cursor, pairs: int) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for _ in range(pairs):
        key = cursor.string("a metadata key")
        if key in metadata:
            raise cursor.fail(f"the metadata key {key!r} is given twice")
        metadata[key] = cursor.value(cursor.number("<u4", f"the type of {key}"), f"the value of {key}")
    return metadata


def _read_entry(cursor: _Cursor) -> tuple[str, str, tuple[int, ...], int, int]:
    name = cursor.string("a tensor's name")
    what = f"the description of tensor {name!r}"
    axes = cursor.number("<u4", what)
    if axes > MAX_AXES:
        raise cursor.fail(f"tensor {name!r} has {axes:,} axes; GGUF has at most {MAX_AXES}")
    *densest_first, kind, offset = struct.unpack(f"<{axes}QIQ", cursor.take(8 * axes + 12, what))
    shape = tuple(reversed(densest_first)) or (1,)
    if kind not in _types():
        return name, f"type {kind} (unknown)", shape, offset, 0
    dtype, block, block_bytes = _types()[kind]
    if shape[-1] % block:
        raise cursor.fail(f"tensor {name!r}: rows of {shape[-1]:,} are no whole number of {dtype} blocks of {block}")
    return name, dtype, shape, offset, elements(shape) // block * block_bytes


def _check_ranges(path: Path, entries: list[TensorEntry], alignment: int, size: int) -> tuple[str, ...]:
    """No tensor reaches beyond the file or into another; returns a note if bytes follow the last one."""
    end, before = 0, "the header"
    in_file_order = sorted(entries, key=lambda e: (e.offset, e.nbytes))
    for entry in in_file_order:
        if entry.offset < end and entry.nbytes:
            raise FileFormatError(f"{path}: tensor {entry.name!r} begins at byte {entry.offset:,}, inside {before}, "
                                  f"which ends at {end:,}: tensors must not overlap")
        if entry.offset + entry.nbytes > size:
            short = sum(e.offset + e.nbytes > size for e in entries)
            raise FileFormatError(f"{path}: tensor {entry.name!r} needs {entry.nbytes:,} bytes from {entry.offset:,} "
                                  f"on, the file has {max(0, size - entry.offset):,}; incomplete: {short} of "
                                  f"{len(entries)} tensors (cut short: an interrupted download?)")
        end, before = max(end, entry.offset + entry.nbytes), f"tensor {entry.name!r}"
    extra = size - -(-end // alignment) * alignment
    if entries and extra > 0 and all(entry.nbytes for entry in entries):
        return (f"{extra:,} bytes follow the last tensor; they are not read",)
    return ()


def refuse_part(path: Path) -> None:
    """FileFormatError if the name says that `path` is one part of a split file, with the parts that are missing."""
    ways: list[tuple[str, Callable[[re.Match[str], int], str], str]] = [
        (r"(.*)-(\d{5})-of-(\d{5})\.gguf", lambda m, i: f"{m[1]}-{i:05}-of-{m[3]}.gguf", "`llama-gguf-split --merge`"),
        (r"(.*)\.part(\d{1,3})of(\d{1,3})", lambda m, i: f"{m[1]}.part{i}of{m[3]}", "`cat`, in order"),
    ]
    for pattern, part_name, joiner in ways:
        if (match := re.fullmatch(pattern, path.name)) and int(match[3]) > 1:
            names = [part_name(match, i + 1) for i in range(int(match[3]))]
            missing = [name for name in names if not path.with_name(name).exists()]
            state = f"missing here: {', '.join(missing[:8])}" if missing else "all are here"
            more = f" and {len(missing) - 8} more" if len(missing) > 8 else ""
            raise FileFormatError(f"{path}: this is part {int(match[2])} of {len(names)} of one model ({state}{more}); "
                                  f"join all parts into one file with {joiner} and open that")
