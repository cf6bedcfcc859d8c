"""jaxtyping's annotations in minitp are plain documentation for a user; here beartype checks every one of them."""
import sys
from collections.abc import Callable
from dataclasses import is_dataclass
from pathlib import Path
from types import CodeType
from typing import Any, get_args

import jaxtyping
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

_with_shapes = jaxtyping.jaxtyped
_closures: set[CodeType] = set()            # of which one was checked already


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
            return _with_shapes(what, typechecker=typechecker)
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
