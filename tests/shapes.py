"""jaxtyping's annotations in minitp are plain documentation for a user; here beartype checks every one of them."""
import re
import sys
from collections.abc import Callable, Hashable, Iterator
from dataclasses import is_dataclass
from functools import cache, wraps
from itertools import islice
from operator import attrgetter
from pathlib import Path
from threading import local
from types import CodeType
from typing import Any, get_args

import jaxtyping
import numpy as np
from beartype import BeartypeConf, beartype

# An int is fine where a float is announced (PEP 484's tower): that is what mypy and Python's own functions hold.
_checked = beartype(conf=BeartypeConf(is_pep484_tower=True, violation_type=TypeError))

# Their dataclasses refuse a wrong type themselves, in words for the user: those words must not be forestalled here.
_CHECK_THEMSELVES = ("minitp.config", "minitp.placement")

_UNCHECKED = {
    "minitp.cli",                           # Typer passes contexts of a class of its own
    "minitp.checkpoint.gguf",               # reads 100,000 strings one by one: checking each costs 10 s a file
}

ONLY_ON_MPI = ["minitp.comm.mpi"]

_every_call = jaxtyping.jaxtyped
_closures: set[CodeType] = set()            # of which one was checked already
_shapeless: set[type] = set()               # the types of objects that aren't arrays


def checker(function: Callable) -> Callable:
    if function.__name__ == "__init__" and function.__module__ in _CHECK_THEMSELVES:
        return function
    checked = _checked(function)
    if checked is not function and hasattr(checked, "__code__"):    # a trace names the file of who called
        checked.__code__ = checked.__code__.replace(co_filename=function.__code__.co_filename)
    return checked


def jaxtyped(*, typechecker: Callable) -> Callable:
    """In place of jaxtyping's decorator, which takes 0.1 ms a call: only what has shapes to compare goes through it."""
    def decorated(what: Any) -> Any:
        if isinstance(what, type):
            if is_dataclass(what) and "__init__" in vars(what):
                what.__init__ = decorated(what.__init__)                       # type: ignore[misc]
            return what
        if isinstance(what, classmethod | staticmethod):
            return type(what)(decorated(what.__func__))
        if isinstance(what, property):
            return property(*(part and decorated(part) for part in (what.fget, what.fset, what.fdel)))
        if _is_another(what):
            return what
        if any(map(_has_shape, getattr(what, "__annotations__", {}).values())):
            return _with_shapes(what, typechecker)
        return checker(what)
    return decorated


def _is_another(what: Any) -> bool:
    """Whether it is a function inside another one, of which one was made before: to prepare a check takes 2 ms, which
    every call of the outer one would pay."""
    code = getattr(what, "__code__", None)
    if code is None or "<locals>" not in what.__qualname__:
        return False
    known = code in _closures
    _closures.add(code)
    return known


def _has_shape(annotation: Any) -> bool:
    if isinstance(annotation, str):                       # a name that isn't there yet: jaxtyping leaves it until it is
        return True
    if isinstance(annotation, type) and issubclass(annotation, jaxtyping.AbstractArray):
        return True
    return any(map(_has_shape, get_args(annotation)))


# --- each kind of call once -------------------------------------------------------------------------------------------

def _with_shapes(function: Callable, typechecker: Callable) -> Callable:
    """Checked by jaxtyping, which takes four times as long as the layers of a tiny model: so once for calls of a kind.

    Whether a call is right is a matter of the types, shapes and dtypes that come in and go out, of whole numbers and
    words, and of the sizes that an annotation takes from `self`: a call that agrees in all of them with one that was
    right needs no second check.
    """
    checked = _every_call(function, typechecker=typechecker)
    right: dict[Hashable, set[Hashable]] = {}               # the kinds of results met, by the kind of call
    own, handed_out, unfinished = _own_sizes(function), local(), int(function.__name__ == "__init__")

    @cache
    def check_of_results() -> Callable:
        return _every_call(wraps(function)(lambda *args, **kwargs: handed_out.result), typechecker=typechecker)

    @wraps(function)
    def once(*args: Any, **kwargs: Any) -> Any:
        if jaxtyping.config.jaxtyping_disable:
            return function(*args, **kwargs)
        try:
            call = (*map(_kind, args[unfinished:]), *kwargs, *map(_kind, kwargs.values()),
                    *(size(args[0]) for size in own))
        except Exception:                                   # a sum that is used up, a list
            return checked(*args, **kwargs)
        known = right.get(call)
        result = (checked if known is None else function)(*args, **kwargs)
        try:
            kind = _kind(result)
        except Exception:
            kind = None                                     # never known
        if known is not None and kind not in known:
            handed_out.result = result
            check_of_results()(*args, **kwargs)
        if kind is not None:
            right.setdefault(call, set()).add(kind)
        return result

    return once


def _kind(value: Any) -> Hashable:
    """What of a value decides whether it is right; of a dictionary beartype looks at the first entry, so here too."""
    kind = type(value)
    if kind is np.ndarray:
        return value.shape, value.dtype
    if value is None or kind in (int, bool, str) or isinstance(value, type):
        return kind, value
    if kind is dict:
        return kind, *((type(key), _kind(entry)) for key, entry in islice(value.items(), 1))
    if kind is tuple and len(value) <= 16:
        return kind, *map(_kind, value)
    if kind in (tuple, list):
        raise ValueError("of a list beartype looks at one entry, another one each time")
    if kind in _shapeless:
        return kind
    if type(shape := getattr(value, "shape", None)) is tuple:
        return kind, shape, getattr(value, "dtype", None)
    _shapeless.add(kind)
    return kind


def _own_sizes(function: Callable) -> list[Callable]:
    """The sizes {self.…} of a function's annotations; another name in braces is a whole number among its arguments."""
    names = {name for annotation in function.__annotations__.values() for shape in _shapes(annotation)
             for name in re.findall(r"\{([^}]*)\}", shape)}
    assert all(name.startswith("self.") or name.isidentifier() for name in names), names
    return [attrgetter(name.removeprefix("self.")) for name in sorted(names) if name.startswith("self.")]


def _shapes(annotation: Any) -> Iterator[str]:
    """The shapes in an annotation, as text."""
    if isinstance(annotation, str):
        yield annotation
    elif isinstance(annotation, type) and issubclass(annotation, jaxtyping.AbstractArray):
        yield annotation.dim_str
    else:
        for part in get_args(annotation):
            yield from _shapes(part)


def modules() -> list[str]:
    """Every module of minitp but the unchecked ones."""
    root = Path(__file__).parents[1]
    paths = [path.relative_to(root).with_suffix("") for path in (root / "minitp").rglob("*.py")]
    return sorted({".".join(path.parts) for path in paths if path.name != "__init__"} - _UNCHECKED)


def check_shapes(names: list[str]) -> None:
    """Check the annotations of these modules of minitp when they are imported from now on."""
    early = sorted(name for name in sys.modules if name.startswith("minitp."))
    if early:
        raise RuntimeError(f"imported before their shapes could be checked: {', '.join(early)}")
    jaxtyping.jaxtyped = jaxtyped
    jaxtyping.install_import_hook(names, "tests.shapes.checker")
