"""What the forward pass of a training leaves on one rank for the backward pass, as terms.

One inventory for every model and layout: each array that an operation of a layer keeps (Korthikanti et al. 2022,
section 4.1), with this rank's heads, feed-forward rows and tokens put in. For a GPT layer (h = a·e, F = 4h, as many kv
heads as heads) with dropout and stored scores it is their table 2: sbh(34 + 5as/h) bytes, sbh(10 + 24/t + 5as/ht) with
tensor parallelism, a t-th of the first with sequence parallelism; 34 and 10 + 24/t where scores are computed again.

A schedule's instructions tell how many micro-batches wait at once. What comes and goes inside one operation isn't here.
"""
from collections.abc import Iterator
from math import ceil

from minitp.plan.job import Training
from minitp.plan.share import Share
from minitp.plan.terms import Factor, Term, factors, per

INVENTORY = "Korthikanti et al. 2022, section 4.1"
GATED = f"{INVENTORY}, of a gated MLP (Shazeer 2020): gate, up and their product"
FUSED = "Dao 2023 (FlashAttention-2), algorithm 1: the log-sum-exp of each row of scores, float32"
EXPERTS = "Fedus et al. 2021 (Switch), section 2: routing; tokens visit all experts equally often"
ENDS = "Korthikanti et al. 2022, section 4.3"
FULL = "Chen et al. 2016; Korthikanti et al. 2022, table 2, last row"
MASK = 1
"""Bytes of an element of a dropout mask."""


def training(share: Share, job: Training) -> Iterator[Term]:
    """All activations at the moment when this stage holds most."""
    waiting = share.waiting(job)
    yield from _layers(share, job, waiting)
    if share.first:
        yield from _entry(share, job, waiting[0])
    if share.last:
        yield from _exit(share, job, waiting[-1])


def layer(share: Share, job: Training) -> list[Term]:
    """What ONE layer keeps for ONE micro-batch, as `job.recompute` asks."""
    if job.recompute == "full":
        return [Term("activations", "layer inputs", (_stream(share, job)), FULL)]
    return [*_attention(share, job), *(_scores(share, job) if job.recompute == "none" else []), *_mlp(share, job)]


def again(share: Share, job: Training) -> list[Term]:
    """What is computed again for one layer and one micro-batch while its backward pass runs."""
    if job.recompute == "none" or not share.whole_layers:
        return []
    parts = _scores(share, job)
    if job.recompute == "full":
        parts = [*_attention(share, job, norms=_norms(share) - 1), *parts, *_mlp(share, job)]
    return [Term("activations", f"{'one layer' if job.recompute == 'full' else 'scores'}, computed again", (),
                 "Korthikanti et al. 2022, sections 4.1 and 5: one layer of one micro-batch", "", tuple(parts))]


def _layers(share: Share, job: Training, waiting: tuple[int, ...]) -> Iterator[Term]:
    held = sum(map(int.__mul__, waiting, share.layers))
    text = " + ".join(f"{n:,} · {layers:,}" for n, layers in zip(waiting, share.layers, strict=True))
    times = Factor("l", held, f"({text})" if len(waiting) > 1 else text)
    for term in layer(share, job) if held else ():
        yield term._replace(factors=(*term.factors, times))
    yield from again(share, job)


def _norms(share: Share) -> int:
    return 1 if share.config.parallel_block else 2


def _stream(share: Share, job: Training, width: float | None = None) -> tuple[Factor, ...]:
    """The residual stream of one micro-batch: whole on every rank of the tp group, or cut along the sequence."""
    width = job.precision.activations if width is None else width
    return (per(width), *factors(("b", job.micro_batch), ("s_t", share.residual(job.seq)), ("h", share.config.hidden)))


