"""What generating text holds on one rank beside the weights, as terms: KV cache, logits, and the work of a pass."""
from collections.abc import Iterator

from minitp.plan import formula
from minitp.plan.formula import literal
from minitp.plan.job import FLOAT32_BYTES, Inference, bytes_of
from minitp.plan.memory.buffers import passing
from minitp.plan.memory.rank_share import Share
from minitp.plan.memory.terms import Symbols, Term

CACHE = "Kwon et al. 2023 (vLLM), section 3: k and v of every layer, kv head and token"
COPIED = "with copies of kv heads that several ranks need: with t ranks divided by min(t, kv heads), not by t"
LOGITS = "minitp.layers.head: float32"
WORK = "minitp.layers: arrays alive at once inside one layer; scores are never stored (Dao et al. 2022)"


def inference(share: Share, job: Inference) -> Iterator[Term]:
    """The cache when all tokens are in it, and the widest moment of a pass: a piece of the prompts, or a new token of
    each sequence."""
    symbols = share.symbols(job)
    if share.whole_layers:
        yield Term("kv cache", "k and v of all tokens", f"2 · {literal(bytes_of(job.cache))} · L · k · e · b · T",
                   symbols, CACHE, COPIED if share.kv_copied else "")
    yield from _work(share, job, symbols)
    if share.last:
        yield from _logits(share, job, symbols)


def _work(share: Share, job: Inference, symbols: Symbols) -> Iterator[Term]:
    """The residual stream, and what attention or the MLP needs beside it: the larger."""
    width = bytes_of(job.activations)
    w = literal(width)
    yield Term("activations", "residual stream", f"{w} · n · h", symbols, WORK)
    if share.whole_layers:
        attention = f"{w} · n · (h + 2 · a · e + 2 · k · e)"
        visits = " · A" if share.model.experts > 1 else ""
        mlp = f"{w} · n · (h + {3 if share.config.gated else 2} · F{visits})"
        widest = max(attention, mlp, key=lambda text: formula.value(text, symbols))
        yield Term("buffers", f"workspace of {'attention' if widest is attention else 'an MLP'}", widest, symbols, WORK,
                   f"n = {symbols['n']:,} tokens in one pass: of the prompts at most {job.prefill_tokens:,} of a "
                   f"replica at once, of new tokens one of each sequence")
    yield from passing(share, width, symbols, 1, "n", "n_t")


def _logits(share: Share, job: Inference, symbols: Symbols) -> Iterator[Term]:
    name, tokens = ("of every token of a pass", "n") if job.every_row else ("of each sequence's last token", "b")
    yield Term("logits", f"logits {name}", f"{FLOAT32_BYTES} · {tokens} · V", symbols, LOGITS)
    if share.widths.vocab < share.config.vocab:
        yield Term("logits", "logits, gathered to choose a token", f"{FLOAT32_BYTES} · b · V_all", symbols, LOGITS)
