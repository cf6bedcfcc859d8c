"""The picture in words: captions for each phase of a sync, and the table of a pass.

Each number is said once: who was last, what each rank waited, the payload. Times are measured; "–" means the run
doesn't say.
"""
from decimal import ROUND_HALF_UP, Decimal
from math import floor, isfinite, log10
from typing import Any

from minitp.trace.schema import MESSAGES
from minitp.trace.wording import dimensions, duration, plain, size
from minitp.view import passes, training_text
from minitp.view.reading import PlayReader, SyncView
from minitp.view.simulated import MESSAGE, in_groups

OPS = {"all_reduce": "all-reduce", "all_reduce_max": "all-reduce of maxima", "all_gather": "all-gather",
       "reduce_scatter": "reduce-scatter", "all_to_all": "all-to-all", "send": "message", "receive": "message"}
Z_DECIMALS = 4                     # of a sum of exponentials: it is often just above 1, and its log is the loss
_FROM_ROOT, _TO_ROOT = ("scatter", "broadcast"), ("gather", "reduce")


def op_name(op: str) -> str:
    """The op as the literature spells it: all-reduce."""
    return OPS.get(op, op)


def number(x: float) -> str:
    """Three digits, with the minus sign of the picture."""
    return f"{x + 0.0:.3g}".replace("-", "−")                                 # + 0.0: no −0


def place(reader: PlayReader, k: int) -> str:
    """Where we are: token 2 “river” · layer 3 · MLP · sync point 12 of 62."""
    sync = reader.sync(k)
    part = plain(sync.site, 60) if sync.part == "load" else training_text.part_name(sync)
    layer = [f"layer {sync.layer}"] if sync.layer >= 0 and sync.part != "load" else []
    return " · ".join([pass_name(reader, sync.pass_index), *layer, part, f"sync point {sync.number} of {sync.of}"])


def pass_name(reader: PlayReader, i: int) -> str:
    """A pass by the token that it makes, counted from 1, as the player says it: token 2 “river”."""
    phase, step, made, _ = reader.pass_words(i)
    quoted = f" “{plain(made.strip(), 30)}”" if made.strip() else ""
    micro_batch = reader.play["passes"]["micro"][i]
    return passes.pass_name(phase, None if step < 0 else step, None if micro_batch < 0 else micro_batch) + quoted


def caption(reader: PlayReader, k: int, phase: int) -> str:
    """What happens in phase 0 compute, 1 arriving, 2 combine, 3 after of sync `k`."""
    sync = reader.sync(k)
    if not 0 <= phase <= 3:
        raise ValueError(f"a sync has the phases 0 to 3, not {phase}")
    if sync.never and phase:
        return (sync.failed, _never(sync), "After: nothing came after. The run failed here.")[phase - 1]
    text = (_computing, _arriving, _combining, _afterwards)[phase](reader, sync)
    if sync.failed and phase == 3:
        text = f"{text} {sync.failed}"
    return in_groups(text, reader.run["lanes"]) if sync.among else text


# --- before: what each rank computes ------------------------------------------------------------------------------

_WORK = {
    "attention": "each rank multiplies x by its own heads' columns of Wq, Wk and Wv, lets each head attend on its own, "
                 "and multiplies the result by its rows of Wo: a partial sum of full shape. Nothing is sent.",
    "mlp": "each rank multiplies x by its own columns, applies the activation to finished entries, and multiplies by "
           "its own rows: a partial sum of full shape. Nothing is sent.",
    "block": "each rank runs its heads and its part of the MLP on the same x and adds the two partial sums: one sync "
             "for both.",
    "load": "the root holds the whole matrix, the others wait for their piece.",
    "sample": "each rank looks for the best tokens among its own logits.",
    "other": "each rank computes its own part.",
}


def _work(reader: PlayReader, sync: SyncView) -> str:
    if sync.part == "embedding":
        return ("each rank looks up its own columns of every token's row." if sync.before.startswith("shard") else
                "the rank that holds the token's row looks it up, the others put in zeros.")
    if sync.part == "head":
        return ("each rank multiplies x by its own rows of the vocabulary: its own words' logits." if
                sync.before.startswith("shard") else
                "each rank multiplies its own columns of x by its columns of the table: a partial sum of all logits.")
    if sync.part == "mlp" and reader.model["gated"]:
        return ("each rank multiplies x by its own columns of gate and up, multiplies act(gate) by up entry by entry "
                "(both lie in its shard), and multiplies by its own rows of down: a partial sum of full shape. "
                "Nothing is sent.")
    return _WORK.get(sync.part, _WORK["other"])


