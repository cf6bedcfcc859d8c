"""The arrays inside the layers, as a trace keeps them: the observer of a run whose values are recorded.

Of every pass it keeps what belongs to one token, the newest of the first sequence (in training: its last position):
what a picture of the pass shows. On every rank; what is the same on all of them is kept once when the ranks' recordings
are joined.
"""
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from minitp.trace.values import Best, Copy, Scores, token

if TYPE_CHECKING:
    from minitp.context import Context
    from minitp.trace.recorder import Recorder

_BY_TOKEN = {                      # last part of the site → the arrays (B, T, n) of which a token's row is kept
    **dict.fromkeys(("attention_norm", "mlp_norm", "norm", "qkv", "gate_up"), ("x",)),
    **dict.fromkeys(("o", "down", "embedding"), ("dy",)),
    "up": ("x",), "mlp": ("gate", "up", "h", "dh", "dgate", "dup"), "head": ("x", "columns", "dy")}


class InnerArrays:
    """Copies what the layers leave in `Context.save`; the recorder says which phase, step and token they belong to."""

    def __init__(self, recorder: "Recorder"):
        self.recorder = recorder
        self._scores: list[np.ndarray] = []           # of the kv groups of the attention that is running

    def save(self, site: str, arrays: Mapping[str, Any], ctx: "Context") -> None:
        part = site.rpartition(".")[2]
        for name in _BY_TOKEN.get(part, ()):
            if name in arrays:
                row = arrays[name][0, token(self.recorder.row, arrays[name].shape[1])]
                self._keep(site, name, row, ctx, words=part == "head" and name == "dy")
        if part == "attention":
            self._attention(site, arrays, ctx)
        elif part == "loss":
            self._loss(site, arrays, ctx)
        elif part == "embedding" and "ids" in arrays:
            ids = arrays["ids"]
            self._keep(site, "id", np.array([ids[0, token(self.recorder.row, ids.shape[1])]]), ctx)
        elif "logits" in arrays:
            self._best(site, arrays["logits"], arrays["rank"], ctx)

    def _keep(self, site: str, name: str, array: Any, ctx: "Context", words: bool = False) -> None:
        """`words`: it has a number for each word, of which one stands out: maxima only where they are many."""
        self.recorder.keep_inner(site, name, Copy(np.array(ctx.arrays.to_host(array)), inner=not words))

    def _attention(self, site: str, arrays: Mapping[str, Any], ctx: "Context") -> None:
        """Groups of heads come one by one with their scores, and the whole rank's heads after them."""
        if "dquery" in arrays:
            row = token(self.recorder.row, arrays["dquery"].shape[2])
            self._keep(site, "dheads", arrays["dheads"][0, row], ctx)
            for name in ("dquery", "dkey", "dvalue"):                                # (B, heads, T, E)
                self._keep(site, name, arrays[name][0, :, row], ctx)
            return
        if "scores" in arrays:
            self._group(arrays["scores"], arrays["heads"], arrays["queries"], ctx)
            return
        if "y" not in arrays:                         # what only the backward will need
            return
        row = token(self.recorder.row, arrays["query"].shape[2])
        slot = self._slot(row, ctx)
        self._keep(site, "query", arrays["query"][0, :, row], ctx)
        self._keep(site, "key", arrays["key"][0, :, slot], ctx)
        self._keep(site, "value", arrays["value"][0, :, slot], ctx)
        empty = np.zeros((0, slot + 1), ctx.dtype)
        scores = ctx.xp.concatenate(self._scores) if self._scores else empty
        self.recorder.keep_inner(site, "scores", Scores(ctx.arrays.to_host(scores)))
        self._keep(site, "heads", arrays["y"][0, row], ctx)
        self._scores = []

    def _group(self, scores: Any, heads: slice, queries: slice, ctx: "Context") -> None:
        """(B, n, gT, S) of the query heads `heads` and the tokens `queries` of the pass."""
        tokens = 1 if ctx.positions is None else ctx.positions.shape[1]
        row = token(self.recorder.row, tokens)
        if queries.start <= row < queries.stop:
            by_head = scores[0].reshape(heads.stop - heads.start, queries.stop - queries.start, scores.shape[-1])
            self._scores.append(by_head[:, row - queries.start, :self._slot(row, ctx) + 1].copy())

    @staticmethod
    def _slot(row: int, ctx: "Context") -> int:
        """Where the token's key stands among all keys: slot = position, or the pass's own tokens without a cache."""
        return row if ctx.cache is None or ctx.positions is None else int(ctx.positions[0, row])

    def _loss(self, site: str, arrays: Mapping[str, Any], ctx: "Context") -> None:
        """Of the token its row of (B, T, n), its number of (B, T)."""
        for name, array in arrays.items():
            row = token(self.recorder.row, array.shape[1])
            self._keep(site, name, array[0, row] if array.ndim == 3 else array[0, row:row + 1], ctx, words=True)

    def _best(self, site: str, logits: Any, rank: int, ctx: "Context") -> None:
        """The logits that this rank holds of the token; the best few are found when the pass has ended."""
        array = logits.array
        row = np.array(ctx.arrays.to_host(array[0, token(self.recorder.row, array.shape[1])]))
        first = 0 if logits.cut is None else logits.cut.of(rank).start
        self.recorder.keep_inner(site, "best_ids", Best(row, first, True))
        self.recorder.keep_inner(site, "best_logits", Best(row, first, False))
