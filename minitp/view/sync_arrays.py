"""What a trace kept of the arrays of each sync, by rank: what went in and came out, and what lies inside the layers.

Of a pass that carries several tokens or texts the last token of the first text is shown: the one whose next word is
wanted.
"""
from typing import Any

import numpy as np

from minitp.layers.mlp import activate
from minitp.placement import Placement
from minitp.trace.file import Trace
from minitp.trace.kept import KeptArray
from minitp.view.header import Words, model_of, sequences
from minitp.view.slots import Slot
from minitp.view.steps import Steps
from minitp.view.training_arrays import PARTS, training_slots

FIRST = 4                          # exact first elements
OWNERS = 64                        # tokens of a prompt
BEST = 4                           # tokens that each rank offers
_Held = list[tuple[int, KeptArray]]


class SyncArrays:
    """What is known of the arrays of each sync of `steps`."""

    def __init__(self, steps: Steps, placement: Placement | None, words: Words, parts: list[str]):
        self.steps, self.placement, self.words, self.parts = steps, placement, words, parts
        self.trace, self.model = steps.trace, model_of(steps.trace.run)
        self.batch = sequences(steps.trace.run)
        events = steps.trace.events
        self.before, self.after, self.op, self.site, self.phase = (
            steps.trace.words(name)[steps.event].tolist() for name in ("before", "after", "op", "site", "phase"))
        self.step, self.micro_batch = ([None if n < 0 else n for n in events[name][steps.event].tolist()]
                                       for name in ("step", "micro_batch"))
        shapes = [steps.trace.shapes[i] for i in events["shape"][steps.event].tolist()]
        self.broken = events["broken"][steps.event].tolist()
        self.tokens = [shape[-2] if len(shape) > 1 else 1 for shape in shapes]
        self.parameters = {} if placement is None else {p.name: p for p in placement.parameters}
        self.any = bool(self.trace.values or len(self.trace.arrays) or len(self.trace.weights))

    def of(self, sync: int) -> list[Slot]:
        """The slots of one sync, none where no array of it was kept."""
        if not self.any:
            return []
        part = self.parts[sync]
        if part == "load":
            return self._loaded(sync)
        if part == "sample":
            return self._exchanged(sync)
        if part in PARTS:
            return training_slots(self, sync)
        found = self.ends(sync)
        if self.before[sync] == "partial" and self.after[sync] == "whole":
            found += self._activated(sync, found)
        if part == "embedding":
            found += self._owners(sync)
        if part == "head":
            found += (self.inner(sync, "head", (("x", "x"),), one=True)
                      + self.inner(sync, "head", (("columns", "columns"),)) + self.best(sync))
        if part in ("attention", "block"):
            found += self._of_attention(sync)
        if part in ("mlp", "block"):
            found += self._of_mlp(sync)
        if part in ("attention", "mlp", "block"):
            found += self._stream(sync)
        return found

    def ranks(self, sync: int) -> list[tuple[int, int]]:
        """(rank, event) of those that took part."""
        return [(rank, event) for rank, event in enumerate(self.steps.cell[sync].tolist()) if event >= 0]

    # --- what went in and came out -------------------------------------------------------------------------------

    def _row(self, kept: KeptArray) -> np.ndarray:
        """The last token of the first text, (1, n), of (B, T, n) or of that token's row alone."""
        tokens = kept.shape[-2] if len(kept.shape) > 1 else 1
        length = len(self.words.prompt_ids)
        last = length - 1 if self.batch > 1 and 0 < length <= tokens else tokens - 1
        return kept.cells[last:last + 1] if last < len(kept.cells) else kept.cells[-1:]

    def _held(self, sync: int) -> tuple[_Held, _Held]:
        """By rank what it took and what it got, where anything is left of it."""
        both = [(rank, self.trace.value(event)) for rank, event in self.ranks(sync)]
        taken, got = ([(rank, pair[i]) for rank, pair in both] for i in (0, 1))
        return _not_empty(taken), _not_empty(got)

    def ends(self, sync: int) -> list[Slot]:
        """What went in and what came out."""
        taken, got = self._held(sync)
        before, after = self.before[sync], self.after[sync]
        same = after == "whole" and not self.broken[sync]
        return (self._rows(sync, "in", "first", taken, before, before in ("whole", "on root"))
                + self._rows(sync, "out", "sum", got, after, same))

    def _rows(self, sync: int, name: str, exact_name: str, held: _Held, state: str, one: bool) -> list[Slot]:
        """A row by rank, or one for all, and its first exact numbers."""
        named = "words" if self.parts[sync] == "head" else "columns"
        axes = _laid_out(held, named) if state.startswith("shard") else {}
        of_tokens = f"last of {self.tokens[sync]:,} tokens" if self.tokens[sync] > 1 else ""
        found = []
        for rank, kept in held[:1] if one else held:
            shown, row = -1 if one else rank, self._row(kept)
            found.append(Slot(name, shown, row, kept.whole, kept.shape, axes.get(rank, of_tokens)))
            exact = row[:, :FIRST] if kept.whole else np.array([kept.first[:FIRST]])
            if exact.size and (one or exact_name == "first"):
                found.append(Slot(exact_name, shown, exact, True, kept.shape))
        return found

    def _activated(self, sync: int, found: list[Slot]) -> list[Slot]:
        """What element 0 would become if the activation came before the sum, and what it becomes after it."""
        terms = np.array([slot.matrix[0, 0] for slot in found if slot.name == "first"])
        kind = self.model["activation"]
        if kind not in ("silu", "gelu", "gelu_tanh") or not len(terms) == len(self.ranks(sync)) > 0:
            return []
        each = activate(terms, kind, np)
        numbers = [*each, each.sum(), activate(np.array([terms.sum()]), kind, np)[0]]
        return [Slot("act", -1, np.array([numbers]), True, (len(numbers),))]

    def _loaded(self, sync: int) -> list[Slot]:
        """What each rank got of a matrix, all rows of it."""
        site, found = self.site[sync], []
        for rank, event in self.ranks(sync):
            kept = self.trace.weight(rank, site) or self.trace.value(event)[1]
            if kept is not None and kept.cells.size:
                found.append(Slot("out", rank, kept.cells, kept.whole, kept.shape, self._piece(site, rank)))
        if found and self.after[sync] == "whole":
            return [Slot("out", -1, found[0].matrix, found[0].exact, found[0].shape)]
        return found

    def _piece(self, site: str, rank: int) -> str:
        """Where a rank's piece of a parameter lies, in the literature's words: columns are columns of Wᵀ."""
        parameter = self.parameters.get(site)
        if self.placement is None or parameter is None or parameter.cut_axis is None or rank >= self.placement.ranks:
            return ""
        at = self.placement.slices(parameter, rank)[parameter.cut_axis]
        axis = parameter.axes[parameter.cut_axis]
        name = "words" if axis == "vocab" else "rows" if parameter.cut_axis == 1 and axis != "hidden" else "columns"
        return _span(name, at.start, at.stop, parameter.shape[parameter.cut_axis])

    # --- inside the layers ---------------------------------------------------------------------------------------

    def _array(self, sync: int, rank: int, site: str, name: str) -> KeptArray | None:
        kept = self.trace.array(rank, self.phase[sync], self.step[sync], site, name, self.micro_batch[sync])
        return kept if kept is not None and kept.cells.size else None

    def inner(self, sync: int, site: str, names: tuple[tuple[str, str], ...], one: bool = False,
               axis: dict[int, str] | None = None) -> list[Slot]:
        """Arrays (slot, name in the trace) of a layer by rank; `one`: whole, the same on all ranks."""
        found = []
        for slot, name in names:
            for rank, _ in self.ranks(sync):
                kept = self._array(sync, rank, site, name)
                if kept is not None:
                    found.append(Slot(slot, -1 if one else rank, kept.cells, kept.whole, kept.shape,
                                      (axis or {}).get(rank, "")))
                    if one:
                        break
        return found

    def _of_attention(self, sync: int) -> list[Slot]:
        at = _layer(self.site[sync])
        found = self.inner(sync, f"{at}.attention.qkv", (("x", "x"),), one=True)
        queries, keys = self.held_heads()
        found += self.inner(sync, f"{at}.attention", (("q", "query"),), axis=queries)
        found += self.inner(sync, f"{at}.attention", (("k", "key"), ("v", "value")), axis=keys)
        return found + self.inner(sync, f"{at}.attention", (("scores", "scores"), ("heads", "heads")), axis=queries)

    def held_heads(self) -> tuple[dict[int, str], dict[int, str]]:
        """Which query heads and kv heads each rank holds, in words."""
        if self.placement is None:
            return {}, {}
        c, ranks = self.placement.config, range(min(self.placement.ranks, self.steps.ranks))
        held = {rank: (self.placement.heads.of(rank), self.placement.kv_heads(rank)) for rank in ranks}
        return ({rank: _span("heads", q.start, q.stop, c.heads) for rank, (q, _) in held.items()},
                {rank: _span("kv heads", kv.start, kv.stop, c.kv_heads) for rank, (_, kv) in held.items()})

    def _of_mlp(self, sync: int) -> list[Slot]:
        at = _layer(self.site[sync])
        found = []
        if self.parts[sync] == "mlp":
            found = (self.inner(sync, f"{at}.mlp.gate_up", (("x", "x"),), one=True)
                     or self.inner(sync, f"{at}.mlp.up", (("x", "x"),), one=True))
        return found + self.inner(sync, f"{at}.mlp", (("gate", "gate"), ("up", "up"), ("h", "h")),
                                  axis=self.held_columns())

    def held_columns(self) -> dict[int, str]:
        """Which columns of the ffn each rank holds, in words."""
        if self.placement is None:
            return {}
        cut = self.placement.ffn
        return {rank: _span("columns", cut.of(rank).start, cut.of(rank).stop, cut.size)
                for rank in range(min(cut.ranks, self.steps.ranks))}

    def _stream(self, sync: int) -> list[Slot]:
        """The residual stream before and after the sum is added: what the norms before and behind it read."""
        at, layer = _layer(self.site[sync]), int(_layer(self.site[sync]).split(".")[1])
        before = f"{at}.mlp_norm" if self.parts[sync] == "mlp" else f"{at}.attention_norm"
        after = (f"{at}.mlp_norm" if self.parts[sync] == "attention" else f"layers.{layer + 1}.attention_norm"
                 if layer + 1 < self.model["layers"] else "norm")
        return (self.inner(sync, before, (("residual", "x"),), one=True)
                + self.inner(sync, after, (("next", "x"),), one=True))

    # --- the ends of the model -----------------------------------------------------------------------------------

    def _owners(self, sync: int) -> list[Slot]:
        """The rank whose rows of the table answer for each token that this pass read."""
        if self.placement is None or self.placement.embedding != "vocab":
            return []
        step, ids = self.step[sync], self.words.ids
        if self.phase[sync] in ("prefill", "decode"):
            read = (self.words.prompt_ids if step == 0 else
                    ids[step - 1:step] if step is not None and step <= len(ids) else [])
        else:
            kept = self._array(sync, 0, "embedding", "id")
            read = [] if kept is None else kept.cells[0].tolist()
        cut = self.placement.vocab
        owners = [next((r for r in range(cut.ranks) if i in cut.of(r)), -1) for i in read[-OWNERS:]]
        return [Slot("owner", -1, np.array([owners], float), True, (len(owners),))] if owners else []

    def best(self, sync: int) -> list[Slot]:
        """The tokens that each rank finds best among the logits that it holds; and the one that was chosen."""
        found = []
        for rank, _ in self.ranks(sync):
            ids, logits = (self._array(sync, rank, "head", name) for name in ("best_ids", "best_logits"))
            if ids is not None and logits is not None and ids.whole and logits.whole and ids.shape == logits.shape:
                pairs = np.stack([ids.cells[0], logits.cells[0]], axis=1)[:BEST]
                found.append(Slot("best", rank, pairs, True, pairs.shape))
        return found + self._chosen(sync, found)

    def _exchanged(self, sync: int) -> list[Slot]:
        """Sharded logits: the (logit, id) pairs that were exchanged; what a rank couldn't offer is -inf."""
        found = []
        for rank, kept in self._held(sync)[0]:
            if kept.whole and len(kept.shape) == 3 and kept.shape[2] == 2:
                pairs = kept.cells[:kept.shape[1]][:BEST, ::-1]
                pairs = pairs[np.isfinite(pairs).all(axis=1)]
                found += [Slot("best", rank, pairs, True, pairs.shape)] * bool(len(pairs))
        return found + self._chosen(sync, found)

    def _chosen(self, sync: int, best: list[Slot]) -> list[Slot]:
        step, ids = self.step[sync], self.words.ids
        if step is None or step >= len(ids) or not best:
            return []
        offered = np.concatenate([slot.matrix for slot in best])
        chosen = offered[offered[:, 0] == ids[step]][:1]
        return [Slot("chosen", -1, chosen, True, (2,))] * len(chosen)