def _computing(reader: PlayReader, sync: SyncView) -> str:
    times = ", ".join(f"rank {r}: {duration(ns)}" for r, ns in sync.computing.items())
    work = training_text.work(sync) or training_text.again(sync) + _work(reader, sync)
    return f"Compute: {work}" + (f" Time: {times}." if times else "")


# --- arriving: who waits for whom ---------------------------------------------------------------------------------


def _arriving(reader: PlayReader, sync: SyncView) -> str:
    waits = sync.waits
    if len(waits) <= 1 and sync.among > 1:
        return (f"{_upper(sync.group)}; one end is shown." if sync.op in MESSAGES else
                f"Here meet {sync.group}: the lane stands for all of them, who come at the same time.")
    if len(waits) <= 1:
        return "One rank alone: nobody to wait for."
    if sync.broken:
        return "Broken on purpose: no rank comes to this gate, so nobody waits."
    waited = ", ".join(f"rank {r}: {duration(ns)}" for r, ns in waits.items() if ns > 0)
    if sync.op in _FROM_ROOT or sync.op in ("send", "receive"):
        source = f"rank {sync.root}" if sync.root >= 0 else "the root"
        start = f"Data comes from {source}; the others wait until it is there."
    elif sync.op in _TO_ROOT:
        start = f"Only the root, rank {sync.root}, waits for the others; rank {sync.last} came last."
    else:
        start = f"Rank {sync.last} came last; nothing starts before."
    return f"{start} Waiting: {waited}." if waited else f"{start} Nobody waited."


# --- the collective itself ----------------------------------------------------------------------------------------

_COMBINE = {
    "all_reduce": "adds the {n} partial sums of {shape} entry by entry; every rank gets the whole sum",
    "all_reduce_max": "takes the largest of the {n} ranks' numbers at each of {shape} places; every rank gets them",
    "all_gather": "lays the {n} shards side by side to {shape}; every rank gets the whole",
    "reduce_scatter": "adds the {n} partial sums of {shape}; every rank keeps its own slice of the sum",
    "all_to_all": "cuts {shape} the other way: every rank sends each other one a part",
    "scatter": "cuts {shape} and sends each of {n} ranks its piece",
    "broadcast": "copies {shape} to all {n} ranks",
    "gather": "brings the {n} shards of {shape} to one rank",
    "reduce": "adds the {n} partial sums of {shape} on one rank",
    "send": "carries {shape} from one rank to another",
    "receive": "carries {shape} from one rank to another",
}


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def _combining(reader: PlayReader, sync: SyncView) -> str:
    shape, ranks = dimensions(sync.shape), int(sync.present.sum())
    if sync.broken:
        return (f"Broken on purpose: the {op_name(sync.op)} of {shape} {sync.dtype} is skipped. Nothing moves, and "
                "every rank takes its own partial sum for the whole.")
    text = _COMBINE.get(sync.op, "moves {shape} between {n} ranks").format(n=max(ranks, sync.among), shape=shape)
    if sync.among > 1:
        return (f"{_upper(op_name(sync.op))}: {sync.group}: {shape} ({sync.dtype}, payload {size(sync.payload)})."
                if sync.op in MESSAGES else f"{_upper(op_name(sync.op))} between {sync.group}: {text} "
                f"({sync.dtype}, payload {size(sync.payload)}).")
    if ranks == 1:
        text = f"one rank alone, so {shape} is whole already"
    return (f"{op_name(sync.op).capitalize()}: {text} ({sync.dtype}, payload {size(sync.payload)})."
            f"{equation(reader, sync)}")


def equation(reader: PlayReader, sync: SyncView) -> str:
    """One number of the result with its true terms, where they were kept: y[0], or what the sync is about."""
    slots = reader.slots(sync.index)
    first = {r: drawn.numbers[0, 0] for (name, r), drawn in slots.items() if name == "first" and drawn.numbers.size}
    total = slots.get(("sum", -1))
    if sync.before != "partial" or len(first) < 2 or total is None or not total.numbers.size or sync.broken:
        return ""
    entry = int(slots["entry", -1].numbers[0, 0]) if ("entry", -1) in slots else 0
    name, result = training_text.symbol(sync, entry), float(total.numbers[0, 0])
    if sync.op == "all_reduce_max":
        return f" {name} = the largest of {', '.join(map(number, first.values()))} = {number(result)}."
    least = Z_DECIMALS if sync.site == "loss.sum" else 0
    decimals = max(_decimals([*first.values()], result), least)
    said = [_fixed(x, decimals) for x in first.values()]
    terms = " + ".join(f"({text})" if text.startswith("−") else text for text in said)
    equals = "=" if _adds_up([*first.values()], result, decimals) else "≈"
    return f" {name} = {terms} {equals} {_fixed(result, decimals)}."


