"""jaxtyping's annotations in minitp are plain documentation for a user; here beartype checks every one of them."""
import sys

from beartype import BeartypeConf, beartype
from jaxtyping import install_import_hook

# An int is fine where a float is announced (PEP 484's tower): that is what mypy and Python's own functions hold.
checker = beartype(conf=BeartypeConf(is_pep484_tower=True))


def check_shapes() -> None:
    """Check the annotations of every module of minitp that is imported from now on."""
    early = sorted(name for name in sys.modules if name == "minitp" or name.startswith("minitp."))
    if early:
        raise RuntimeError(f"imported before their shapes could be checked: {', '.join(early)}")
    install_import_hook("minitp", "tests.shapes.checker")
