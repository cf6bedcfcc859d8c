"""What a trace's header says of the run, for a closed form. It may be a stranger's: its sizes are looked at first."""
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from minitp.config import ModelConfig
from minitp.errors import FileFormatError
from minitp.placement import Placement
from minitp.trace.columns import LARGEST
from minitp.trace.simulated import is_simulated
from minitp.trace.wording import plain

DTYPES = ("float32", "float64")
MOST = 1_000_000                   # events of a rank: a trace file holds about as many, of all ranks
PARAMETERS = 16                    # of a layer, at most: what loading may scatter


@contextmanager
def told() -> Iterator[None]:
    """Whatever is wrong inside with a header becomes one FileFormatError."""
    try:
        yield
    except (LookupError, TypeError, ValueError) as error:
        why = f"it has no {plain(error.args[0], 40)}" if isinstance(error, KeyError) and error.args else plain(error)
        raise FileFormatError(f"this trace's header doesn't say what was run ({why}): only traces of `minitp "
                              "generate` and `minitp train` can be checked against the closed form") from error


def described(placement: Placement) -> dict[str, Any]:
    """The model and who holds what of it, for a header."""
    return {"model": placement.config.to_dict(),
            "placement": {"ranks": placement.ranks, "embedding": placement.embedding, "cut": placement.cut}}


def placed(run: dict[str, Any], passes: int, per_layer: int) -> Placement:
    """The inverse, for a run whose `passes` have at most `per_layer` events of each layer. ValueError for sizes that
    no trace has: nothing is built from them."""
    config, where = ModelConfig.from_dict(run["model"]), run["placement"]
    if where["ranks"] != run.get("ranks", where["ranks"]) and not is_simulated(run):      # its lanes stand for others
        raise ValueError("it gives two numbers of ranks")
    if config.layers * (passes * per_layer + PARAMETERS) > MOST:
        raise ValueError(f"{config.layers} layers and {passes} passes are more than a file can hold")
    return Placement(config, where["ranks"], where["embedding"], where["cut"])


def check_numbers(numbers: list[Any]) -> None:
    """ValueError unless each of them is a count: a whole number that JSON can carry."""
    if not all(type(number) is int and 0 <= number <= LARGEST for number in numbers):
        raise ValueError("a number that can't be")


def one_of(value: Any, possible: tuple[str, ...], what: str) -> str:
    if value not in possible:
        raise ValueError(f"a {what} that can't be")
    return value
