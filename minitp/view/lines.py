"""Bytes against something else as lines, and in words: what moves by tokens, what a rank holds step by step."""
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from minitp.errors import ConfigError
from minitp.trace.wording import size

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
        for name, points in self.lines.items():
            if not points or [x for x, _ in points] != sorted(x for x, _ in points):
                raise ConfigError(f"the line {name!r} needs points with ascending x")
            if not self.steps and min(min(point) for point in points) <= 0:
                raise ConfigError(f"the line {name!r} has a point at 0 or below, which logarithmic axes can't show; "
                                  "steps=True draws on plain ones")

    @property
    def words(self) -> str:
        """The picture in words."""
        told = [f"Bytes by {self.across}{'' if self.steps else ', both logarithmic'}."]
        for name, points in self.lines.items():
            (first, begin), (last, end) = points[0], points[-1]
            most = max(height for _, height in points)
            peak = f", at most {size(round(most))}" if most > max(begin, end) else ""
            told.append(f"{name}: {size(round(begin))} at {first:,g}, {size(round(end))} at {last:,g}{peak}.")
        if self.mark is not None:
            told.append(f"Marked: {self.mark[1]}, at {self.mark[0]:,.0f}.")
        return " ".join(told)
