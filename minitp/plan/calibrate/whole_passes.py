"""What a pass takes beside reading and products, and how near the model of a token comes to real ones.

A layer costs its norms, rotations, softmax and some 60 calls of Python and NumPy however small it is: models without
any work to speak of are decoded by each rank alone, and two numbers fit their times. Then two other models are decoded
by all ranks: their tokens, held against the description, are the stated error of a token.
"""
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from minitp.bench.measure import every_rank, own_recorder
from minitp.comm import Communicator
from minitp.comm.threads import ThreadTransport, ThreadWorld
from minitp.config import ModelConfig
from minitp.cut import Slices
from minitp.generate import Generation, Request, run
from minitp.model import Transformer
from minitp.placement import Parameter, Placement
from minitp.trace.file import Trace
from minitp.trace.merge import align_clocks, collect, run_info
from minitp.trace.predict import GenerationPlan, predict
from minitp.weights import load_weights

if TYPE_CHECKING:
    from minitp.plan.check.pass_times import PassCompared
    from minitp.plan.machine import Machine

SHALLOW, DEEP = 2, 10                   # layers of the models whose tokens cost nothing but their layers
SMALL, LARGE = (32, 2, 64, 256), (512, 8, 1408, 8192)
"""hidden, layers, ffn, vocabulary of the models that test the description: in the caches, and not."""
TOKENS, FEW_TOKENS = 24, 8
PROMPT = (1, 2, 3, 4)


class Halves:
    """A model whose numbers are all the same: what a pass takes doesn't depend on them, and none is drawn."""

    def __init__(self, config: ModelConfig):
        self.config = config

    def read(self, _parameter: Parameter, slices: Slices, dtype: Any = np.float32) -> np.ndarray:
        return np.full([part.stop - part.start for part in slices], 2.0**-6, dtype)


def sized(hidden: int, layers: int, ffn: int, vocab: int, ranks: int) -> ModelConfig:
    """A model that can be cut for these ranks: with a head for each, and a piece of everything else."""
    heads = max(8, ranks)
    return ModelConfig(name="calibrate", hidden=max(hidden, ranks), layers=layers, heads=heads, kv_heads=heads,
                       head_size=max(8, hidden // heads // 2 * 2), ffn=max(ffn, ranks), vocab=max(vocab, ranks),
                       positions=64, tied=True)


def decoded(group: Communicator, config: ModelConfig, tokens: int) -> Trace | None:
    """The trace of a short generation on all ranks of the group; on rank 0, None on the others."""
    placement = Placement(config, group.size)
    weights = load_weights(Halves(config), placement, group)
    with own_recorder(group) as recorder:
        align_clocks(group)
        generation = Generation(Transformer(config, placement, group), weights, Request((PROMPT,), max_tokens=tokens))
        run(generation)
        plan = GenerationPlan(placement, "slice", str(generation.dtype), 1, generation.passes, tokens)
        return collect(group, recorder, run_info(group, **plan.to_run()))


def overhead(group: Communicator, quick: bool = False) -> dict[str, float]:
    """{"layer_s", "pass_s"}: s of a layer and of a pass beside products and reading, on the slowest rank, all at once.

    The lower quartile of the tokens counts, as of collectives. The same on every rank.
    """
    from minitp.plan.check.pass_times import measured
    alone = Communicator(ThreadTransport(ThreadWorld(1), 0))
    shallow, deep = (every_rank(group, [_quick_quarter(measured(trace, ("decode",))[1:, 1])]).max() for trace in (
        decoded(alone, sized(64, layers, 64, 64, 1), FEW_TOKENS if quick else TOKENS) for layers in (SHALLOW, DEEP))
        if trace is not None)
    layer = max(0.0, float(deep - shallow) / (DEEP - SHALLOW))
    return {"layer_s": layer, "pass_s": max(0.0, float(shallow) - SHALLOW * layer)}


def _quick_quarter(times: np.ndarray) -> float:
    return float(np.percentile(times, 25)) if len(times) else 0.0


def tokens(group: Communicator, quick: bool = False) -> tuple[Trace, ...]:
    """Decoding by all ranks of a model that fits in the caches and of one that doesn't. On rank 0; () on the others."""
    count = FEW_TOKENS if quick else TOKENS
    traces = [decoded(group, sized(*sizes, group.size), count) for sizes in (SMALL, LARGE)]
    return tuple(trace for trace in traces if trace is not None)


def told(traces: tuple[Trace, ...], machine: "Machine") -> list[tuple[int, "PassCompared"]]:
    """(bytes of a rank's weights, a token modeled beside measured) of each trace."""
    from minitp.plan.check.pass_times import passes
    found = []
    for trace in traces:
        plan = GenerationPlan.from_run(trace.run)
        of_rank = plan.placement.elements(0) * np.dtype(plan.dtype).itemsize
        found += [(of_rank, one) for one in passes(trace, plan, machine, predict(plan)) if one.unit == "decode"]
    return found


def known_overhead(measured: Mapping[str, Any]) -> tuple[float, float] | None:
    """(s of a layer, s of a pass) of a machine's description, whose file may be a stranger's; None where none is."""
    facts = measured.get("overhead", {})
    numbers = [facts.get(name) for name in ("layer_s", "pass_s")] if isinstance(facts, Mapping) else []
    fine = [float(n) for n in numbers if isinstance(n, (int, float)) and not isinstance(n, bool) and 0 <= n < 1e3]
    return (fine[0], fine[1]) if len(fine) == 2 else None
