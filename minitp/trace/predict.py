"""The closed form: every collective of a run, foretold from the model's sizes and the placement alone.

`minitp trace check` compares it with what was recorded: count, order, states, shapes, dtype and payload, exactly. For a
pass over B sequences of T tokens of a model with L layers it comes to 2L + 2 sync points; B and T change bytes only.
"""
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from minitp.config import ModelConfig
from minitp.errors import FileFormatError
from minitp.placement import Placement
from minitp.trace.schema import Expected

DTYPES = ("float32", "float64")
MOST = 1_000_000                   # events of a rank: a trace file holds about as many, of all ranks
PARAMETERS = 16                    # of a layer, at most: what loading may scatter


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
        """From a trace's header. It may be a stranger's, so nothing is built from it before its sizes are sane."""
        try:
            config, where, what = ModelConfig.from_dict(run["model"]), run["placement"], run["generation"]
            passes = [(str(phase), tokens) for phase, tokens in what["passes"]]
            sizes = [what["batch"], what["choices"], what["candidates"], *(tokens for _, tokens in passes)]
            if not all(type(size) is int and size >= 0 for size in sizes) or what["dtype"] not in DTYPES:
                raise ValueError("a number or dtype that can't be")
            broken = what.get("broken", [])
            if not isinstance(broken, list) or not all(isinstance(site, str) for site in broken):
                raise ValueError("sites that are no words")
            if where["ranks"] != run.get("ranks", where["ranks"]):
                raise ValueError("it gives two numbers of ranks")
            if config.layers * (len(passes) + PARAMETERS) > MOST:
                raise ValueError(f"{config.layers} layers and {len(passes)} passes are more than a file can hold")
            return cls(Placement(config, where["ranks"], where["embedding"], where["cut"]), what["load"], what["dtype"],
                       what["batch"], passes, what["choices"], what["gathered"], what["every_row"], what["candidates"],
                       tuple(broken))
        except (KeyError, TypeError, ValueError) as error:
            raise FileFormatError(f"this trace's header doesn't say what was run ({error!r}): only traces of "
                                  "`minitp generate` can be checked against the closed form") from error

    def to_run(self) -> dict[str, Any]:
        """The inverse, for a trace's header."""
        return {"model": self.placement.config.to_dict(),
                "placement": {"ranks": self.placement.ranks, "embedding": self.placement.embedding,
                              "cut": self.placement.cut},
                "generation": {"load": self.load, "dtype": self.dtype, "batch": self.batch,
                               "passes": [list(p) for p in self.passes], "choices": self.choices,
                               "gathered": self.gathered, "every_row": self.every_row, "candidates": self.candidates,
                               "broken": list(self.broken)}}


def predict(plan: GenerationPlan) -> list[Expected]:
    """Every event of the planes data and sample, in order."""
    events = list(_loading(plan)) if plan.load == "scatter" else []
    broken = frozenset(plan.broken)
    for step, (phase, tokens) in enumerate(plan.passes):
        events += (event._replace(broken=True, payload=0) if event.site in broken else event
                   for event in forward_pass(plan, phase, step, tokens))
        if not plan.gathered and step < plan.choices:
            events.append(_exchange(plan, phase, step))
    return events


def forward_pass(plan: GenerationPlan, phase: str, step: int, tokens: int) -> Iterator[Expected]:
    """2L + 2 events with gathered logits; one less with shards of a vocabulary-cut head; L fewer of parallel blocks."""
    placement, c = plan.placement, plan.placement.config

    def event(op: str, site: str, before: str, after: str, *shape: int) -> Expected:
        return Expected(op, site, "data", phase, step, plan.dtype, shape, prod(shape) * np.dtype(plan.dtype).itemsize,
                        before, after)

    activation = (plan.batch, tokens, c.hidden)
    if placement.embedding == "hidden":
        yield event("all_gather", "embedding", "shard(-1)", "whole", *activation)
    else:
        yield event("all_reduce", "embedding", "partial", "whole", *activation)
    for layer in range(c.layers):
        if not c.parallel_block:
            yield event("all_reduce", f"layers.{layer}.attention.o", "partial", "whole", *activation)
        yield event("all_reduce", f"layers.{layer}.mlp.down", "partial", "whole", *activation)
    logits = (plan.batch, tokens if plan.every_row else 1, c.vocab)
    if c.tied and placement.embedding == "hidden":
        yield (event("all_reduce", "head", "partial", "whole", *logits) if plan.gathered
               else event("reduce_scatter", "head", "partial", "shard(-1)", *logits))
    elif plan.gathered:
        yield event("all_gather", "head", "shard(-1)", "whole", *logits)


def _exchange(plan: GenerationPlan, phase: str, step: int) -> Expected:
    """The winners of every shard: (logit, id) pairs in float64."""
    shape = (plan.batch, plan.candidates * plan.placement.ranks, 2)
    return Expected("all_gather", "sample", "sample", phase, step, "float64", shape, prod(shape) * 8, "shard(-2)",
                    "whole")


def _loading(plan: GenerationPlan) -> Iterator[Expected]:
    """One event per logical parameter, in table order."""
    size = np.dtype(plan.dtype).itemsize
    c = plan.placement.config
    copies = sum(len(plan.placement.kv_heads(rank)) for rank in plan.placement.ranks_with_heads)
    for p in plan.placement.parameters:
        if p.cut_axis is None:
            yield Expected("broadcast", p.name, "data", "load", None, plan.dtype, p.shape, p.size * size, "on root",
                           "whole")
        else:
            sent = p.size // c.kv_heads * copies if p.gradient == "partial" else p.size      # a copy is sent once more
            yield Expected("scatter", p.name, "data", "load", None, plan.dtype, p.shape, sent * size, "on root",
                           f"shard({p.cut_axis})")