def _attention(share: Share, job: Training, norms: int | None = None) -> list[Term]:
    """The norms' inputs, and attention without its scores."""
    c, w = share.config, share.widths
    stream = _stream(share, job)
    tokens = (per(job.precision.activations), *factors(("b", job.micro_batch), ("s_c", share.sequence(job.seq))))
    heads, kv_heads = factors(("a", w.heads), ("k", w.kv_heads))
    size = Factor("e", c.head_size)
    norms = _norms(share) if norms is None else norms
    terms = [Term("activations", "norm inputs", (per(norms), *stream), INVENTORY),
             Term("activations", "attention input" if not c.parallel_block else "input of attention and MLP", stream,
                  INVENTORY),
             Term("activations", "q", (*tokens, heads, size), INVENTORY),
             Term("activations", "k and v", (per(2), *tokens, kv_heads, size), INVENTORY),
             Term("activations", "output projection's input", (*tokens, heads, size), INVENTORY)]
    if job.dropout:
        terms.append(Term("activations", "dropout masks", (per(2), *_stream(share, job, MASK)), INVENTORY))
    return terms


def _scores(share: Share, job: Training) -> list[Term]:
    """Scores of this rank's heads, its tokens against the whole sequence; of a fused kernel a number for each row."""
    rows = factors(("b", job.micro_batch), ("a", share.widths.heads), ("s_c", share.sequence(job.seq)))
    if not job.stored:
        return [Term("activations", "sums of the scores' rows", (per(4), *rows), FUSED)]
    scores = (per(job.precision.activations), *rows, Factor("s", job.seq))
    terms = [Term("activations", "softmax of scores", scores, INVENTORY)]
    if job.dropout:
        terms += [Term("activations", "dropout mask of scores", (per(MASK), *scores[1:]), INVENTORY),
                  Term("activations", "scores after dropout", scores, INVENTORY)]
    return terms


def _mlp(share: Share, job: Training) -> list[Term]:
    """The MLP's input, what its activation needs and what its last product needs; or that of the experts visited."""
    c, f = share.config, share.widths.ffn
    arrays, source = (3, GATED) if c.gated else (2, INVENTORY)
    names = "gate, up and their product" if c.gated else "activation's input and output"
    terms = [] if c.parallel_block else [Term("activations", "MLP input", _stream(share, job), INVENTORY)]
    width = per(job.precision.activations)
    if share.model.experts == 1:
        tokens = factors(("b", job.micro_batch), ("s_c", share.sequence(job.seq)), ("F", f))
        return [*terms, Term("activations", names, (per(arrays), width, *tokens), source)]
    visits = _visits(share, job)
    router = factors(("b", job.micro_batch), ("s_t", share.residual(job.seq)), ("E", share.model.experts))
    return [*terms, Term("activations", "router's probabilities", (per(4), *router), EXPERTS),
            Term("activations", "experts' inputs and outputs", (per(2), width, visits, Factor("h", c.hidden)), EXPERTS),
            Term("activations", f"experts' {names}", (per(arrays), width, visits, Factor("F", f)), source)]


def _visits(share: Share, job: Training) -> Factor:
    """Tokens that come to this rank's experts from the ep ranks that share a layer's experts."""
    tokens, ep, all_experts = job.micro_batch * share.sequence(job.seq), share.layout.ep, share.model.experts
    visits = ceil(tokens * share.model.active * ep * share.experts / all_experts)
    return Factor("n_e", visits, f"⌈{tokens:,} · {share.model.active} · {ep} · {share.experts}/{all_experts}⌉")


def _entry(share: Share, job: Training, waiting: int) -> Iterator[Term]:
    m = Factor("m", waiting)
    if job.dropout:
        yield Term("activations", "embedding's dropout mask", (*_stream(share, job, MASK), m), ENDS)
    if share.model.embedding_norm:
        yield Term("activations", "embedding norm's input", (*_stream(share, job), m), INVENTORY)


def _exit(share: Share, job: Training, waiting: int) -> Iterator[Term]:
    m = Factor("m", waiting)
    stream = _stream(share, job)
    yield Term("activations", "last norm's input", (*stream, m), ENDS)
    yield Term("activations", "head's input", (*stream, m), ENDS)
    yield Term("logits", "logits", (per(job.precision.logits), *factors(
        ("b", job.micro_batch), ("s_c", share.sequence(job.seq)), ("V", share.widths.vocab)), m), ENDS,
        "the softmax of the loss in their place")
