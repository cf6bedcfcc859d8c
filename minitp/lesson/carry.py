"""What ranks return as text and back: from process to process, where it can't be handed over as an object."""
import base64
from typing import Any

import numpy as np

from minitp.errors import ConfigError

_ARRAY, _TUPLE = "__array__", "__tuple__"


def to_plain(value: Any) -> Any:
    """Plain data for JSON. Lists, tuples, dicts with text keys, arrays, numbers, text and None may be returned."""
    if isinstance(value, np.ndarray):
        data = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode("ascii")
        return {_ARRAY: data, "dtype": str(value.dtype), "shape": list(value.shape)}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple):
        return {_TUPLE: [to_plain(one) for one in value]}
    if isinstance(value, list):
        return [to_plain(one) for one in value]
    if isinstance(value, dict) and all(isinstance(key, str) and key not in (_ARRAY, _TUPLE) for key in value):
        return {key: to_plain(one) for key, one in value.items()}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ConfigError(f"a rank returned {type(value).__name__}: what all ranks are to see must be arrays, numbers, "
                      "text, None, or lists, tuples and dicts of them")


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
