"""A part of a pass as rows of a picture, from top to bottom: an array in its state on every rank, a step, a sync."""
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from minitp.comm.states import SLICE, WHOLE, State
from minitp.trace.wording import count, dimensions, size
from minitp.view.chain import Step
from minitp.view.cut_words import NAMES, SPLITS, why
from minitp.view.cuts import CutPlan

TITLES = {"embedding": "Embedding", "attention": "Attention", "mlp": "MLP", "head": "Head"}

_ARRAYS = {"embedding": "x", "norm": "norm x", "qkv": "q, k, v", "heads": "heads", "o": "y", "gate_up": "gate, up",
           "activation": "h", "down": "y", "residual": "x", "head": "logits", "sample": "next token"}
_STEPS = {"norm": "norm", "heads": "rotary and softmax, head by head", "residual": "x + y",
          "sample": "choose the next token"}


@dataclass(frozen=True)
class Row:
    """array  `spans` says which part of its width each rank holds, as fractions; `detail` shape and state
    work   a step: a product, a norm, …
    sync   a collective; `why`
    slice  what is taken for free; `why`
    """
    kind: Literal["array", "work", "sync", "slice"]
    text: str
    detail: str = ""
    state: State = WHOLE
    spans: tuple[tuple[float, float], ...] = ()
    why: str = ""


def rows(plan: CutPlan, part: str) -> tuple[Row, ...]:
    """The rows of one part, an array first and last."""
    links = plan.chains[part]
    first = links[0]
    made = [_array(plan, part, "token, one-hot" if part == "embedding" else "x", first.before, first.width,
                   first.axis)]
    for number, link in enumerate(links):
        if link.change is not None:
            made += [_change(plan, part, number),
                     _array(plan, part, made[-1].text, link.taken, link.width, link.axis)]
        if part == "embedding" and link.step.name == "residual":
            return tuple(made)
        made.append(Row("work", _work(plan, link.step)))
        if link.step.name not in ("residual", "sample"):
            made.append(_array(plan, part, _array_name(plan, link.step), link.after, link.step.width, link.step.axis))
    if part == "head":
        return tuple(made)
    return (*made, _array(plan, part, "x", links[-1].after, links[-1].step.width, links[-1].step.axis))


def table(plan: CutPlan) -> list[dict[str, str]]:
    """All parts as text, a row of the picture each."""
    return [{"part": TITLES[part], "step": row.text, "shape and state": row.detail, "why": row.why}
            for part in plan.chains for row in rows(plan, part)]


def _array(plan: CutPlan, part: str, name: str, state: State, width: int, axis: str) -> Row:
    detail = f"{dimensions((plan.rows(part), width))}, {'partial sum' if state.kind == 'partial' else state.kind}"
    return Row("array", name, detail, state, _spans(plan, state, axis))


def _spans(plan: CutPlan, state: State, axis: str) -> tuple[tuple[float, float], ...]:
    ranks = range(plan.placement.ranks)
    if state.kind != "shard":
        return ((0.0, 1.0),) * len(ranks)
    held = [plan.placement.held(axis, rank) for rank in ranks]
    whole = max(piece.stop for piece in held)
    return tuple((piece.start / whole, piece.stop / whole) for piece in held)


def _change(plan: CutPlan, part: str, number: int) -> Row:
    links = plan.chains[part]
    link = links[number]
    if link.change == SLICE:
        return Row("slice", "each rank takes its slice: free", why=why(links, number))
    payload = plan.rows(part) * link.width * plan.item_bytes
    return Row("sync", str(link.change).replace("_", "-"), size(payload), why=why(links, number))


def _work(plan: CutPlan, step: Step) -> str:
    if step.split is not None:
        name = NAMES[step.name] if step.name != "gate_up" or plan.placement.config.gated else "up"
        return f"multiply by {name}, {'held ' if step.split == 'whole' else 'cut '}{SPLITS[step.split]}"
    if step.name == "activation":
        return "act(gate) × up" if plan.placement.config.gated else "act(up)"
    return _STEPS[step.name]


def _array_name(plan: CutPlan, step: Step) -> str:
    return "up" if step.name == "gate_up" and not plan.placement.config.gated else _ARRAYS[step.name]


def description(rows: Sequence[Row]) -> str:
    """The alternative text: the chain in words."""
    said = [f"{row.text} ({row.detail})" if row.detail else row.text for row in rows]
    return f"On {count(len(rows[0].spans), 'rank')}, from top to bottom: " + "; ".join(said) + "."
