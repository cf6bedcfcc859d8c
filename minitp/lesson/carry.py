"""What ranks return as text and back: from process to process, where it can't be handed over as an object."""
import base64
from numbers import Real
from typing import Any

import numpy as np

from minitp.errors import ConfigError

_ARRAY, _TUPLE = "__array__", "__tuple__"
_KINDS = "biufU"                     # of dtypes whose arrays are bytes that mean the same in every process
_ADDED = 2                           # dtype.isbuiltin of what a package adds to NumPy: bfloat16


def plain_number(value: Any) -> Any:
    """A number (or text) of NumPy's, or a fraction, as one of Python's own types; all else as it is."""
    if isinstance(value, np.datetime64 | np.timedelta64):                    # their item() may be a mere count
        return value
    if isinstance(value, np.generic):
        value = value.item()
    return float(value) if isinstance(value, Real) and not isinstance(value, int | float) else value


def to_plain(value: Any) -> Any:
    """Plain data for JSON. Lists, tuples, dicts with text keys, arrays, numbers, text and None may be returned."""
    if isinstance(value, np.ndarray) and (value.dtype.kind in _KINDS or value.dtype.isbuiltin == _ADDED):
        data = base64.b64encode(value.tobytes()).decode("ascii")
        return {_ARRAY: data, "dtype": str(value.dtype), "shape": list(value.shape)}
    if isinstance(value, np.generic):
        value = plain_number(value)
    if isinstance(value, tuple):
        return {_TUPLE: [to_plain(one) for one in value]}
    if isinstance(value, list):
        return [to_plain(one) for one in value]
    if isinstance(value, dict) and all(isinstance(key, str) and key not in (_ARRAY, _TUPLE) for key in value):
        return {key: to_plain(one) for key, one in value.items()}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    what = f"an array of {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
    raise ConfigError(f"a rank returned {what}: what all ranks are to see must be arrays, numbers, text, None, or "
                      "lists, tuples and dicts of them; numbers are real, also in arrays")


def from_plain(plain: Any) -> Any:
    """What `to_plain` was given."""
    if isinstance(plain, list):
        return [from_plain(one) for one in plain]
    if not isinstance(plain, dict):
        return plain
    if _ARRAY in plain:
        flat = np.frombuffer(base64.b64decode(plain[_ARRAY]), np.dtype(plain["dtype"]))
        return flat.reshape(plain["shape"]).copy()
    if _TUPLE in plain:
        return tuple(from_plain(one) for one in plain[_TUPLE])
    return {key: from_plain(one) for key, one in plain.items()}
