"""What minitp's own runs hold on a rank, to the byte: planned from the placement and the run's sizes alone.

A plan of other people's machines can only be held against what they published. These rows are held against what runs of
`minitp generate` and `minitp train` count in their own arrays (`minitp.train.memory`, `Generation.held`) and leave in
their traces: a plan that differs by one byte is wrong.

B sequences  T tokens  D hidden  H query heads  K kv heads  E head size  F ffn  V vocabulary  P positions  L layers
S slots of the cache  s bytes per number;  N numbers of the model;  *_p: this rank's share
"""
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

from minitp.cut import Cut
from minitp.errors import ConfigError
from minitp.placement import Parameter, Placement
from minitp.plan.formula import row
from minitp.plan.memory.own_training import Batches, activations
from minitp.plan.rows import KINDS, Row, by_kind, total
from minitp.trace.predict_generation import GenerationPlan
from minitp.trace.predict_header import check_numbers, told
from minitp.trace.predict_pass import RECOMPUTE
from minitp.trace.predict_training import Steps, TrainingPlan

Symbols = dict[str, int]
DTYPES = {"float32": np.float32, "float64": np.float64, "bf16": np.float32}
"""What arrays are made of: numbers that are rounded to bfloat16 lie in float32 arrays."""

UNCOUNTED = (
    "arrays that live within one layer's computing: of a backward pass the gradient on its way down, a part's scores, "
    "dropout masks",
    "the buffer in which copied kv heads' gradients are summed, once the activations are gone",
    "the cache and logits of a sample text while one is written in between",
    "what Python, NumPy, BLAS and MPI take for themselves: minitp bench train measures it",
)
"""What a rank's process takes beside these rows."""

_AXES = {"vocab": "V", "hidden": "D", "head": "H · E", "kv_head": "K · E", "ffn": "F", "position": "P"}


def generation(placement: Placement, rank: int, batch: int, slots: int, *, dtype: str = "float32",
               gathered: bool = True, kept_logits: int = 0) -> list[Row]:
    """What `minitp generate` holds between its passes: of `batch` sequences with `slots` slots of the cache each.

    slots        prompt and new tokens of the longest sequence, one new token at least; never more than positions
    gathered     whether logits are made whole; False: each rank keeps its shard
    kept_logits  tokens of each sequence whose logits are kept (`--logits`), with the latest pass's
    """
    own = symbols(placement, rank, dtype) | {"B": batch, "S": slots, "T": kept_logits}
    vocab = "V" if gathered else "V_p"
    cache = row("kv cache", "keys and values", "2 · L · B · K_p · S · E · s", own, "minitp.context.KVCache",
                "a kv head that two ranks need is held by both" if placement.kv_copied else "")
    logits = (row("logits", "of all tokens", "B · T · V · s", own, "minitp.generate", "kept for --logits")
              if kept_logits else
              row("logits", "of the latest tokens", f"B · {vocab} · s", own, "minitp.generate"))
    return [*weights(placement, rank, dtype), cache, logits]


def slots(longest_prompt: int, max_tokens: int, positions: int) -> int:
    """Slots of the cache that a request takes for each sequence."""
    return min(longest_prompt + max(max_tokens, 1), positions)


def training(placement: Placement, rank: int, batch: int, tokens: int, micro_batches: int = 1, *,
             dtype: str = "float32", recompute: str = "none", dropout: float = 0.0) -> list[Row]:
    """What `minitp train` holds: `batch` sequences of `tokens` tokens a step in so many micro-batches, one at a time.

    As `Held` counts it: activations at their most, what the loss saves among them (here of the kind `logits`).
    """
    parts = tuple((sequences, tokens) for sequences in Cut(batch, micro_batches).sizes)
    return training_on(placement, rank, parts, dtype=dtype, recompute=recompute, dropout=dropout)


def training_on(placement: Placement, rank: int, micro_batches: Batches, *, dtype: str = "float32",
                recompute: str = "none", dropout: float = 0.0) -> list[Row]:
    """The same for micro-batches of any (sequences, tokens); where they differ in tokens, each has windows of its
    own."""
    if recompute not in RECOMPUTE:
        raise ConfigError(f"recomputation is {', '.join(RECOMPUTE)}, not {recompute!r}")
    own = symbols(placement, rank, dtype)
    rows = [*weights(placement, rank, dtype), *states(placement, rank, dtype),
            *activations(placement, own, micro_batches, recompute)]
    if dropout:
        rows.append(row("activations", "dropout masks", "0", own, "minitp.dropout",
                        "drawn again in the backward pass, by site and sequence"))
    return rows


def of_trace(run: dict[str, Any]) -> list[list[Row]]:
    """Rows for each rank of a recorded run, from its trace's header. FileFormatError where that doesn't say enough.

    A header without the cache's slots is of a generation that is taken to have ended by its length. A trace of a
    training without a whole step has rows of its states alone.
    """
    if "training" in run:
        return _of_training(run, TrainingPlan.from_run(run))
    plan = GenerationPlan.from_run(run)
    with told():
        if not plan.passes:
            raise ValueError("no pass")
        longest = plan.passes[0][1]
        here = run["generation"].get("slots", slots(longest, plan.choices, plan.placement.config.positions))
        check_numbers([here])
    kept = longest + max(len(plan.passes) - 1, 1) if plan.every_row else 0
    return [generation(plan.placement, rank, plan.batch, here, dtype=plan.dtype, gathered=plan.gathered,
                       kept_logits=kept) for rank in range(plan.placement.ranks)]


