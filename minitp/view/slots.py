"""The arrays of each sync, by rank, as the play carries them.

Of a pass that carries several tokens or texts the last token of the first text is shown: the one whose next word is
wanted. `axis` says where a piece lies in the whole.
"""
from dataclasses import dataclass

import numpy as np

from minitp.placement import Placement
from minitp.view.header import Words, sequences
from minitp.view.kept import Kept, KeptArrays
from minitp.view.packing import Blob, Cells, blocks, scale_of
from minitp.view.steps import Steps

EXACT = 64                         # numbers of a row that are shown one by one
FIRST = 4                          # exact first elements
BEST = 4                           # tokens that each rank offers
COLUMNS = (64, 48, 32, 24, 16, 12, 8)      # cells of a long row: as many as there is room for


@dataclass(frozen=True)
class Slot:
    """One array of one rank (-1: whole, the same on all)."""
    name: str
    rank: int
    matrix: np.ndarray
    exact: bool
    shape: tuple[int, ...]
    axis: str = ""

    @property
    def small(self) -> bool:
        """Whether every number can be shown."""
        return self.exact and max(self.matrix.shape) <= EXACT


class Slots:
    """What is known of the arrays of each sync of `steps`."""

    def __init__(self, steps: Steps, placement: Placement | None, words: Words, parts: list[str]):
        self.steps, self.placement, self.words, self.parts = steps, placement, words, parts
        self.kept = KeptArrays(steps.trace)
        self.batch = sequences(steps.trace.run)
        events, trace = steps.trace.events, steps.trace
        self.before, self.after, self.op = (trace.words(name)[steps.event].tolist()
                                            for name in ("before", "after", "op"))
        self.step = events["step"][steps.event].tolist()
        self.shape = [trace.shapes[i] for i in events["shape"][steps.event].tolist()]

    def of(self, sync: int) -> list[Slot]:
        """The slots of one sync, none where no array of it was kept."""
        if not self.kept:
            return []
        part = self.parts[sync]
        if part == "sample":
            return self._winners(sync)
        if part == "load":
            return self._whole_pieces(sync)
        found = self._inputs(sync) + self._outputs(sync)
        if part == "embedding":
            found += self._owners(sync)
        if part == "head":
            found += self._logits(sync)
        return found

    def ranks(self, sync: int) -> list[tuple[int, int]]:
        """(rank, event) of those that took part."""
        return [(rank, event) for rank, event in enumerate(self.steps.cell[sync].tolist()) if event >= 0]

    # --- what went in and came out -------------------------------------------------------------------------------

    def _row(self, kept: Kept) -> np.ndarray:
        """The last token of the first text, of (B, T, n)."""
        tokens = kept.shape[-2] if len(kept.shape) > 1 else 1
        length = len(self.words.prompt_ids)
        last = length - 1 if self.batch > 1 and tokens > 1 and 0 < length <= tokens else tokens - 1
        return kept.row(tokens, last)

    def _inputs(self, sync: int) -> list[Slot]:
        held = [(rank, kept) for rank, event in self.ranks(sync)
                if (kept := self.kept.of(event, "before")) is not None]
        if not held:
            return []
        one = self.before[sync] in ("whole", "on root")
        axes = _laid_out(held) if self.before[sync].startswith("shard") else {}
        rows = [(rank, kept, self._row(kept)) for rank, kept in (held[:1] if one else held)]
        made = [Slot("in", -1 if one else rank, row, kept.exact, kept.shape, axes.get(rank, _of_tokens(kept)))
                for rank, kept, row in rows]
        return made + [Slot("first", -1 if one else rank, row[:, :FIRST], True, kept.shape)
                       for rank, kept, row in rows if kept.exact]

    def _outputs(self, sync: int) -> list[Slot]:
        held = [(rank, kept) for rank, event in self.ranks(sync)
                if (kept := self.kept.of(event, "after")) is not None]
        if not held:
            return []
        one = self.after[sync] == "whole"
        axes = _laid_out(held) if self.after[sync].startswith("shard") else {}
        made = [Slot("out", -1 if one else rank, self._row(kept), kept.exact, kept.shape,
                     axes.get(rank, _of_tokens(kept))) for rank, kept in (held[:1] if one else held)]
        if one and held[0][1].exact:
            made.append(Slot("sum", -1, self._row(held[0][1])[:, :FIRST], True, held[0][1].shape))
        return made

    def _whole_pieces(self, sync: int) -> list[Slot]:
        """Loading: what each rank got, all rows of it."""
        held = [(rank, kept) for rank, event in self.ranks(sync)
                if (kept := self.kept.of(event, "after")) is not None]
        if held and self.after[sync] == "whole":
            return [Slot("out", -1, held[0][1].numbers, held[0][1].exact, held[0][1].shape)]
        return [Slot("out", rank, kept.numbers, kept.exact, kept.shape, self._piece(sync, rank)) for rank, kept in held]

    def _piece(self, sync: int, rank: int) -> str:
        """Where a rank's piece of a parameter lies, in the literature's words: columns are columns of Wᵀ."""
        site = self.steps.trace.strings[self.steps.trace.events["site"][self.steps.event[sync]]]
        if self.placement is None:
            return ""
        found = {p.name: p for p in self.placement.parameters}.get(site)
        if found is None or found.cut_axis is None or rank >= self.placement.ranks:
            return ""
        at = self.placement.slices(found, rank)[found.cut_axis]
        name = "columns" if found.cut_axis == 0 else "rows"
        return _span(name, at.start, at.stop, found.shape[found.cut_axis])

    # --- the ends of the model -----------------------------------------------------------------------------------

    def _owners(self, sync: int) -> list[Slot]:
        """The rank whose rows of the table answer for each token that this pass read."""
        if self.placement is None or self.placement.embedding != "vocab":
            return []
        step, ids = self.step[sync], self.words.ids
        read = self.words.prompt_ids if step == 0 else ids[step - 1:step] if 0 < step <= len(ids) else []
        cut = self.placement.vocab
        owners = [next((r for r in range(cut.ranks) if i in cut.of(r)), -1) for i in read[-EXACT:]]
        return [Slot("owner", -1, np.array([owners], float), True, (len(owners),))] if owners else []

    def _logits(self, sync: int) -> list[Slot]:
        """Each rank's best tokens, where its logits are known one by one; and the token that was chosen."""
        shards = [slot for slot in self._inputs(sync) if slot.name == "in"]
        if not shards or not all(slot.exact for slot in shards) or not self.before[sync].startswith("shard"):
            return []
        found, start = [], 0
        for slot in shards:
            logits = slot.matrix[0]
            best = np.lexsort((np.arange(len(logits)), -logits))[:BEST]
            found.append(Slot("best", slot.rank, np.stack([best + start, logits[best]], axis=1), True, (len(best), 2)))
            start += len(logits)
        return found + self._chosen(sync, np.concatenate([slot.matrix[0] for slot in shards]))

    def _chosen(self, sync: int, logits: np.ndarray) -> list[Slot]:
        step, ids = self.step[sync], self.words.ids
        if not 0 <= step < len(ids) or ids[step] >= len(logits):
            return []
        return [Slot("chosen", -1, np.array([[ids[step], logits[ids[step]]]]), True, (2,))]

    def _winners(self, sync: int) -> list[Slot]:
        """Sharded logits: the (logit, id) pairs that were exchanged."""
        found = []
        for rank, event in self.ranks(sync):
            kept = self.kept.of(event, "before")
            if kept is None or not kept.exact or len(kept.shape) != 3 or kept.shape[2] != 2:
                continue
            pairs = kept.numbers[:kept.shape[1]][:BEST, ::-1]
            pairs = pairs[np.isfinite(pairs).all(axis=1)]
            if len(pairs):
                found.append(Slot("best", rank, pairs, True, pairs.shape))
        step, ids = self.step[sync], self.words.ids
        offered = np.concatenate([slot.matrix for slot in found]) if found else np.zeros((0, 2))
        chosen = offered[offered[:, 0] == ids[step]] if 0 <= step < len(ids) else offered[:0]
        return found + [Slot("chosen", -1, chosen[:1], True, (2,))] * bool(len(chosen))