def _decimals(terms: list[float], total: float) -> int:
    """As the picture: three digits of the largest number, one more where only then the terms add up."""
    largest = max(map(abs, [*terms, total]))
    least = min(6, max(0, 2 - floor(log10(largest)))) if largest > 0 and isfinite(largest) else 2
    return next((n for n in (least, least + 1) if _adds_up(terms, total, n)), least)


def _adds_up(terms: list[float], total: float, decimals: int) -> bool:
    """Whether the rounded terms add up to the rounded sum."""
    if not all(map(isfinite, [*terms, total])):
        return False
    apart = sum(float(_rounded(x, decimals)) for x in terms) - float(_rounded(total, decimals))
    return abs(apart) < 0.5 * 10 ** -decimals


def _rounded(x: float, decimals: int) -> Decimal:
    return Decimal(float(x)).quantize(Decimal(1).scaleb(-decimals), ROUND_HALF_UP)


def _fixed(x: float, decimals: int) -> str:
    """A number with `decimals`, and the minus sign of the picture."""
    if x == 0 or not isfinite(x):
        return "0" if x == 0 else number(x)
    rounded = _rounded(x, decimals)
    return f"{rounded if rounded else abs(rounded):f}".replace("-", "−")


def _never(sync: SyncView) -> str:
    """Of a collective that a failed run never got past."""
    came = int(sync.present.sum())
    return (f"{_upper(op_name(sync.op))}: never, {came} of {came + len(sync.missing)} arrived "
            f"({sync.dtype}, payload {size(sync.payload)}).")


# --- afterwards: what it feeds ------------------------------------------------------------------------------------


def _afterwards(reader: PlayReader, sync: SyncView) -> str:
    layers = reader.model["layers"]
    following = f"layer {sync.layer + 1}" if sync.layer + 1 < layers or not layers else "the last norm and the head"
    made = reader.pass_words(sync.pass_index)[2]
    if sync.broken:
        return "After: the ranks now hold different numbers for what should be one, and go on with them."
    texts = {
        "attention": "every rank adds the same y to its residual stream; the norm before the MLP reads it.",
        "mlp": f"every rank adds the same y to its residual stream; it feeds {following}.",
        "block": f"every rank adds the same y to its residual stream; it feeds {following}.",
        "embedding": "every rank holds the same x: layer 0 can start.",
        MESSAGE: "the stage has what it goes on with.",
        "head": ("every rank has all logits and picks the same word" if sync.after == "whole" else
                 "every rank keeps the logits of its own words") + (f": “{plain(made, 40)}”." if made.strip() else "."),
        "sample": "every rank knows all winners and picks the same word" + (f": “{plain(made, 40)}”." if made.strip()
                                                                            else "."),
        "load": "every rank holds the same array." if sync.after == "whole" else
                "every rank holds its own piece and will never send it: from now on activations move, not weights.",
    }
    trained = training_text.afterwards(reader, sync, _result(reader, sync))
    return "After: " + (trained or texts.get(sync.part, f"the array is {plain(sync.after, 30) or 'there'}."))


def _result(reader: PlayReader, sync: SyncView) -> str:
    """What a training step's one number comes to, in words: the loss, or the norm."""
    name = {"loss": "loss", "norm": "sum"}.get(sync.part, "")
    found = reader.slots(sync.index).get((name, -1))
    if found is None or not found.numbers.size:
        return ""
    value = found.numbers[-1, 0]
    return number(value if name == "loss" else max(value, 0.0) ** 0.5)


# --- the table ----------------------------------------------------------------------------------------------------


def steps(reader: PlayReader, pass_index: int) -> list[dict[str, Any]]:
    """One row for each sync of a pass, to be read instead of the picture."""
    first, number = reader.play["passes"]["first"][pass_index], reader.play["passes"]["count"][pass_index]
    return [_row(reader, reader.sync(k)) for k in range(first, first + number)]


def _row(reader: PlayReader, sync: SyncView) -> dict[str, Any]:
    waits = ", ".join(f"rank {r}: {duration(ns)}" for r, ns in sync.waits.items() if ns > 0)
    alone = int(sync.present.sum()) <= 1 or sync.never
    return {"number": sync.number, "site": sync.site, "what": f"{op_name(sync.op)}: {sync.reason}",
            "shape": dimensions(sync.shape), "payload": size(sync.payload),
            "last": "–" if alone else f"rank {sync.last}", "waits": waits or "none",
            "state": f"{sync.before} → {sync.after}" + (" (broken: skipped)" if sync.broken else "")
                     + (" (never: the run failed)" if sync.never else "")}