def _layer(site: str) -> str:
    """layers.3 of layers.3.mlp.down."""
    return ".".join(site.split(".")[:2])


def _not_empty(held: list[tuple[int, Any]]) -> _Held:
    return [(rank, kept) for rank, kept in held if kept is not None and kept.shape and kept.cells.size]


def _laid_out(held: _Held, name: str) -> dict[int, str]:
    """Shards side by side along their last axis: columns 0–15 of 64."""
    widths = [kept.shape[-1] for _, kept in held]
    ends = np.cumsum(widths).tolist()
    return {rank: _span(name, end - width, end, ends[-1])
            for (rank, _), width, end in zip(held, widths, ends, strict=True)}


def _span(name: str, start: int, stop: int, whole: int) -> str:
    """columns 0–15 of 64; head 3 of 8; no heads of 4."""
    if stop <= start:
        return f"no {name} of {whole:,}"
    return f"{name[:-1]} {start:,} of {whole:,}" if stop == start + 1 else f"{name} {start:,}–{stop - 1:,} of {whole:,}"


def detail_of(trace: Trace) -> str:
    """whole: every array of a pass is complete; maxima: some are maxima of blocks; none was kept.

    What a step has of its matrices (gradients, moments) is maxima always, and doesn't count.
    """
    phases = trace.words("phase", "arrays").tolist() if len(trace.arrays) else []
    inner = [kept for kept, phase in zip(trace.arrays.kept, phases, strict=True) if phase != "optimizer"]
    arrays = [*inner, *trace.weights.kept,
              *(value[key] for value in trace.values for key in ("before", "after") if value.get(key) is not None)]
    return "none" if not arrays else "whole" if all("data" in array for array in arrays) else "maxima"