def _laid_out(held: list[tuple[int, Kept]]) -> dict[int, str]:
    """Shards side by side along their last axis: columns 0–15 of 64."""
    widths = [kept.shape[-1] for _, kept in held]
    ends = np.cumsum(widths).tolist()
    return {rank: _span("columns", end - width, end, ends[-1])
            for (rank, _), width, end in zip(held, widths, ends, strict=True)}


def _of_tokens(kept: Kept) -> str:
    tokens = kept.shape[-2] if len(kept.shape) > 1 else 1
    return f"last of {tokens:,} tokens" if tokens > 1 else ""


def _span(name: str, start: int, stop: int, whole: int) -> str:
    return f"no {name} of {whole:,}" if stop <= start else f"{name} {start:,}–{stop - 1:,} of {whole:,}"


class Layouts:
    """The slots' sizes, each arrangement once, and their numbers in one blob."""

    def __init__(self, columns: int):
        self.columns, self.blob = columns, Blob()
        self.table: list[dict] = []
        self._number: dict[tuple, int] = {}

    def add(self, slots: list[Slot]) -> int:
        """The number of the slots' layout, -1 where there are none; their numbers go to the blob."""
        if not slots:
            return -1
        large = {slot.name for slot in slots if not slot.small}                 # one kind over all ranks
        made = [(slot, blocks(slot.matrix, self.columns) if slot.name in large else Cells(slot.matrix, "f32"))
                for slot in slots]
        scales = {name: scale_of([c for slot, c in made if slot.name == name and c.kind == "u8"])
                  for name in {slot.name for slot in slots}}
        for slot, drawn in made:
            self.blob.add(drawn, scales[slot.name])
        key = tuple((s.name, s.rank, *c.shape, c.kind, s.shape, s.axis) for s, c in made)
        if key not in self._number:
            self._number[key] = len(self.table)
            self.table.append({"slots": [
                {"slot": name, "rank": rank, "rows": rows, "cols": cols, "kind": kind, "shape": list(shape),
                 "axis": axis} for name, rank, rows, cols, kind, shape, axis in key]})
        return self._number[key]