def _of_training(run: dict[str, Any], plan: TrainingPlan) -> list[list[Row]]:
    with told():
        settings = dict(run["training"].get("settings", {}))
        dtype = "bf16" if settings.get("dtype") == "bf16" else plan.dtype
        dropout = float(settings.get("dropout", 0))
    steps = dict.fromkeys(segment.micro_batches for segment in plan.segments if isinstance(segment, Steps))
    return [max((training_on(plan.placement, rank, sizes, dtype=dtype, recompute=plan.recompute, dropout=dropout)
                 for sizes in steps or [()]), key=total) for rank in range(plan.placement.ranks)]


def held_in_trace(run: dict[str, Any]) -> list[dict[str, int]] | None:
    """Bytes by kind that each rank has counted in its own arrays, as the run's header tells; None where it doesn't."""
    if run.get("memory") is None:
        return None
    with told():
        table = run["memory"]
        if not isinstance(table, list) or len(table) != run["ranks"]:
            raise ValueError("memory of other ranks than it has")
        for kinds in table:
            if not isinstance(kinds, dict) or not set(kinds) <= set(KINDS):
                raise ValueError("memory of a kind that can't be")
            check_numbers(list(kinds.values()))
    return table


def held(rows: Iterable[Row]) -> dict[str, int]:
    """Bytes by kind as a run counts them: a training run's logits and probabilities are activations of it."""
    kinds: dict[str, int] = {str(kind): size for kind, size in by_kind(rows).items()}
    if "gradients" in kinds:
        kinds["activations"] = kinds.get("activations", 0) + kinds.pop("logits", 0)
    return kinds


# --- what every run has: weights; what every training has: their gradients and the optimizer's state ----------------


def symbols(placement: Placement, rank: int, dtype: str) -> Symbols:
    """The sizes of the model, and this rank's shares of them."""
    if not 0 <= rank < placement.ranks:
        raise ConfigError(f"rank {rank} is not one of 0…{placement.ranks - 1}")
    if dtype not in DTYPES:
        raise ConfigError(f"a run computes in {', '.join(DTYPES)}, not {dtype!r}")
    c, share = placement.config, {axis: len(placement.held(axis, rank)) for axis in ("vocab", "hidden", "ffn")}
    return {"V": c.vocab, "D": c.hidden, "E": c.head_size, "P": c.positions, "L": c.layers,
            "V_p": share["vocab"], "D_p": share["hidden"], "F_p": share["ffn"],
            "H_p": len(placement.heads.of(rank)), "K_p": len(placement.kv_heads(rank)),
            "s": np.dtype(DTYPES[dtype]).itemsize}


def weights(placement: Placement, rank: int, dtype: str) -> list[Row]:
    """A row for each part of the model: its parameters' shapes on this rank, from the placement's table."""
    own, shapes = symbols(placement, rank, dtype), _shapes(placement)
    rows = []
    for term, products in shapes.items():
        each = " + ".join(shape if n == 1 else f"{n} · {shape}" for shape, n in products.items())
        factor, several = "L · " if term in _IN_LAYERS else "", len(products) > 1
        note = "the head uses this table too" if term == "embedding" and placement.config.tied else ""
        rows.append(row("weights", term, f"{factor}({each}) · s" if several else f"{factor}{each} · s", own,
                        "minitp.weights", note))
    return rows


def states(placement: Placement, rank: int, dtype: str) -> list[Row]:
    """Gradients, in float32 at least, and AdamW's moments; in bf16 mode the master weights as well."""
    size = np.dtype(DTYPES[dtype]).itemsize
    own = {"N_p": total(weights(placement, rank, dtype)) // size, "s": size,
           "g": np.promote_types(DTYPES[dtype], np.float32).itemsize}
    rows = [row("gradients", "sums over the micro-batches", "N_p · g", own, "minitp.gradients"),
            row("optimizer", "Adam's two moments", "2 · N_p · s", own, "minitp.train.optimizer")]
    if dtype == "bf16":
        rows.append(row("optimizer", "master weights", "N_p · s", own, "minitp.train.optimizer",
                        "float32: a step of a thousandth of a weight is lost in bfloat16's 8 bits"))
    return rows


_IN_LAYERS = ("attention", "MLP", "norms of the layers")


def _shapes(placement: Placement) -> dict[str, Counter[str]]:
    """Part of the model → how many of its parameters have which shape, of one layer where it is one of the layers'."""
    found: dict[str, Counter[str]] = {}
    for parameter in placement.parameters:
        if parameter.name.startswith("layers.") and not parameter.name.startswith("layers.0."):
            continue
        found.setdefault(_part(parameter.name), Counter())[_shape(parameter)] += 1
    return found


def _part(name: str) -> str:
    if name.startswith("layers."):
        module = name.split(".")[2]
        return {"attention": "attention", "mlp": "MLP"}.get(module, "norms of the layers")
    return {"norm": "last norm"}.get(name.split(".")[0], name.split(".")[0])


def _shape(parameter: Parameter) -> str:
    """K_p · E · D: the cut axis first, so that matrices of one size are counted together."""
    axes = [_AXES[axis] for axis in parameter.axes]
    if parameter.cut_axis is not None:
        cut = axes.pop(parameter.cut_axis)
        axes.insert(0, f"{cut[0]}_p{cut[1:]}")
    return " · ".join(axes)
