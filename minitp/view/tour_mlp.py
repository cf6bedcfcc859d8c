"""The tour's cards about the pair of cuts and the sync behind it: whole, columns, rows, gate, sum, why not later."""
import numpy as np

from minitp.trace.wording import count, dimensions, duration, plain, size
from minitp.view.cards import AFTER, ARRIVING, CHOICES, COMBINE, COMPUTE, Card, Guide, card
from minitp.view.text import equation, number, op_name


def loading(guide: Guide) -> Card | None:
    reader = guide.reader
    sent = [reader.sync(k) for k in range(reader.n) if reader.word("part", k) == "load"]
    if not sent or guide.ranks == 1:
        return None
    per_pass = sum(sync.payload for sync in guide.here if sync.plane == "data")
    first = next((sync for sync in sent if sync.op == "scatter"), sent[0])
    return card("The weights move once", f"Rank {max(first.root, 0)} read the model and sent every rank its pieces: "
                f"{count(len(sent), 'array')}, {size(sum(sync.payload for sync in sent))} in all. That was the last "
                f"time that weights moved. From here on only activations do: {size(per_pass)} in a pass of one token.",
                first.index, COMBINE, cut=None, focus="gate")


def whole_matrix(guide: Guide) -> Card | None:
    sync, entries = guide.mlp, guide.cut_of("mlp.gate_up") or guide.cut_of("mlp.up")
    if sync is None or not entries:
        return None
    names = " and ".join(part["name"].split(".")[-2] for part in entries[0]["parts"])
    rows, columns = entries[0]["parts"][0]["shape"]
    numbers = rows * columns * len(entries[0]["parts"])
    return card("First, the whole matrix", f"Layer {sync.layer} multiplies x, {columns:,} numbers, by {names}: "
                f"{columns:,} × {rows:,}{' each' if len(entries[0]['parts']) > 1 else ''}, {numbers:,} numbers. "
                + ("One rank holds them here." if guide.ranks == 1 else
                   "One rank could hold them here; of a large model it couldn't. So they are cut."),
                sync.index, COMPUTE, cut=0, focus="weights")


def by_columns(guide: Guide) -> Card | None:
    sync, entries = guide.mlp, guide.cut_of("mlp.gate_up") or guide.cut_of("mlp.up")
    if sync is None or not entries or guide.ranks == 1:
        return None
    whole = entries[0]["parts"][0]["shape"][0]
    held = [entry["parts"][0]["at"][0] for entry in entries]
    pieces = "; ".join(f"rank {entry['rank']}: {_columns(*at)}" for entry, at in zip(entries[:4], held, strict=False))
    return card("A column cut gives shards for free", f"Of {whole:,} columns each rank holds some ({pieces}"
                f"{' …' if len(entries) > 4 else ''}). It multiplies the whole x by its own columns and has its own "
                "entries of the result, every one of them final. Nothing is sent.", sync.index, COMPUTE,
                focus="weights")


def _columns(start: int, stop: int) -> str:
    return "none" if stop <= start else f"{start:,}–{stop - 1:,}"


def gate_and_up(guide: Guide) -> Card | None:
    sync = guide.mlp
    if sync is None or guide.ranks == 1:
        return None
    slots = guide.reader.slots(sync.index)
    kind = guide.model["activation"] or "the activation"
    example = ""
    for rank in np.argsort(sync.enter, kind="stable").tolist():        # the first to finish: the picture shows its h
        gate, up, h = (slots.get((name, rank)) for name in ("gate", "up", "h"))
        if gate is not None and up is not None and h is not None and gate.exact and up.exact and h.exact:
            i = int(np.argmax(np.abs(h.numbers[0])))
            of = [number(array.numbers[0, i]) for array in (gate, up, h)]
            example = f" On rank {rank}, {kind}({of[0]}) × {of[1]} = {of[2]}."
            break
    if guide.model["gated"]:
        return card("gate × up stays in the shard", f"{kind}(gate) × up works entry by entry, and gate[i] and up[i] "
                    f"lie on the same rank. The activation may be applied at once: its inputs are finished numbers."
                    f"{example} Still nothing is sent.", sync.index, COMPUTE, focus="weights")
    return card("The activation stays in the shard", f"{kind} works entry by entry on finished numbers, so each rank "
                f"applies it to its own.{example} Still nothing is sent.", sync.index, COMPUTE, focus="weights")


