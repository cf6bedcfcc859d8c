"""The memory of a plan for a page: a bar for each kind of rank, whether it fits in words, and what grows with what.

All bytes are those of `minitp.plan.memory`; nothing is computed here. A model, not measured.
"""
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from minitp.plan import memory
from minitp.plan.job import Inference, Job
from minitp.plan.layout import Layout, Place
from minitp.plan.memory.capacity import Capacity, Verdict, fewest_by_bytes, verdict
from minitp.plan.memory.growth import Grows, growth, more_sequences, wider
from minitp.plan.memory.rank_share import alike
from minitp.plan.memory.terms import legend
from minitp.plan.model import PlannedModel
from minitp.plan.rows import Kind, Row, by_kind, total
from minitp.plan.speed.against import published
from minitp.plan.speed.decode import prefill, token
from minitp.plan.speed.step import training_step
from minitp.plan.units import both, duration, percent
from minitp.trace.wording import count as counted
from minitp.view.plan import Asked

MOST_BARS = 64                         # of different ranks; of more only the fullest of each stage is drawn
MOST_RANGES = 3                        # of ranks in a bar's name


@dataclass(frozen=True)
class Bar:
    """One kind of rank. `place`: the first rank of this kind."""
    name: str
    place: Place
    rows: list[Row]

    @property
    def bytes(self) -> int:
        return total(self.rows)


@dataclass(frozen=True)
class Memory:
    """All that the section shows. `model` and `layout` are what was planned."""
    model: PlannedModel
    layout: Layout
    job: Job
    capacity: Capacity
    bars: list[Bar]
    fullest: Bar
    verdict: Verdict


def planned(asked: Asked) -> Memory:
    """The memory of every kind of rank. ConfigError for a layout or a batch that can't be."""
    model, layout, job, capacity = asked.planned(), asked.layout(), asked.job(), asked.capacity()
    judged = verdict(model, layout, job, capacity)
    ranks = memory.ranks(model, layout, job)
    place = judged.place or next(iter(ranks))
    ranks.setdefault(place, memory.rows(model, layout, job, place))
    if len(ranks) > MOST_BARS:
        best: dict[int, Place] = {}
        for one, rows in ranks.items():
            if one.pp not in best or total(rows) > total(ranks[best[one.pp]]) or one == place:
                best[one.pp] = one
        ranks = {one: ranks[one] for one in best.values()}
    bars = [Bar(name_of(one, model, layout, ranks), one, rows) for one, rows in sorted(ranks.items(), key=_in_order)]
    return Memory(model, layout, job, capacity, bars, next(bar for bar in bars if bar.place == place), judged)


def _in_order(entry: tuple[Place, list[Row]]) -> tuple[int, ...]:
    place = entry[0]
    return place.pp, place.tp, place.dp, place.cp


def name_of(place: Place, model: PlannedModel, layout: Layout, ranks: dict[Place, list[Row]]) -> str:
    """Only what tells it from the others: stage, all tp ranks that are like it, replica."""
    stage = f"stage {place.pp}" if layout.pp > 1 else ""
    beside = [one for one in ranks if one.pp == place.pp]
    kinds = alike(model, layout.tp, layout.embedding, layout.cut)
    like = next(kind for kind in kinds if place.tp in kind)
    tp = f"tp {_ranges(like)}" if len({one.tp for one in beside}) > 1 else ""
    dp = f"dp {place.dp}" if len({one.dp for one in beside}) > 1 else ""
    cp = f"cp {place.cp}" if len({one.cp for one in beside}) > 1 else ""
    return ", ".join(filter(None, (stage, tp, dp, cp))) or ("each rank" if layout.devices > 1 else "the device")


def _ranges(ranks: Sequence[int]) -> str:
    """Ascending numbers in words: 0, 2–5, 7."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    words = [f"{run[0]}–{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]
    return ", ".join(words if len(words) <= MOST_RANGES else [*words[:MOST_RANGES], "…"])


def verdict_line(found: Memory) -> str:
    """Whether it fits, in words and both units."""
    capacity, judged = found.capacity, found.verdict
    who = f"The fullest kind of rank ({found.fullest.name})" if len(found.bars) > 1 else "Each rank"
    has = (f"A device {'really' if capacity.real_counts else 'by its name'} has {both(capacity.bytes)}, "
           f"{percent(capacity.reserve)} of it kept free for what isn't modeled")
    if judged.fits:
        return f"It fits. {who} holds {both(judged.needed)}. {has}: {both(judged.room)} are left."
    least = fewest_by_bytes(found.model, found.job, capacity)
    more = (f"By bytes alone, were any cut even, it takes {counted(least, 'device')} or more."
            if least > found.layout.devices else
            "By bytes alone so many devices would do: Layouts shows whether another layout does.")
    return f"It doesn't fit. {who} needs {both(judged.needed)}. {has}: {both(-judged.room)} are missing. {more}"


def bars_alt(found: Memory, verdict: str) -> str:
    """The picture of the bars in words, for those who don't see it."""
    parts = ", ".join(f"{kind} {both(size)}" for kind, size in by_kind(found.fullest.rows).items())
    return (f"Stacked bars of memory, one for each kind of rank ({len(found.bars)}), under the line of the device. "
            f"The fullest, {found.fullest.name}: {parts}. {verdict} A model, not measured.")


