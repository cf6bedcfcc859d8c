"""How much of a run one play carries: as many passes as fit, never fewer without a word."""
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from minitp.view.slots import DETAILS, Detail, Slot, nbytes, outline
from minitp.view.steps import Steps

ROOM = 980_000                     # bytes of JSON: a page plays 1 MB smoothly
MOST_SYNCS = 20_000                # of a play, however it was asked for
_PER_PASS, _PER_SYNC = 110, 58     # bytes of their columns, and of a pass's words
_PER_TIME, _PER_SLOT = 27, 98      # of a rank's 5 times in base64; of a slot's outline


@dataclass(frozen=True)
class Window:
    """The passes first … first + count - 1 of `of`; `slots` of each of their syncs, shown in `detail`."""
    first: int
    count: int
    of: int
    slots: list[list[Slot]]
    detail: Detail


def window(steps: Steps, slots_of: Callable[[int], list[Slot]], first: int | None, count: int | None,
           room: int) -> Window:
    """The window that was asked for, clamped; without `count` as many passes as `room` bytes can hold, at least one."""
    total = len(steps.passes)
    first = min(max(first or 0, 0), max(total - 1, 0))
    wanted = total - first if count is None else min(max(count, 1), total - first)
    made: list[list[Slot]] = []
    kept: dict[tuple, tuple[list[Slot], int]] = {}                 # outline → (slots that have it, how many syncs)
    used = taken = 0
    for number in range(first, first + wanted):
        syncs = min(int(steps.passes.count[number]), MOST_SYNCS - len(made))
        start = int(steps.passes.first[number])
        new = [slots_of(k) for k in range(start, start + syncs)]
        counts = Counter(map(outline, new))
        examples = {outline(slots): slots for slots in new}
        more = _PER_PASS + syncs * (_PER_SYNC + _PER_TIME * steps.ranks) + sum(
            _bytes(slots, counts[key], DETAILS[-1]) + _PER_SLOT * len(slots) * (key not in kept)
            for key, slots in examples.items())
        if taken and (not syncs or (count is None and used + more > room)):
            break
        for key, slots in examples.items():
            kept[key] = slots, kept.get(key, (slots, 0))[1] + counts[key]
        made += new
        used += more
        taken += 1
    left = room - used + _of_all(kept, DETAILS[-1])
    detail = next((d for d in DETAILS if _of_all(kept, d) <= left), DETAILS[-1])
    return Window(first, taken, total, made, detail)


def last_window(steps: Steps, slots_of: Callable[[int], list[Slot]], room: int) -> Window:
    """As many of the last passes as `room` bytes can hold: of a run that failed, what led to it."""
    found = window(steps, slots_of, None, None, room)
    while found.first + found.count < found.of:                    # passes differ: those at the end may take more
        found = window(steps, slots_of, max(found.of - found.count, found.first + 1), None, room)
    return found


def _of_all(kept: dict[tuple, tuple[list[Slot], int]], detail: Detail) -> int:
    return sum(_bytes(slots, often, detail) for slots, often in kept.values())


def _bytes(slots: list[Slot], often: int, detail: Detail) -> int:
    """Of base64."""
    return nbytes(slots, detail) * often * 4 // 3