def by_rows(guide: Guide) -> Card | None:
    sync = guide.mlp
    if sync is None or guide.ranks == 1:
        return None
    slots = guide.reader.slots(sync.index)
    first = {r: drawn.numbers[0, 0] for (name, r), drawn in slots.items() if name == "first" and r >= 0}
    terms = ", ".join(f"rank {r}: {number(x)}" for r, x in list(first.items())[:CHOICES])
    return card("A row cut gives partial sums", "down is cut the other way: each rank multiplies its shard by its own "
                f"rows. The result has the full shape, {dimensions(sync.shape)}, but it is one term of a sum: not the "
                "answer yet, hence the dashed outline." + (f" Of y[0] they hold: {terms}." if terms else ""),
                sync.index, ARRIVING, focus="partial")


def who_is_last(guide: Guide) -> Card | None:
    sync = guide.unseen
    if sync is None or sync.present.sum() < 2 or sync.broken or not sync.present[min(sync.last, guide.ranks - 1)]:
        return None
    there = np.flatnonzero(sync.present).tolist()
    offered = guide.rank_choices(sync.last, there)
    waits = ", ".join(f"rank {r}: {duration(ns)}" for r, ns in sync.waits.items() if r != sync.last)
    return card("The gate opens when the last rank is there",
                f"{op_name(sync.op).capitalize()} at {plain(sync.site)}: every rank needs every other's part, so those "
                "that are ready wait. Step on to see them arrive.", sync.index, COMPUTE, focus="gate", clock="measured",
                question="Which rank came last?", choices=[f"rank {r}" for r in offered],
                answer=offered.index(sync.last), reveal=f"Rank {sync.last} came last. Waited: {waits}.")


def the_sum(guide: Guide) -> Card | None:
    sync = guide.mlp
    if sync is None or sync.before != "partial" or sync.broken:
        return None
    feeds = f"layer {sync.layer + 1}" if sync.layer + 1 < guide.model["layers"] else "the last norm"
    return card("Sum, release, residual", f"The {op_name(sync.op)} adds the terms (payload {size(sync.payload)}) and "
                f"every rank leaves with the same whole y.{equation(guide.reader, sync)} Each adds it to its copy of "
                f"the residual stream, and {feeds} reads that.", sync.index, AFTER, focus="equation")


def too_late(guide: Guide) -> Card | None:
    """Why the sum can't be put off behind the next activation."""
    found = [(sync, act) for sync in guide.here
             if sync.part in ("mlp", "attention", "block")
             and (act := guide.reader.slots(sync.index).get(("act", -1))) is not None and act.numbers.shape[1] > 3]
    if not found:
        return None
    sync, act = next(((s, a) for s, a in found if guide.mlp is not None and s.index == guide.mlp.index), found[0])
    late, right = act.numbers[0, -2:].tolist()
    kind, same = guide.model["activation"], number(late) == number(right)
    return card("Why the sum can't wait", f"Could the ranks go on with their partial sums and add later? Switch the "
                f"toggle: {kind} of each term, then the sum; or the sum, then {kind}.", sync.index, COMBINE,
                focus="toggle", question="Do both orders give the same number?", choices=["yes", "no"],
                answer=0 if same else 1,
                reveal=f"Added first, {kind}(y[0]) is {number(right)}. Added after, it would be {number(late)}. "
                       + ("Here they happen to agree to three digits; in general they don't: " if same else "")
                       + f"{kind}(a + b) ≠ {kind}(a) + {kind}(b), so every norm and activation needs the sum first.")
