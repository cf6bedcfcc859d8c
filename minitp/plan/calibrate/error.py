"""How far a model is from what was measured, in relative terms: from 4 bytes to 16 MiB a time grows a thousandfold."""
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Error:
    """How far a model was from what was measured: median and largest |model / measured − 1|, and where the largest."""
    median: float
    worst: float
    worst_at: int
    points: int

    @classmethod
    def of(cls, pairs: Iterable[tuple[int, float, float]]) -> "Error | None":
        """From (payload, model s, measured s); None where there is nothing to compare."""
        off = [(abs(model / measured - 1), payload) for payload, model, measured in pairs if measured > 0]
        if not off:
            return None
        worst, where = max(off)
        return cls(float(np.median([error for error, _ in off])), float(worst), where, len(off))

    def in_words(self) -> str:
        """off by 6 % in the median, 13 % at most (at 11,584 B)"""
        return f"off by {self.median:.0%} in the median, {self.worst:.0%} at most (at {self.worst_at:,} B)"
