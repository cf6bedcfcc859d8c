"""What a trace kept of the arrays of a training step's syncs: the loss, the gradients, the optimizer's step.

Of every pass the last position of the first sequence is shown.
"""
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from minitp.view.slots import Slot

if TYPE_CHECKING:
    from minitp.view.sync_arrays import SyncArrays

BACKWARD = ("d_attention", "d_mlp", "d_block", "d_head")
PARTS = ("loss", *BACKWARD, "copies", "norm")
"""The parts of a training step that a generation hasn't, as `part_of_site` names them."""

LOSS = {"loss.max": "largest", "loss.sum": "total", "loss.target": "target"}
"""The sites of the loss: what each makes whole. Before it, every rank has its `own_…`."""

_COLUMN_CUT = re.compile(r"layers\.\d{1,6}\.(attention(?=\.qkv)|mlp(?=\.gate_up|\.up))\.(?:qkv|gate_up|up)")


def part_of_site(site: str, phase: str) -> str | None:
    """The part of a training step that a site is; None where it is one of a forward pass, or not minitp's."""
    if site in LOSS:
        return "loss"
    if phase == "optimizer":
        return {"gradients.copies": "copies", "gradients.norm": "norm"}.get(site, "other")
    if phase != "backward":
        return None
    if site in ("head", "head.input"):
        return "d_head"
    found = _COLUMN_CUT.fullmatch(site)
    return None if found is None else "d_attention" if found[1] == "attention" else "d_mlp"


def training_slots(arrays: "SyncArrays", sync: int) -> list[Slot]:
    """The slots of a sync that belongs to one of PARTS."""
    part, site = arrays.parts[sync], arrays.site[sync]
    if part == "loss":
        return _loss(arrays, sync)
    found = arrays.ends(sync)
    if part == "norm":
        return found + _update(arrays, sync)
    if part == "copies":
        return _with_several_terms(found) + _gradients(arrays, sync, "layers.0.attention", "k", "v")
    if part == "d_head":
        return found + _logits(arrays, sync, site) + _gradients(arrays, sync, *_head_matrix(arrays))
    layer = int(site.split(".")[1])
    at = f"layers.{layer}"
    if part in ("d_attention", "d_block"):
        queries, keys = arrays.held_heads()
        found += arrays.inner(sync, f"{at}.attention", (("dheads", "dheads"), ("dq", "dquery")), axis=queries)
        found += arrays.inner(sync, f"{at}.attention", (("dk", "dkey"), ("dv", "dvalue")), axis=keys)
        found += _gradients(arrays, sync, f"{at}.attention", "q", "k", "v", "o")
    if part in ("d_mlp", "d_block"):
        names = (("dh", "dh"), ("dgate", "dgate"), ("dup", "dup"))
        found += arrays.inner(sync, f"{at}.mlp", names, axis=arrays.held_columns())
        found += _gradients(arrays, sync, f"{at}.mlp", "gate", "up", "down")
    return found + _stream(arrays, sync, part, layer)


def _with_several_terms(ends: list[Slot]) -> list[Slot]:
    """The ends with an example of several terms: `first` and `sum` are of one number, `entry` is its place.

    Most numbers have one term alone, which is no example of a sum. Where no other is known exactly, none is given.
    """
    exact = [slot for slot in ends if slot.exact]
    known = {slot.rank: slot.matrix[-1] for slot in exact if slot.name == "first"}
    known |= {slot.rank: slot.matrix[-1] for slot in exact if slot.name == "in"}
    least = min((len(row) for row in known.values()), default=0)
    terms = sum((row[:least] != 0).astype(int) for row in known.values())
    several = np.flatnonzero(terms > 1) if least else np.array([])
    found = [slot for slot in ends if slot.name not in ("first", "sum")]
    if not len(several):
        return found
    at, whole = int(several[0]), {slot.name for slot in exact}
    names = {"in" if "in" in whole else "first": "first", "out" if "out" in whole else "sum": "sum"}
    found += [replace(slot, name=names[slot.name], matrix=slot.matrix[-1:, at:at + 1])
              for slot in exact if slot.name in names]
    return [*found, Slot("entry", -1, np.array([[at]], float), True, (1,))]


