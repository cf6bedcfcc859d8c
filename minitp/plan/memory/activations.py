"""What the forward pass of a training leaves on one rank for the backward pass, as terms.

One inventory for every model and layout: each array that an operation of a layer keeps (Korthikanti et al. 2022,
section 4.1), with this rank's heads, feed-forward rows and tokens put in. For a GPT layer (h = a·e, F = 4h, as many kv
heads as heads) with dropout and stored scores it is their table 2: sbh(34 + 5as/h) bytes, sbh(10 + 24/t + 5as/ht) with
tensor parallelism, a t-th of the first with sequence parallelism; 34 and 10 + 24/t where scores are computed again.

A schedule's instructions tell how many micro-batches wait at once. What comes and goes inside one operation isn't here.
"""
from collections.abc import Iterator

from minitp.plan.formula import literal
from minitp.plan.job import Training
from minitp.plan.memory.rank_share import Share
from minitp.plan.memory.terms import Symbols, Term

INVENTORY = "Korthikanti et al. 2022, section 4.1"
GATED = f"{INVENTORY}, of a gated MLP (Shazeer 2020): gate, up and their product"
FUSED = "Dao 2023 (FlashAttention-2), algorithm 1: the log-sum-exp of each row of scores, float32"
EXPERTS = "Fedus et al. 2021 (Switch), section 2: routing; tokens visit all experts equally often"
ENDS = "Korthikanti et al. 2022, section 4.3"
FULL = "Chen et al. 2016; Korthikanti et al. 2022, table 2, last row"
AGAIN = "Korthikanti et al. 2022, sections 4.1 and 5: of one layer and one micro-batch"
STREAM = "b · s_t · h"
"""The residual stream: whole on every rank of a tp group, or cut along the sequence."""


def training(share: Share, job: Training) -> Iterator[Term]:
    """All activations at the moment when this stage holds most."""
    waiting, symbols = share.waiting(job), share.symbols(job)
    yield from _layers(share, job, waiting)
    yield from again(share, job)
    if share.first:
        yield from _entry(share, job, symbols | {"m": waiting[0]})
    if share.last:
        yield from _exit(job, symbols | {"m": waiting[-1]})


def layer(share: Share, job: Training) -> list[Term]:
    """What ONE layer keeps for ONE micro-batch, as `job.recompute` asks."""
    symbols, norms = share.symbols(job), 1 if share.config.parallel_block else 2
    if job.recompute == "full":
        width = literal(job.precision.activations)
        return [Term("activations", "layer inputs", f"{width} · {STREAM}", symbols, FULL)]
    scores = _scores(job, symbols) if job.recompute == "none" else []
    return [*_attention(share, job, symbols, norms), *scores, *_mlp(share, job, symbols)]


def again(share: Share, job: Training) -> list[Term]:
    """What is computed again of one layer and one micro-batch while its backward pass runs: one sum of all its arrays
    but the layer's input, which was kept."""
    if job.recompute == "none" or not share.whole_layers:
        return []
    symbols, norms = share.symbols(job), 1 if share.config.parallel_block else 2
    name, parts = "scores, computed again", _scores(job, symbols)
    if job.recompute == "full":
        name = "one layer, computed again"
        parts = [*_attention(share, job, symbols, norms - 1), *parts, *_mlp(share, job, symbols)]
    return [Term("activations", name, " + ".join(part.formula for part in parts), symbols, AGAIN)]


def _layers(share: Share, job: Training, waiting: tuple[int, ...]) -> Iterator[Term]:
    held = sum(map(int.__mul__, waiting, share.layers))
    symbols = share.symbols(job) | {"m": waiting[0], "L": share.whole_layers, "l": held}
    for term in layer(share, job) if held else ():
        yield term.times("m · L" if len(waiting) == 1 else "l", symbols)


def _attention(share: Share, job: Training, symbols: Symbols, norms: int) -> list[Term]:
    """The norms' inputs, and attention without its scores."""
    w = literal(job.precision.activations)
    first = "input of attention and MLP" if share.config.parallel_block else "attention input"
    kept = [("norm inputs", f"{norms} · {w} · {STREAM}")] if norms else []
    kept += [(first, f"{w} · {STREAM}"), ("q", f"{w} · b · s_c · a · e"), ("k and v", f"2 · {w} · b · s_c · k · e"),
             ("output projection's input", f"{w} · b · s_c · a · e")]
    if job.dropout:
        kept.append(("dropout masks", f"2 · {STREAM}"))
    return [Term("activations", name, formula, symbols, INVENTORY) for name, formula in kept]


def _scores(job: Training, symbols: Symbols) -> list[Term]:
    """Scores of this rank's heads, its tokens against the whole sequence; of a fused kernel a number for each row."""
    if not job.stored:
        return [Term("activations", "sums of the scores' rows", "4 · b · a · s_c", symbols, FUSED)]
    w = literal(job.precision.activations)
    kept = [("softmax of scores", f"{w} · b · a · s_c · s")]
    if job.dropout:
        kept += [("dropout mask of scores", "b · a · s_c · s"), ("scores after dropout", f"{w} · b · a · s_c · s")]
    return [Term("activations", name, formula, symbols, INVENTORY) for name, formula in kept]


def _mlp(share: Share, job: Training, symbols: Symbols) -> list[Term]:
    """The MLP's input, what its activation needs and what its last product needs; or that of the experts visited."""
    w, gated = literal(job.precision.activations), share.config.gated
    arrays, source = (3, GATED) if gated else (2, INVENTORY)
    inner = "gate, up and their product" if gated else "activation's input and output"
    kept = [] if share.config.parallel_block else [("MLP input", f"{w} · {STREAM}", INVENTORY)]
    if share.model.experts == 1:
        kept.append((inner, f"{arrays} · {w} · b · s_c · F", source))
    else:
        visits = "⌈b · s_c · A · E_p · E_r/E⌉"                   # from all ranks that share a layer's experts
        kept += [("router's probabilities", "4 · b · s_t · E", EXPERTS),
                 ("experts' inputs and outputs", f"2 · {w} · {visits} · h", EXPERTS),
                 (f"experts' {inner}", f"{arrays} · {w} · {visits} · F", source)]
    return [Term("activations", name, formula, symbols, source) for name, formula, source in kept]


def _entry(share: Share, job: Training, symbols: Symbols) -> Iterator[Term]:
    if job.dropout:
        yield Term("activations", "embedding's dropout mask", f"{STREAM} · m", symbols, ENDS)
    if share.model.embedding_norm:
        yield Term("activations", "embedding norm's input", f"{literal(job.precision.activations)} · {STREAM} · m",
                   symbols, INVENTORY)


def _exit(job: Training, symbols: Symbols) -> Iterator[Term]:
    stream = f"{literal(job.precision.activations)} · {STREAM} · m"
    yield Term("activations", "last norm's input", stream, symbols, ENDS)
    yield Term("activations", "head's input", stream, symbols, ENDS)
    yield Term("logits", "logits", f"{literal(job.precision.logits)} · b · s_c · V · m", symbols, ENDS,
               "the softmax of the loss in their place")
