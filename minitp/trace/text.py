"""The text of a trace's file: JSON, perhaps zipped, from anywhere. What it says is checked in `minitp.trace.file`."""
import gzip
import io
import json
import re
import zlib
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from minitp.errors import FileFormatError
from minitp.trace.wording import size

MAX_BYTES = 128 * 2**20            # of JSON text, after gunzip: about a million events
MAX_DEPTH = 32                     # of lists and objects inside `run` and `clock`
_EXPONENT = re.compile(rb"e\+?\d{3}|E\+?\d{3}")
_BLOCK = 100                       # digits: less than half of what 1e309 has when its exponent has two digits


def text_of(plain: dict[str, Any]) -> str:
    """JSON with a line for each key, column and value: `less` and `diff` can read it."""
    def compact(data: Any) -> str:
        return json.dumps(data, separators=(",", ":"), allow_nan=False)

    def one(key: str, data: Any) -> str:
        if key in ("events", "marks", "unfinished", "arrays", "weights"):
            return "{\n" + ",\n".join(f"  {compact(k)}: {one(k, v)}" for k, v in data.items()) + "\n}"
        if key in ("values", "array"):
            return "[\n" + ",\n".join("  " + compact(v) for v in data) + "\n]"
        return compact(data)

    return "{\n" + ",\n".join(f"{compact(key)}: {one(key, data)}" for key, data in plain.items()) + "\n}\n"


def loaded(path: Path) -> bytes:
    """The JSON text of the file."""
    try:
        if not path.is_file():
            raise FileFormatError("there is no such file" if not path.exists() else "this is not a file")
        with path.open("rb") as file:
            return unpacked(file, MAX_BYTES)
    except OSError as error:
        raise FileFormatError(f"it can't be read: {error}") from error


def unpacked(file: io.BufferedIOBase, most: int) -> bytes:
    """The text in an open file, gunzipped where it is zipped; no more of it than `most` bytes is ever unpacked."""
    try:
        zipped = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        text = (gzip.GzipFile(fileobj=file) if zipped else file).read(most + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise FileFormatError(f"it can't be read: {error}") from error
    if len(text) > most:
        raise FileFormatError(f"it holds more than {size(most)} of text: more than minitp reads into memory. "
                              "Record fewer steps, or without values")
    return text


def parsed(text: bytes) -> Any:
    def refuse(word: str) -> None:
        raise FileFormatError(f"it holds the number {word[:40]}: numbers must be finite")

    def finite(digits: str) -> float:
        if not isfinite(number := float(digits)):
            refuse(digits)
        return number

    try:
        return json.loads(text, parse_constant=refuse, parse_float=finite if _may_be_endless(text) else None)
    except RecursionError as error:
        raise FileFormatError(f"its lists lie more than {MAX_DEPTH} deep in one another") from error
    except FileFormatError:
        raise
    except ValueError as error:                          # also an integer of too many digits, or no UTF-8
        raise FileFormatError(f"this is not JSON: {str(error)[:200]}. A trace is one JSON object; was the file cut "
                              "off, or is it something else?") from error


def _may_be_endless(text: bytes) -> bool:
    """Whether a number in the text may be too large for a float. A quick look: most files are large, and have none.

    An exponent has three digits or the digits before it are at least 210, which fill one of the blocks that the text is
    cut into wherever they begin. A zero byte: the text is in UTF-16 or the like, where nothing of this can be seen.
    """
    blocks = np.frombuffer(text, np.uint8, len(text) // _BLOCK * _BLOCK).reshape(-1, _BLOCK)
    return b"\0" in text or _EXPONENT.search(text) is not None or bool((blocks - 48 < 10).all(axis=1).any())
