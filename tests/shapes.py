"""jaxtyping's annotations in minitp are plain documentation for a user; here beartype checks every one of them."""
import sys
from collections.abc import Callable
from pathlib import Path

from beartype import BeartypeConf, beartype
from jaxtyping import install_import_hook

# An int is fine where a float is announced (PEP 484's tower): that is what mypy and Python's own functions hold.
_checked = beartype(conf=BeartypeConf(is_pep484_tower=True))

# Their dataclasses refuse a wrong type themselves, in words for the user: those words must not be forestalled here.
_CHECK_THEMSELVES = ("minitp.config", "minitp.placement")

_UNCHECKED = {
    "minitp.cli",                           # Typer passes contexts of a class of its own
    "minitp.checkpoint.gguf",               # reads 100,000 strings one by one: checking each costs 10 s a file
}


def checker(function: Callable) -> Callable:
    if function.__name__ == "__init__" and function.__module__ in _CHECK_THEMSELVES:
        return function
    return _checked(function)


def modules() -> list[str]:
    """Every module of minitp but the unchecked ones."""
    root = Path(__file__).parents[1]
    paths = [path.relative_to(root).with_suffix("") for path in (root / "minitp").rglob("*.py")]
    return sorted({".".join(path.parts) for path in paths if path.name != "__init__"} - _UNCHECKED)


ONLY_ON_MPI = ["minitp.comm.mpi"]


def check_shapes(names: list[str]) -> None:
    """Check the annotations of these modules of minitp when they are imported from now on."""
    early = sorted(name for name in sys.modules if name.startswith("minitp."))
    if early:
        raise RuntimeError(f"imported before their shapes could be checked: {', '.join(early)}")
    install_import_hook(names, "tests.shapes.checker")
