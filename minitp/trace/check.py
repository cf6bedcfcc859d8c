"""Predicted = recorded: does a run hold exactly the events that a closed form says, in order, on every rank?

Control messages are left out: they are the program's own, not the model's.
"""
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from operator import attrgetter

import numpy as np

from minitp.trace.file import Trace
from minitp.trace.schema import Event, Expected
from minitp.trace.wording import dimensions, pass_name, plain

SHOWN = 20                         # differences; then it ends: a stranger's header may speak of a million ranks
_FIELDS = attrgetter(*Expected._fields)
_AHEAD = 200                       # how far to look for the next event that fits, after one that doesn't


Events = Iterable[Event | Expected]


def compare(trace: Trace, predicted: Events | Mapping[int, Events], *, cut_off: bool = False) -> list[str]:
    """The differences in sentences, none if the trace is what was predicted; after SHOWN of them, "and more".

    `predicted` holds the events of a rank in order: the same for every rank, or, as a mapping, rank → its own.
    Compared are the fields of `Expected`. Where all ranks should be the same, the first is held against the prediction
    and the others against the first, so that a mistake common to all is said once. `cut_off`: the run failed. What
    would come behind a rank's last event isn't missed then, and what comes behind the last predicted is not compared.
    """
    recorded = recorded_by_rank(trace)
    return _at_most(_by_rank(recorded, predicted, cut_off) if isinstance(predicted, Mapping)
                    else _all_the_same(recorded, trace.run["ranks"], _wanted(predicted), cut_off))


def recorded_by_rank(trace: Trace) -> dict[int, list[Expected]]:
    """The events, but for control messages, of each rank that has any, in order, as a prediction would have them."""
    by_rank: dict[int, list[Expected]] = {}
    for event in trace:
        if event.plane != "control":
            by_rank.setdefault(event.rank, []).append(_expected(event))
    return by_rank


def reached(trace: Trace, predicted: int) -> tuple[int, int, int]:
    """Of a run that failed: how many of the `predicted` events of each rank had ended on the rank with fewest, on that
    with most, and how many more than that it has."""
    ended = np.bincount(trace.events["rank"][trace.words("plane") != "control"], minlength=trace.run["ranks"])
    few, many = int(ended.min()), int(ended.max())
    return min(few, predicted), min(many, predicted), max(many - predicted, 0)


def _by_rank(recorded: Mapping[int, Sequence[Expected]], predicted: Mapping[int, Events], cut_off: bool
             ) -> Iterator[str]:
    for rank in sorted(set(recorded) | set(predicted)):
        yield from _differences(f"rank {rank}", recorded.get(rank, []), "predicted", _wanted(predicted.get(rank, ())),
                                cut_off)


def _all_the_same(recorded: Mapping[int, Sequence[Expected]], ranks: int, predicted: list[Expected], cut_off: bool
                  ) -> Iterator[str]:
    if predicted and len(recorded) < ranks and not cut_off:
        silent = next(rank for rank in range(ranks) if rank not in recorded)
        yield f"{ranks - len(recorded):,} of {ranks:,} ranks recorded nothing, of them rank {silent} is the first"
    if recorded:
        first, *others = sorted(recorded, key=lambda rank: (-len(recorded[rank]) * cut_off, rank))
        yield from _differences(f"rank {first}", recorded[first], "predicted", predicted, cut_off)
        for rank in others:
            yield from _differences(f"rank {rank}", recorded[rank], f"on rank {first}", recorded[first], cut_off)


def _expected(event: Event | Expected) -> Expected:
    expected = Expected._make(_FIELDS(event))
    return expected if type(expected.shape) is tuple else expected._replace(shape=tuple(expected.shape))


def _wanted(events: Iterable[Event | Expected]) -> list[Expected]:
    return [_expected(event) for event in events if event.plane != "control"]


def _differences(who: str, have: Sequence[Expected], source: str, want: Sequence[Expected], cut_off: bool
                 ) -> Iterator[str]:
    """Both in step; where the places differ, look a little ahead for what is missing or too much."""
    i = j = 0
    while i < len(have) and j < len(want):
        if _place(have[i]) == _place(want[j]):
            if have[i] != want[j]:
                yield f"{who}, event {i}, {_named(have[i])}: {_fields_that_differ(have[i], want[j], source)}"
            i, j = i + 1, j + 1
            continue
        extra, missing = _next_fit(have, i, want, j)
        if (extra, missing) == (1, 1):
            yield f"{who}, event {i}, is {_named(have[i])}; {source}: {_named(want[j])}"
        else:
            yield from _one_sided(who, have[i:i + extra], i, want[j:j + missing], source)
        i, j = i + extra, j + missing
    if not cut_off:
        yield from _one_sided(who, have[i:], i, want[j:], source)


def _one_sided(who: str, extra: Sequence[Expected], at: int, missing: Sequence[Expected], source: str) -> Iterator[str]:
    for n, event in enumerate(extra):
        yield f"{who}, event {at + n}, {_named(event)}, is not {source}"
    for event in missing:
        yield f"{who} lacks {_named(event)} before event {at + len(extra)}; it is {source}"


def _place(event: Expected) -> tuple:
    return event.op, event.site, event.plane, event.phase, event.step, event.micro_batch


def _next_fit(have: Sequence[Expected], i: int, want: Sequence[Expected], j: int) -> tuple[int, int]:
    """(too many, missing): the fewest events to skip on each side until both go on alike; (1, 1): one for another."""
    if i + 1 < len(have) and j + 1 < len(want) and _place(have[i + 1]) == _place(want[j + 1]):
        return 1, 1
    left = {_place(event): n for n, event in reversed(list(enumerate(have[i:i + _AHEAD])))}
    fits = [(left[_place(event)], n) for n, event in enumerate(want[j:j + _AHEAD]) if _place(event) in left]
    return min(fits, key=sum, default=(1, 1))


def _fields_that_differ(have: Expected, want: Expected, source: str) -> str:
    return "; ".join(f"{name} is {_value(a)}, {source} {_value(b)}"
                     for name, a, b in zip(Expected._fields, have, want, strict=True) if a != b)


def _value(value: object) -> str:
    return dimensions(value) if isinstance(value, tuple) else plain(value, 60)


def _named(event: Expected) -> str:
    when = f"{pass_name(event.phase, event.step, event.micro_batch, 20)}, {plain(event.plane, 20)}"
    return f"{plain(event.op, 20)} at {plain(event.site, 60)} ({when})"


def _at_most(differences: Iterator[str]) -> list[str]:
    found = list(islice(differences, SHOWN + 1))
    return found if len(found) <= SHOWN else [*found[:SHOWN], "and more"]
