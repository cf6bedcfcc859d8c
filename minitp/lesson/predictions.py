"""The reader's guess before a run, and the comparison after it."""
from dataclasses import dataclass
from typing import Any

from minitp.errors import ConfigError

_HOW = "Put your own in place of None in the cell above, and run both cells again."
_CLOSE = 2.0                            # within this factor an estimate is a good one
_ESTIMATED = 100                        # whole numbers from here on are estimated, smaller ones counted


@dataclass(frozen=True)
class Prediction:
    """A question and what the reader expects: a number, a word, True or False; None: no guess yet."""
    question: str
    guess: float | str | bool | None

    def check(self, found: float | str | bool, because: str = "") -> None:
        """Print what was found beside the guess, and why it is so."""
        says = f"The run says: {_text(found)}."
        if self.guess is None:
            print(f"No guess yet. {says} {_HOW}")
        else:
            print(f"You said {_text(self.guess)}. {says} {_verdict(self.guess, found)}")
        if because:
            print(f"Why: {because}")


def predict(question: str, guess: Any = None) -> Prediction:
    """The question before a main cell. `guess` is the reader's; what it is compared with comes after the run."""
    if guess is not None and not isinstance(guess, bool | int | float | str):
        raise ConfigError(f"a guess is a number, a word, True or False; this one is a {type(guess).__name__}")
    return Prediction(question, guess)


def _text(value: float | str | bool) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e15 else f"{value:.4g}"


def _verdict(guess: float | str | bool, found: float | str | bool) -> str:
    if isinstance(found, bool | str) or isinstance(guess, bool | str):
        return "Right." if _word(guess) == _word(found) else "Not so."
    if guess == found or abs(guess - found) <= 1e-9 * abs(found):
        return "Right."
    if found and guess / found > 0:
        times = max(guess / found, found / guess)
        if times <= _CLOSE and (isinstance(found, float) or abs(found) >= _ESTIMATED):
            return f"Close: off by a factor of {times:.2f}."
        return f"Too {'high' if guess > found else 'low'} by a factor of {times:,.3g}."
    return f"Off by {abs(guess - found):,.4g}."


def _word(value: float | str | bool) -> str:
    """As it is compared: True may be said as yes, and all_reduce as all-reduce."""
    said = _text(value).strip().casefold().replace("_", " ").replace("-", " ")
    return {"true": "yes", "false": "no"}.get(said, said)
