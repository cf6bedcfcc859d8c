"""The closed form of a generation: loading, and a pass over the prompt and over every new token."""
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from minitp.placement import Placement
from minitp.trace.predict_header import DTYPES, check_numbers, described, one_of, placed, told
from minitp.trace.predict_pass import Pass, loading
from minitp.trace.schema import Expected


@dataclass(frozen=True)
class GenerationPlan:
    """What of a generation decides its collectives.

    passes      (phase, tokens per row) of each forward pass, in order; decode pass k gives token k
    choices     how many tokens were chosen: with sharded logits each is one exchange
    candidates  how many winners each rank offers in it
    broken      sites whose all-reduce is skipped on purpose: their events carry nothing
    """
    placement: Placement
    load: str
    dtype: str
    batch: int
    passes: Sequence[tuple[str, int]]
    choices: int
    gathered: bool = True
    every_row: bool = False
    candidates: int = 2
    broken: tuple[str, ...] = ()

    @classmethod
    def from_run(cls, run: dict[str, Any]) -> "GenerationPlan":
        """From a trace's header. FileFormatError where it doesn't say, or what can't be."""
        with told():
            what = run["generation"]
            passes = [(str(phase), tokens) for phase, tokens in what["passes"]]
            check_numbers([what["batch"], what["choices"], what["candidates"], *(tokens for _, tokens in passes)])
            broken = what.get("broken", [])
            if not isinstance(broken, list) or not all(isinstance(site, str) for site in broken):
                raise ValueError("sites that are no words")
            return cls(placed(run, len(passes), 2), what["load"], one_of(what["dtype"], DTYPES, "dtype"),
                       what["batch"], passes, what["choices"], what["gathered"], what["every_row"], what["candidates"],
                       tuple(broken))

    def to_run(self) -> dict[str, Any]:
        """The inverse, for a trace's header."""
        return {**described(self.placement),
                "generation": {"load": self.load, "dtype": self.dtype, "batch": self.batch,
                               "passes": [list(p) for p in self.passes], "choices": self.choices,
                               "gathered": self.gathered, "every_row": self.every_row, "candidates": self.candidates,
                               "broken": list(self.broken)}}

    def events(self) -> Iterator[Expected]:
        """Every event of the planes data and sample, in order."""
        if self.load == "scatter":
            yield from loading(self.placement, self.dtype)
        broken = frozenset(self.broken)
        for step, (phase, tokens) in enumerate(self.passes):
            yield from (event._replace(broken=True, payload=0) if event.site in broken else event
                        for event in forward_pass(self, phase, step, tokens))
            if not self.gathered and step < self.choices:
                yield _exchange(self, phase, step)


def forward_pass(plan: GenerationPlan, phase: str, step: int, tokens: int) -> Iterator[Expected]:
    """The events of one pass over `tokens` tokens of each sequence: see `Pass.forward`."""
    one = Pass(plan.placement, plan.dtype, plan.batch, tokens, phase, step)
    return one.forward(plan.gathered, None if plan.every_row else 1)


def _exchange(plan: GenerationPlan, phase: str, step: int) -> Expected:
    """The winners of every shard: (logit, id) pairs in float64."""
    shape = (plan.batch, plan.candidates * plan.placement.ranks, 2)
    return Expected("all_gather", "sample", "sample", phase, step, None, "float64", shape, prod(shape) * 8,
                    "shard(-2)", "whole")