def _stream(arrays: "SyncArrays", sync: int, part: str, layer: int) -> list[Slot]:
    """The gradient that comes in, and that of the stream before this part: what the next one down takes."""
    here = f"layers.{layer}.attention.o" if part == "d_attention" else f"layers.{layer}.mlp.down"
    below = (f"layers.{layer}.attention.o" if part == "d_mlp" else f"layers.{layer - 1}.mlp.down" if layer
             else "embedding")
    return (arrays.inner(sync, here, (("dy", "dy"),), one=True)
            + arrays.inner(sync, below, (("next", "dy"),), one=True))


def _logits(arrays: "SyncArrays", sync: int, site: str) -> list[Slot]:
    if site == "head.input":                                # the gathered ones: what the sync before gave
        return [Slot("dlogits", -1, slot.matrix, slot.exact, slot.shape) for slot in arrays.ends(sync - 1)
                if slot.name == "out" and slot.rank == -1] if sync else []
    return arrays.inner(sync, "head", (("dlogits", "dy"),))


def _head_matrix(arrays: "SyncArrays") -> tuple[str, str]:
    return "", "embedding" if arrays.model["tied"] else "head"


def _gradients(arrays: "SyncArrays", sync: int, at: str, *names: str) -> list[Slot]:
    """The gradients of a part's matrices, as the step has summed them: `dW gate`, by rank."""
    found = []
    for name in names:
        parameter = f"{at}.{name}.weight".lstrip(".")
        for rank, _ in arrays.ranks(sync):
            kept = arrays.trace.array(rank, "optimizer", arrays.step[sync], parameter, "gradient")
            if kept is not None and kept.cells.size:
                found.append(Slot(f"dW {name}", rank, kept.cells, False, kept.shape))
    return found


def _loss(arrays: "SyncArrays", sync: int) -> list[Slot]:
    """This token's numbers: each rank's own of what this sync makes whole, and the whole; its loss at the last."""
    name = LOSS[arrays.site[sync]]
    found = arrays.inner(sync, "loss", (("exps", "exps"),)) + arrays.best(sync)
    for slot in arrays.inner(sync, "loss", (("in", f"own_{name}"),)):
        found += [slot, replace(slot, name="first")] if np.isfinite(slot.matrix).all() else []
    for slot in arrays.inner(sync, "loss", (("out", name),), one=True):
        found += [slot, replace(slot, name="sum")]
    if name == "target":
        found += arrays.inner(sync, "loss", (("total", "total"),), one=True)
    target = arrays.inner(sync, "loss", (("token", "targets"),), one=True)
    if target and target[0].matrix[0, 0] >= 0:                           # a position that doesn't count has no loss
        found += arrays.inner(sync, "loss", (("loss", "losses"),), one=True)
    return found + target + _owner_of(arrays, target)


def _owner_of(arrays: "SyncArrays", target: list[Slot]) -> list[Slot]:
    """The rank that holds the target's logit, -1 where there is no target."""
    if arrays.placement is None or not target:
        return []
    token, cut = target[0].matrix[0, 0], arrays.placement.vocab
    owner = next((rank for rank in range(cut.ranks) if token in cut.of(rank)), -1)
    return [Slot("owner", -1, np.array([[owner]], float), True, (1,))]


def _update(arrays: "SyncArrays", sync: int) -> list[Slot]:
    """Own gradients of layer 0; and of one matrix that the optimizer has shown, its moments and its change."""
    found = _gradients(arrays, sync, "layers.0.attention", "q", "k", "v", "o")
    found += _gradients(arrays, sync, "layers.0.mlp", "gate", "up", "down")
    names = ("first moment", "second moment", "change")
    for parameter in ("layers.0.mlp.down.weight",):
        for name in names:
            for rank, _ in arrays.ranks(sync):
                kept = arrays.trace.array(rank, "optimizer", arrays.step[sync], parameter, name)
                if kept is not None and kept.cells.size:
                    found.append(Slot(name, rank, kept.cells, False, kept.shape))
    return found