def devices_line(asked: Asked, found: Memory) -> str:
    """The layout, and the devices it takes beside those that there are."""
    had, taken = asked.had(), found.layout.devices
    beside = ("" if had == taken else f"; the machine has {had:,}, so {had - taken:,} stand idle" if had > taken else
              f"; the machine has {had:,}, so more of the same are taken")
    return f"{found.layout}: {counted(taken, 'device')}{beside}"


@dataclass(frozen=True)
class Speed:
    """A few numbers of a plan's time, as words. A model, not measured. `against`: how far it is off published runs; of
    a generation none are known."""
    cells: tuple[tuple[str, str], ...]
    rows: list[dict[str, str]]
    against: str = ""


def speed(asked: Asked, found: Memory) -> Speed:
    """A token or a step on the machine; ConfigError where nothing is known of a network between its boxes."""
    machine = asked.described()
    if isinstance(found.job, Inference):
        one = token(found.model, found.layout, found.job, machine)
        first = prefill(found.model, found.layout, found.job, machine)
        cells = (("A token", duration(one.seconds)), ("Tokens/s in all", _three(one.tokens_per_s)),
                 ("First token after", duration(first.seconds)))
        return Speed(cells, _times(one))
    time = training_step(found.model, found.layout, found.job, machine)
    whole = (("The training", f"{time.days:,.3g} days"),) if time.days else ()
    return Speed((("A step", duration(time.seconds)), ("Tokens/s in all", _three(time.tokens_per_s)),
                  ("MFU", percent(time.mfu)), *whole), _times(time), published().text)


def _three(number: float) -> str:
    """With three digits, or all of them before the point."""
    return f"{number:.3g}" if number < 100 else f"{number:,.0f}"


def _times(time: Any) -> list[dict[str, str]]:
    return [{"term (a model)": row.term, "time (a model)": duration(row.seconds),
             "share": percent(row.seconds / time.seconds), "formula": row.formula, "with numbers": row.numbers,
             "note": row.note, "source": row.source} for row in time.rows]


def table(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Every term with its formula, the numbers put in, both units and its source."""
    return [{"kind": row.kind, "term": row.term, "GB (GiB)": both(row.bytes), "bytes": row.bytes,
             "formula": row.formula, "with numbers": row.numbers, "source": row.source, "note": row.note}
            for row in rows]


def legend_line(rows: Sequence[Row]) -> str:
    """What the letters in these rows' formulas mean."""
    return "; ".join([*(f"{letter}: {meaning}" for letter, meaning in legend(rows).items()),
                      "numbers alone: bytes, and how many arrays"])


def not_modeled(found: Memory) -> list[dict[str, str]]:
    """What the reserve is for."""
    return [{"not modeled": one.what, "how much": one.size, "source": one.source}
            for one in memory.unmodeled(found.model, found.job)]


# --- what grows with what --------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Grown:
    """The fullest rank once more, wider or with more sequences. `parts`: (kind, by what it grows) → bytes.
    `proportional`: bytes, if memory were proportional to parameters × sequences."""
    name: str
    parts: dict[tuple[Kind, Grows], int]
    proportional: float

    @property
    def bytes(self) -> int:
        return sum(self.parts.values())


@dataclass(frozen=True)
class Growing:
    """Four bars: as it is, wider, with more sequences, both. `parameters`, `sequences`: how many times as many."""
    bars: tuple[Grown, ...]
    parameters: float
    sequences: int
    rows: list[dict[str, Any]]


def growing(found: Memory, doublings: int, more: int) -> Growing:
    """The fullest rank with its width doubled `doublings` times and its sequences `more` times."""
    grown = growth(found.model, found.layout, found.job, found.fullest.place)
    grows = {(one.row.kind, one.row.term): one.grows for one in grown}
    wide, many = found.model, found.job
    for _ in range(doublings):
        wide = wider(wide)
    for _ in range(more):
        many = more_sequences(many)
    times, sequences = wide.parameters / found.model.parameters, 2**more
    base = total(one.row for one in grown)

    def bar(name: str, model: PlannedModel, job: Job, factor: float) -> Grown:
        parts: dict[tuple[Kind, Grows], int] = {}
        for row in memory.rows(model, found.layout, job, found.fullest.place):
            key = row.kind, grows.get((row.kind, row.term), "with neither")
            parts[key] = parts.get(key, 0) + row.bytes
        return Grown(name, parts, base * factor)

    bars = (bar("as it is", found.model, found.job, 1), bar(f"parameters × {times:.3g}", wide, found.job, times),
            bar(f"sequences × {sequences}", found.model, many, sequences), bar("both", wide, many, times * sequences))
    return Growing(bars, times, sequences, [
        {"kind": one.row.kind, "term": one.row.term, "grows": one.grows, "twice the width": f"× {one.width:.3g}",
         "twice the sequences": f"× {one.batch:.3g}", "twice the tokens": f"× {one.tokens:.3g}",
         "GB (GiB)": both(one.row.bytes), "formula": one.row.formula} for one in grown])


def growth_line(found: Growing) -> str:
    """What the picture shows, in a sentence."""
    first, last = found.bars[0], found.bars[-1]
    if found.parameters == 1 and found.sequences == 1:
        return "Move the two sliders: each term answers to its own."
    product = _three(found.parameters * found.sequences)
    return (f"With {_three(found.parameters)} × the parameters and {found.sequences} × the sequences this rank needs "
            f"{_three(last.bytes / first.bytes)} × the memory, {both(last.bytes)}. Were memory proportional to "
            f"parameters × sequences, it would be {product} ×. It is a sum of terms, and only those that grow with "
            "both are near that; activations grow with the width, the square root of a layer's parameters.")
