"""How far the model of a training step is off: its steps of the catalogue's published runs against what they took."""
from collections.abc import Mapping
from functools import cache
from statistics import median
from typing import Any, NamedTuple

from minitp.plan import catalogue
from minitp.plan.catalogue import PublishedRun
from minitp.plan.speed.step import StepTime, training_step
from minitp.plan.units import percent


class Against(NamedTuple):
    """Planned seconds of a step over those it took, by run; the nearest to 1 first."""
    ratios: Mapping[str, float]

    @property
    def typical(self) -> float:
        """Half of the runs are off by less, as a share of what they took."""
        return median(abs(ratio - 1) for ratio in self.ratios.values())

    @property
    def text(self) -> str:
        """One line to stand beside a planned step."""
        return self.about("this model's step")

    def about(self, whose: str) -> str:
        """The same where another time stands there: `whose` step it is that was held against them."""
        low, high = min(self.ratios.values()) - 1, max(self.ratios.values()) - 1
        return (f"Against {len(self.ratios)} published runs {whose} is off by {_signed(low)} … "
                f"{_signed(high)}, half of them by less than {percent(self.typical)}.")

    def to_plain(self) -> dict[str, Any]:
        return {"runs": len(self.ratios), "lowest": min(self.ratios.values()), "highest": max(self.ratios.values()),
                "median off": self.typical, "planned / published": dict(self.ratios)}


@cache
def published() -> Against:
    """Of all runs of the catalogue whose layout and speed were published. Worked out once: a quarter of a second."""
    known = {run.name: ratio for run in catalogue.runs().values() if (ratio := _ratio(run)) is not None}
    return Against(dict(sorted(known.items(), key=lambda item: abs(item[1] - 1))))


def _ratio(run: PublishedRun) -> float | None:
    """By the first of these that was published: seconds, a rate, a utilization. None where a step can't be planned."""
    if run.layout is None:
        return None
    time = training_step(run.model, run.layout, run.training, run.machine)
    return next((planned / run.published[what] if what == "step_seconds" else run.published[what] / planned
                 for what, planned in rates(time).items() if what in run.published), None)


def rates(time: StepTime) -> dict[str, float]:
    """A planned step in the units of what is published of runs (`catalogue.PUBLISHED`)."""
    return {"step_seconds": time.seconds, "tflops": time.flops_per_device / 1e12, "hfu": time.hfu, "mfu": time.mfu,
            "tokens_per_s_gpu": time.tokens_per_s_each}


def _signed(share: float) -> str:
    return f"{'−' if share < 0 else '+'}{percent(abs(share))}"
