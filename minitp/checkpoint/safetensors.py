"""safetensors: a header of JSON, then the tensors' bytes. Checked before anything is allocated; read by slices.

    8 bytes     length N of the header, little-endian
    N bytes     {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, …, "__metadata__": {"any": "text"}}
    the rest    the tensors, end to end: no overlap, no hole, nothing after the last

The rules are the format's own (github.com/huggingface/safetensors, "Format"), as strict as its library:

    manifest = read_manifest(path)                      # FileFormatError, or every promise of the header is kept
    manifest.read_into("w", (slice(0, 10), slice(5, 8)), out)
    write(path, {"w": ("F32", (2, 3))}, iter([w]))
"""
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from minitp.checkpoint.files import (
    TensorEntry,
    elements,
    likely_cause,
    opened,
    parse_json,
    plain_slices,
    read_rows,
)
from minitp.cut import Slices
from minitp.errors import ConfigError, FileFormatError
from minitp.files import replacing

HEADER_CAP = 100_000_000
"""Bytes of header that minitp, like the reference library, reads at most; the largest models need far less."""

MAX_AXES = 64

BITS = {"BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8,
        "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32,
        "F32": 32, "C64": 64, "I64": 64, "U64": 64, "F64": 64}
"""The format's types. A file may hold any of them; a weight must be one of WEIGHT_DTYPES."""

WEIGHT_DTYPES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"), "F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2")}
"""How NumPy sees the bytes of each. It has no bfloat16: those are the upper half of a float32, read as uint16."""


@dataclass(frozen=True)
class Manifest:
    """What a safetensors file holds, every byte range checked against the file's length."""
    path: Path
    tensors: dict[str, TensorEntry]
    metadata: dict[str, str]

    def readable(self, dtype: str) -> bool:
        return dtype in WEIGHT_DTYPES

    def read_into(self, name: str, slices: Slices, out: np.ndarray) -> None:
        """Fill `out` (float32 or float64, any strides) with a slice of tensor `name`. ConfigError for a bad slice."""
        read_floats(self.path, self.tensors[name], slices, out)


def read_floats(path: Path, entry: TensorEntry, slices: Slices, out: np.ndarray) -> None:
    """A slice of a tensor of F64, F32, F16 or BF16, in a file of whichever format, into `out`."""
    what = f"{path}: tensor {entry.name!r}"
    if entry.dtype not in WEIGHT_DTYPES:
        raise FileFormatError(f"{what} is {entry.dtype}; weights are read from {', '.join(WEIGHT_DTYPES)}")
    shape, dtype = entry.shape or (1,), WEIGHT_DTYPES[entry.dtype]
    rows, *columns = plain_slices(slices or (slice(0, 1),), shape, what)
    row_bytes = elements(shape[1:]) * dtype.itemsize
    whole_rows = all(s == slice(0, size) for s, size in zip(columns, shape[1:], strict=True))
    as_it_lies = whole_rows and entry.dtype != "BF16" and dtype == out.dtype and out.flags.c_contiguous

    def decode(raw: np.ndarray) -> np.ndarray:
        values = raw.reshape(-1).view(dtype).reshape(len(raw), *shape[1:])[(slice(None), *columns)]
        return (values.astype(np.uint32) << 16).view(np.float32) if entry.dtype == "BF16" else values

    read_rows(path, entry, rows, row_bytes, None if as_it_lies else decode, out)


def read_manifest(path: Path) -> Manifest:
    """The header of `path`, checked. FileFormatError says which rule is broken, and the likely cause."""
    with opened(path) as (file, size):
        head = file.read(64)
        cause = likely_cause(head)
        if size < 8:
            raise FileFormatError(f"{path}: {size} bytes are too few for a safetensors file{cause or ' (cut short?)'}")
        length = int.from_bytes(head[:8], "little")
        if length > size - 8:
            raise FileFormatError(f"{path}: the header should be {length:,} bytes long and the file has {size - 8:,} "
                                  f"after its first 8{cause or ' (cut short, or not a safetensors file)'}")
        if length > HEADER_CAP:
            raise FileFormatError(f"{path}: a header of {length:,} bytes is over the cap of {HEADER_CAP:,} that minitp "
                                  "sets itself; the file may well be valid: split it into shards")
        file.seek(8)
        data = file.read(length)
    if not data.startswith(b"{"):
        raise FileFormatError(f"{path}: the header must begin with '{{'{cause}")
    header = parse_json(data, f"{path}: header")
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise FileFormatError(f"{path}: __metadata__ must map names to strings")
    entries = [_entry(path, name, fields, 8 + length) for name, fields in header.items()]
    _check_ranges(path, entries, 8 + length, size)
    return Manifest(path, {entry.name: entry for entry in entries}, metadata)


