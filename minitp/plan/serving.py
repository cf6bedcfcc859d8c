"""What generating text holds on one rank beside the weights, as terms: KV cache, logits, and the work of a pass."""
from collections.abc import Iterator

from minitp.cut import Cut
from minitp.plan.buffers import passing
from minitp.plan.job import Inference, bytes_of
from minitp.plan.share import Share
from minitp.plan.terms import Factor, Term, factors, per

CACHE = "Kwon et al. 2023 (vLLM), section 3: k and v of every layer, kv head and token"
COPIED = "with copies of kv heads that several ranks need: with t ranks divided by min(t, kv heads), not by t"
LOGITS = "minitp.layers.head: float32"
WORK = "minitp.layers: arrays alive at once inside one layer; scores are never stored (Dao et al. 2022)"
LOGIT_BYTES = 4


def inference(share: Share, job: Inference) -> Iterator[Term]:
    """The cache when all tokens are in it, and the widest moment of a pass, which is the prompt's."""
    batch = len(Cut(job.batch, share.layout.dp).of(share.place.dp))
    b = Factor("b", batch)
    yield from _cache(share, job, b)
    yield from _work(share, job, b)
    if share.last:
        yield from _logits(share, job, b)


def _cache(share: Share, job: Inference, b: Factor) -> Iterator[Term]:
    if share.whole_layers:
        yield Term("kv cache", "k and v of all tokens", (per(2), per(bytes_of(job.cache)), *factors(
            ("L", share.whole_layers), ("k", share.widths.kv_heads), ("e", share.config.head_size)), b,
            Factor("T", share.sequence(job.context))), CACHE, COPIED if share.kv_copied else "")


def _work(share: Share, job: Inference, b: Factor) -> Iterator[Term]:
    """The residual stream, and what attention or the MLP needs beside it: the larger."""
    c, w = share.config, share.widths
    tokens = (per(bytes_of(job.activations)), b, Factor("s_c", share.sequence(job.prompt)))
    h = Factor("h", c.hidden)
    yield Term("activations", "residual stream", (*tokens, h), WORK)
    if share.whole_layers:
        norm = Term("buffers", "norm", (*tokens, h), WORK)
        heads = Term("buffers", "q and output", (per(2), *tokens, Factor("a", w.heads), Factor("e", c.head_size)), WORK)
        kv = Term("buffers", "k, v", (per(2), *tokens, Factor("k", w.kv_heads), Factor("e", c.head_size)), WORK)
        visits = (Factor("A", share.model.active),) if share.model.experts > 1 else ()
        mlp = Term("buffers", "ffn", (per(3 if c.gated else 2), *tokens, *visits, Factor("F", w.ffn)), WORK)
        attention = (norm, heads, kv)
        widest = max(attention, (norm, mlp), key=lambda terms: sum(term.size() for term in terms))
        yield Term("buffers", f"workspace of one {'attention' if widest is attention else 'MLP'}", (), WORK,
                   "the prompt's pass; one token's is as many times smaller as the prompt is long", widest)
    yield from passing(share, bytes_of(job.activations), b, job.prompt, 1)


def _logits(share: Share, job: Inference, b: Factor) -> Iterator[Term]:
    rows = (b, Factor("s_c", share.sequence(job.prompt))) if job.every_row else (b,)
    yield Term("logits", "logits of every token" if job.every_row else "logits of each sequence's last token",
               (per(LOGIT_BYTES), *rows, Factor("V", share.widths.vocab)), LOGITS)
    if share.widths.vocab < share.config.vocab:
        yield Term("logits", "logits, gathered to choose a token",
                   (per(LOGIT_BYTES), b, Factor("V_all", share.config.vocab)), LOGITS)
