"""The words of the cuts: what each matrix is called, and why an array must be changed before a step."""
from minitp.comm.states import SLICE, Split
from minitp.view.chain import Link

NAMES = {"qkv": "q, k, v", "o": "output", "gate_up": "gate, up", "down": "down", "embedding": "embedding",
         "head": "head"}
SPLITS: dict[Split, str] = {"columns": "by columns", "rows": "by rows", "whole": "whole"}

_STEPS = {
    ("heads", "partial"): "q, k and v are partial sums, and softmax is not linear: the scores of a sum are not the sum "
                          "of the scores. So they are added before attention",
    ("activation", "partial"): "each rank holds one term of the sum, and act(a + b) ≠ act(a) + act(b): the terms are "
                               "added before the activation",
    ("residual", "partial"): "each rank holds one term of the sum; the residual is whole (added to every term it would "
                             "count once per rank), and the next norm needs final numbers of the whole row",
    ("residual", "shard"): "each rank has its own columns of the result; the residual is whole, and the next norm's "
                           "mean is over the whole row",
    ("sample", "partial"): "each rank holds one term of every logit, and the largest sum is not the sum of the largest",
    ("sample", "shard"): "each rank has the logits of its own words; the next token is drawn from all of them",
}
_PRODUCTS = {
    "o": "every column of the output matrix reads all heads, and a rank has only its own",
    "down": "every column of down reads all of the activations, and a rank has only its own",
}


def why(links: tuple[Link, ...], number: int) -> str:
    """Why the array must be changed before step `number`, for a reader."""
    link = links[number]
    name, kind = link.step.name, link.before.kind
    if link.change == SLICE:
        return "its rows meet only their own part of the input, and every rank has all of it: it takes a slice"
    if kind == "partial" and link.step.name == "residual" and links[number - 1].step.name == "embedding":
        return "one rank has the token's row and the others add zeros: the sum is the row"
    reason = _PRODUCTS.get(name) or _STEPS[name, kind]
    if link.change == "reduce_scatter":
        reason += ". The next step wants only a slice, so each rank receives its part of the sum and no more"
    return reason


def operations(number: int) -> str:
    """Multiplications and additions, with four digits."""
    for power, unit in ((15, "P"), (12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if number >= 10 ** power:
            return f"{number / 10 ** power:.4g} {unit}FLOP"
    return f"{number:,} FLOP"
