"""A training step's activations on one rank, in closed form: what the layers keep for the backward pass, at its most.

Korthikanti et al. 2022, section 4, count them for kernels that hold 2-byte numbers and 1-byte masks; these are minitp's
own layers, in NumPy: nothing is dropped that a view still shows, and dropout masks are drawn again. `Saved.peak` looks
each time a part's backward has ended, so the most is held at one of four moments:

  loss   all is there: every block, the last norm, the head's input, the exponentials of the logits
  head   of a tied table cut along hidden, whose backward gathers the whole logits' gradient
  norm   the last norm's backward: the loss is gone, two arrays wait for the norm's weights
  block  the last block's backward: with full recomputation it has run again and has kept all of itself

Below the last block each has one less to keep, so those are never more.

W sequences of the step, in windows of T + 1 ids;  the other symbols: `minitp.plan.memory.own`
"""
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from minitp.config import ModelConfig
from minitp.placement import Placement
from minitp.plan.formula import row
from minitp.plan.rows import Kind, Row, total

Batches = Sequence[tuple[int, int]]
"""(sequences, tokens of each) of every micro-batch."""


def activations(placement: Placement, own: dict[str, int], micro_batches: Batches, recompute: str) -> list[Row]:
    """Of the micro-batch that takes most, at the moment when it does. `own`: the rank's symbols."""
    one_length = len({tokens for _, tokens in micro_batches}) == 1
    together = sum(sequences for sequences, _ in micro_batches)
    found = [moment for sequences, tokens in dict.fromkeys(micro_batches)
             for moment in moments(placement, own | {"B": sequences, "T": tokens,
                                                     "W": together if one_length else sequences}, recompute).values()]
    return max(found, key=total, default=[])


def moments(placement: Placement, own: dict[str, int], recompute: str) -> dict[str, list[Row]]:
    """What is kept at each moment that may be the fullest: `own` with B, T and W as well."""
    config = placement.config
    blocks, again = list(_block(config, "L · ", recompute)), []
    if recompute == "full":
        blocks = [Term("inputs of the blocks", "L · B · T · D · s", "minitp.layers.block")]
        again = list(_block(config, "", "none", again=True))
    last = Term("last norm", "B · T · (D + 1) · s", "minitp.layers.norm")
    head = Term("head's input", "B · T · D · s", "minitp.layers.head")
    before = [*_inputs(config, own["T"]), *blocks]
    found = {"loss": [*before, last, head, *_LOSS]}
    if config.tied and placement.embedding == "hidden":
        found["head"] = [*before, last, head, _WHOLE]
    found["norm"] = [*before, last, Term("last norm's gradient and rows", "2 · B · T · D · s", "minitp.layers.norm",
                                         _WAITING)]
    found["block"] = [*before, *again, *_waiting(config)]
    return {name: [row(term.kind, term.name, term.formula, own, term.source, term.note) for term in terms]
            for name, terms in found.items()}


class Term(NamedTuple):
    """A row before its numbers are put in."""
    name: str
    formula: str
    source: str
    note: str = ""
    kind: Kind = "activations"


_WAITING = "backward holds them until the gradients of the weights are added"

_LOSS = [Term("exponentials of the logits", "B · T · V_p · s", "minitp.layers.loss",
              "they become the gradient in place", "logits"),
         Term("their sums", "B · T · s", "minitp.layers.loss", "", "logits")]
_WHOLE = Term("whole logits' gradient", "B · T · V · s", "minitp.layers.head",
              "gathered: every rank's columns of the table met the whole vocabulary", "logits")


def _inputs(config: ModelConfig, tokens: int) -> Iterator[Term]:
    """What a pass is given and every layer's backward reads again."""
    yield Term("ids and targets", "W · (T + 1) · 8", "minitp.train.data",
               "both are views of the step's windows, which all its micro-batches share")
    if config.rotary is not None:
        yield Term("cos and sin of the angles", "B · T · E · s", "minitp.context.plan_pass")
    if tokens > 1:
        yield Term("mask", "T²", "minitp.context.plan_pass", "one byte for each query and slot")


def _block(config: ModelConfig, per: str, recompute: str, again: bool = False) -> Iterator[Term]:
    """What the layers of a block save, times `per`. `again`: run once more from a saved input, which an RMSNorm saves
    too; a LayerNorm saves what it makes of it."""
    norms = "" if config.parallel_block else "2 · "
    rows, whole = f"{per}{norms}B · T", "D + 1"
    if again and config.norm == "rms":
        rows, whole = f"{per}B · T", "1" if config.parallel_block else "D + 2"
    yield Term("norms", f"{rows} · ({whole}) · s", "minitp.layers.norm", "each row, and a number for it")
    yield Term("inputs of q, k, v and of the MLP", f"{per}{norms}B · T · D · s", "minitp.layers.linear",
               "one array for both" if config.parallel_block else "")
    qkv = "3 · (H_p + K_p)" if config.rotary is not None else "2 · (H_p + K_p)"
    yield Term("queries, keys, values", f"{per}B · T · {qkv} · E · s", "minitp.layers.attention",
               "keys and values are views, which keep what they are cut from: turned q and k; and q, k, v"
               if config.rotary is not None else "keys and values are views, which keep the product q, k, v")
    if recompute == "none":
        yield Term("scores", f"{per}B · H_p · T² · s", "minitp.layers.attention")
    yield Term("heads' outputs", f"{per}B · T · H_p · E · s", "minitp.layers.attention")
    yield Term("gate and up" if config.gated else "up", f"{per}{'2 · ' if config.gated else ''}B · T · F_p · s",
               "minitp.layers.mlp")
    yield Term("MLP's inner activations", f"{per}B · T · F_p · s", "minitp.layers.mlp")


def _waiting(config: ModelConfig) -> Iterator[Term]:
    """The gradients at a block's weights, which are added when its input's gradient is known."""
    whole, inner = 3 if config.parallel_block else 6, "2 · F_p" if config.gated else "F_p"
    yield Term("gradients at the norms and products", f"{whole} · B · T · D · s", "minitp.layers.block", _WAITING)
    yield Term("gradients at q, k, v", "B · T · (H_p + 2 · K_p) · E · s", "minitp.layers.attention", _WAITING)
    yield Term("gradients at the MLP's inputs", f"B · T · {inner} · s", "minitp.layers.mlp", _WAITING)
