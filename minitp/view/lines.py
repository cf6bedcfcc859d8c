"""Bytes against something else as lines, and in words: what moves by tokens, what a rank holds step by step."""
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from minitp.errors import ConfigError
from minitp.trace.wording import size

_PLAIN = 1e7                          # below it a number is written in full

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Lines:
    """lines: name → (x, bytes), each with x ascending. across: what x is.

    steps  the bytes stay until the next x, on plain axes; else both axes are logarithmic, and nothing may be 0 or less
    mark   an x to point out, and why
    """
    lines: Mapping[str, Points]
    across: str
    steps: bool = False
    mark: tuple[float, str] | None = None

    def __post_init__(self):
        if not self.lines:
            raise ConfigError("a picture of lines needs one at least: a name, and its points")
        for name, points in self.lines.items():
            if not points or [x for x, _ in points] != sorted(x for x, _ in points):
                raise ConfigError(f"the line {name!r} needs points with ascending x")
            if not all(isfinite(number) for point in points for number in point):
                raise ConfigError(f"the line {name!r} has a point that isn't finite, and no place in a picture")
            if not self.steps and min(min(point) for point in points) <= 0:
                raise ConfigError(f"the line {name!r} has a point at 0 or below, which logarithmic axes can't show; "
                                  "steps=True draws on plain ones")
        if self.mark is not None and not (isfinite(self.mark[0]) and (self.steps or self.mark[0] > 0)):
            raise ConfigError(f"the mark at {self.mark[0]:g} has no place on "
                              f"{'an axis' if self.steps else 'a logarithmic axis, which begins above 0'}")

    @property
    def words(self) -> str:
        """The picture in words."""
        told = [f"Bytes by {self.across}{'' if self.steps else ', both logarithmic'}."]
        for name, points in self.lines.items():
            (first, begin), (last, end) = points[0], points[-1]
            most = max(height for _, height in points)
            peak = f", at most {size(round(most))}" if most > max(begin, end) else ""
            told.append(f"{name}: {size(round(begin))} at {digits(first)}, {size(round(end))} at {digits(last)}{peak}.")
        if self.mark is not None:
            told.append(f"Marked: {self.mark[1]}, at {digits(self.mark[0])}.")
        return " ".join(told)


def digits(x: float) -> str:
    """A place on the axis: 1,000,000; 0.25; from 10 million on 1.2e+07."""
    if abs(x) >= _PLAIN:
        return f"{x:,g}"
    return f"{x:,.0f}" if abs(x) >= 1000 or x == round(x) else f"{x:,.4g}"