def _entry(path: Path, name: str, fields: Any, data_start: int) -> TensorEntry:
    def whole_numbers(key: str) -> tuple[int, ...]:
        values = fields.get(key)
        if not isinstance(values, list) or not all(type(v) is int and 0 <= v < 1 << 64 for v in values):
            raise FileFormatError(f"{path}: tensor {name!r}: {key} must be a list of whole numbers, not {values!r:.80}")
        return tuple(values)

    if not isinstance(fields, dict):
        raise FileFormatError(f"{path}: tensor {name!r} must be described by an object, not {fields!r:.80}")
    dtype, shape, offsets = fields.get("dtype"), whole_numbers("shape"), whole_numbers("data_offsets")
    if not isinstance(dtype, str) or dtype not in BITS:
        raise FileFormatError(f"{path}: tensor {name!r} has the unknown dtype {dtype!r:.80}")
    if len(offsets) != 2 or offsets[0] > offsets[1]:
        raise FileFormatError(f"{path}: tensor {name!r}: data_offsets must be [begin, end], not {list(offsets)!r:.80}")
    if len(shape) > MAX_AXES:
        raise FileFormatError(f"{path}: tensor {name!r} has {len(shape):,} axes; NumPy has at most {MAX_AXES}")
    held, need = offsets[1] - offsets[0], elements(shape) * BITS[dtype]           # need in bits: some types are below 8
    if held * 8 != need:
        raise FileFormatError(f"{path}: tensor {name!r} of {dtype} {shape} needs {need // 8:,} bytes, "
                              f"its data_offsets hold {held:,}")
    return TensorEntry(name, dtype, shape, data_start + offsets[0], held)


def _check_ranges(path: Path, entries: list[TensorEntry], start: int, size: int) -> None:
    """The tensors lie end to end and fill the file: nothing is read twice, and nothing hides between."""
    end, before = start, "the header"
    for entry in sorted(entries, key=lambda e: (e.offset, e.nbytes)):
        if entry.offset != end:
            rule = "overlaps" if entry.offset < end else "leaves a hole after"
            raise FileFormatError(f"{path}: tensor {entry.name!r} {rule} {before}: it begins at byte {entry.offset:,}, "
                                  f"not {end:,}; tensors must lie end to end")
        end, before = entry.offset + entry.nbytes, f"tensor {entry.name!r}"
        if end > size:
            raise FileFormatError(f"{path}: {before} needs the file's bytes to {end:,}, it has {size:,} "
                                  "(cut short: an interrupted download?)")
    if end != size:
        raise FileFormatError(f"{path}: {size - end:,} bytes follow {before}, which should end the file")


def write(path: Path, tensors: Mapping[str, tuple[str, tuple[int, ...]]], arrays: Iterable[np.ndarray],
          metadata: Mapping[str, str] | None = None, progress: Callable[[int, int], None] | None = None) -> None:
    """Write a safetensors file, holding one array at a time; it appears whole under its name or not at all.

    `tensors` maps each name to its dtype ("F32", "F64" or "F16") and shape; `arrays` yields them in that order.
    `progress(done_bytes, total_bytes)` is called after each. ConfigError where an array isn't what was declared;
    OSError (a full disk, say) leaves no file.
    """
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    end = 0
    for name, (dtype, shape) in tensors.items():
        if dtype not in WEIGHT_DTYPES or dtype == "BF16":
            raise ConfigError(f"tensor {name!r}: minitp writes F32, F64 and F16, not {dtype}")
        begin, end = end, end + elements(shape) * BITS[dtype] // 8
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)                                  # so that the data begins at a multiple of 8
    with replacing(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        done, remaining = 0, iter(arrays)
        for name, (dtype, shape) in tensors.items():
            array = next(remaining, None)
            if array is None:
                raise ConfigError(f"{path.name}: too few arrays: {name!r} was declared and never came")
            if array.dtype != WEIGHT_DTYPES[dtype] or array.shape != shape:
                raise ConfigError(f"tensor {name!r} was declared {dtype} {shape} and is {array.dtype} {array.shape}")
            if array.size:
                file.write(np.ascontiguousarray(array).data.cast("B"))
            done += array.nbytes
            if progress:
                progress(done, end)
