"""The picture of a training step in words: what its parts compute, what they give, what they feed."""
from collections.abc import Mapping

from minitp.trace.schema import MESSAGES
from minitp.trace.wording import plain
from minitp.view.reading import PlayReader, SyncView

PART_NAMES = {"d_mlp": "MLP", "d_attention": "attention", "d_block": "attention + MLP", "d_head": "head",
              "copies": "copied heads", "norm": "gradient norm"}

_G = "dy is whole on every rank, so behind the row cut (g) nothing is sent"
_WORK: Mapping[str, str] = {
    "loss.max": "each rank looks for the largest of its own logits, at every position.",
    "loss.sum": "each rank takes exp(logit − m) of its own logits and adds them up: one number a position.",
    "loss.target": "the rank that has the target's logit z puts in z − m, the others put in 0.",
    "d_mlp": f"{_G}: each rank multiplies dy by its own rows of W down, turned: its own entries of dh. Times the "
             "activation's slope, then by its own columns of the first cut, turned: a partial sum of dx.",
    "d_attention": f"{_G}: each rank takes dy back through its own rows of Wo, its own heads and its own columns of "
                   "Wq, Wk and Wv: a partial sum of dx, one for all three.",
    "d_block": f"{_G}: each rank takes dy back through its heads and through its part of the MLP, and adds the two "
               "partial sums: one sync for both.",
    "copies": "a kv head that several ranks hold has on each the gradient of that rank's query heads alone. Each lays "
              "its own heads into one buffer of all kv heads, zeros where it holds none.",
    "norm": "each rank adds up the squares of its own gradients, every parameter on one rank only.",
}


def work(sync: SyncView) -> str:
    """What each rank computes before a sync of one of the parts of training; "" for other parts."""
    if sync.part != "d_head":
        return _WORK.get(sync.site if sync.part == "loss" else sync.part, "")
    if sync.before == "partial":
        return ("each rank multiplies the gradient of its own logits, softmax − target, by its own rows of the "
                "vocabulary: a partial sum of dx.")
    return ("each rank multiplies the gradient of all logits by its own columns of the table: its own columns of dx."
            if sync.site == "head.input" else "each rank has the gradient of its own logits: softmax − target.")


def symbol(sync: SyncView, entry: int) -> str:
    """What the equation of a sync is about; `entry`: which number of its array, where it is one of several."""
    if sync.part == "loss":
        return {"loss.sum": "Z", "loss.target": "z − m"}.get(sync.site, "m")
    return {"norm": "Σ g²", "copies": f"dW[{entry}]"}.get(sync.part, "dx[0]" if sync.part.startswith("d_") else "y[0]")


def afterwards(reader: PlayReader, sync: SyncView, number: str) -> str:
    """What follows a sync of one of the parts of training; "" for other parts. `number`: its result or "", in words."""
    stream = ("every rank has the same dx, takes it back through the norm and adds dy, which came by the residual "
              "path; it feeds {}. dW = dyᵀ x of its own shards stays with each rank: nothing is sent.")
    shown = f" ({number} at the position shown)" if number else ""
    never_all = "" if reader.ranks == 1 else "; no rank ever had all logits"
    if is_again(sync):
        return ("every rank has the same y again; the norm before the MLP reads it." if sync.part == "attention" else
                f"every rank has the same y again; what the ranks kept on the way feeds the backward of layer "
                f"{sync.layer}, which comes next.")
    if sync.part == "d_head":
        return ("every rank has the gradient of all logits: what its own columns of the table met." if sync.site ==
                "head" and sync.before != "partial" else f"every rank has the same dx; through the last norm it feeds "
                f"{_block(reader, reader.model['layers'] - 1, 'MLP')}. dW stays with each rank: nothing is sent.")
    below = (f"{_block(reader, sync.layer - 1, 'MLP')}" if sync.layer > 0 else
             "the embedding, where each rank adds to its own part of the table")
    return {
        "loss.max": "every rank subtracts the same m, so that no exponential overflows.",
        "loss.sum": "every rank knows softmax's denominator; its own exponentials divided by it are all it needs.",
        "loss.target": f"every rank knows the same loss, log Z − (z − m){shown}{never_all}.",
        "d_mlp": stream.format(f"the attention of layer {sync.layer}"),
        "d_attention": stream.format(below), "d_block": stream.format(below),
        "copies": "every holder of a copy has the same gradient, so the copies stay equal.",
        "norm": f"every rank knows the same norm{f' ({number})' if number else ''}, shortens its gradients by it where "
                "it is too long, and updates m, v and W of its own shards: nothing is sent.",
    }.get(sync.site if sync.part == "loss" else sync.part, "")


def _block(reader: PlayReader, layer: int, part: str) -> str:
    return f"block {layer}" if reader.model["parallel_block"] else f"the {part} of layer {layer}"


def again(sync: SyncView) -> str:
    """Of a forward sync inside the backward pass: why it is there."""
    return "forward again (recomputed), as only the block's input was kept: " if is_again(sync) else ""


def is_again(sync: SyncView) -> bool:
    """Whether a sync is of a forward pass that is made once more inside a backward one."""
    return sync.phase == "backward" and sync.part in ("attention", "mlp", "block")


def part_name(sync: SyncView) -> str:
    if sync.op in MESSAGES and sync.group:
        return sync.group
    name = {"mlp": "MLP", "block": "attention + MLP", "other": plain(sync.site, 60)}.get(
        sync.part, PART_NAMES.get(sync.part, sync.part))
    return f"{name}, forward again (recomputed)" if is_again(sync) else name
