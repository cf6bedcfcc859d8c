"""jaxtyping's annotations in minitp are plain documentation for a user; here beartype checks every one of them."""
import sys
from collections.abc import Callable

from beartype import BeartypeConf, beartype
from jaxtyping import install_import_hook

# An int is fine where a float is announced (PEP 484's tower): that is what mypy and Python's own functions hold.
_checked = beartype(conf=BeartypeConf(is_pep484_tower=True))

# Their dataclasses refuse a wrong type themselves, in words for the user: those words must not be forestalled here.
_CHECK_THEMSELVES = ("minitp.config", "minitp.placement")


def checker(function: Callable) -> Callable:
    if function.__name__ == "__init__" and function.__module__ in _CHECK_THEMSELVES:
        return function
    return _checked(function)


def check_shapes() -> None:
    """Check the annotations of every module of minitp that is imported from now on."""
    import minitp.cli  # noqa: F401  (unchecked: Typer passes contexts of its own class; it imports no other module)
    early = sorted(name for name in sys.modules if name.startswith("minitp.") and name != "minitp.cli")
    if early:
        raise RuntimeError(f"imported before their shapes could be checked: {', '.join(early)}")
    install_import_hook("minitp", "tests.shapes.checker")
