"""What the player says of a run that failed: which sync points never ended, who came to them and who didn't."""
from functools import cached_property
from typing import Any

import numpy as np

from minitp.trace.schema import MESSAGES
from minitp.trace.timeline import rank_in_group
from minitp.trace.wording import duration, plain
from minitp.view.steps import Steps
from minitp.view.text import op_name

_MOST_RANKS, _MOST_PLACES = 8, 4   # that a sentence names
_NO_RECORDING = "there is no recording"
_MOST_SYNCS = 64                   # that never ended: the last ones; a run has one for each of its groups


def never_ended(shown: Steps) -> dict[str, dict[str, Any]]:
    """{number of a sync: {"missing": ranks that never came, "never": whether nobody gets past it, "words"}}.

    Where all came and some have left, the rest didn't get their result any more before the run was stopped.
    """
    members = _Members(shown)
    found = {}
    for k in np.flatnonzero(shown.lost.any(axis=1)).tolist()[-_MOST_SYNCS:]:
        there = shown.cell[k] >= 0
        lost = np.flatnonzero(shown.lost[k]).tolist()
        missing = sorted(members.of(k) - set(np.flatnonzero(there).tolist()))
        never = bool(missing) or len(lost) == int(there.sum())
        found[str(k)] = {"missing": missing, "never": never, "words": _words(shown, k, lost, missing, members.known)}
    return found


class _Members:
    """Which of the ranks shown belong to a sync: those of its mesh axis, or else of the group as far as it was seen."""

    def __init__(self, steps: Steps):
        self.steps, self.trace = steps, steps.trace
        self._group: dict[tuple[int, int], set[int]] = {}
        told = self.trace.run.get("coordinates")
        self.coordinates = [one if isinstance(one, dict) else {} for one in told[:steps.ranks]] if isinstance(
            told, list) else []

    def of(self, k: int) -> set[int]:
        event = int(self.steps.event[k])
        axis, group = (int(self.trace.events[name][event]) for name in ("axis", "group"))
        if (axis, group) not in self._group:
            self._group[axis, group] = self._of_group(axis, group)
        members = self._group[axis, group]
        if self.trace.strings[self.trace.events["op"][event]] not in MESSAGES:
            return members
        peer, me = int(self.trace.events["peer"][event]), int(self._places[event])
        return {rank for place, rank in enumerate(sorted(members)) if place in (peer, me)}

    @cached_property
    def known(self) -> set[int]:
        """The ranks with a recording: one that didn't answer any more has none."""
        return set(self.trace.ranks)

    @cached_property
    def _places(self) -> np.ndarray:
        return rank_in_group(self.trace)

    def _of_group(self, axis: int, group: int) -> set[int]:
        events, name = self.trace.events, self.trace.strings[axis]
        mine = (events["axis"] == axis) & (events["group"] == group) & (events["rank"] < self.steps.ranks)
        seen = set(np.unique(events["rank"][mine]).tolist())
        places = [{other: at for other, at in place.items() if other != name} for place in self.coordinates]
        told = name in self.coordinates[group] if group < len(self.coordinates) else False
        return seen | ({rank for rank, place in enumerate(places) if place == places[group]} if told else set())


def _words(steps: Steps, k: int, lost: list[int], missing: list[int], known: set[int]) -> str:
    waited = duration(int((steps.leave[k] - steps.enter[k])[lost].max()))
    if not missing and len(lost) < int((steps.cell[k] >= 0).sum()):
        return f"All ranks came, but {_ranks(lost)} had no result yet when the run was stopped."
    if not missing:
        return f"All of {_ranks(lost)} came, and none got a result in {waited}, until the run was stopped."
    places: dict[str, list[int]] = {}
    for rank in missing:
        places.setdefault(_elsewhere(steps, rank) if rank in known else _NO_RECORDING, []).append(rank)
    said = [f"of {_ranks(ranks)} {place}" if place is _NO_RECORDING else f"{_ranks(ranks)} never came" if not place else
            f"{_ranks(ranks)} {'was' if len(ranks) == 1 else 'were'} in {place}"
            for place, ranks in sorted(places.items())[:_MOST_PLACES]]
    return f"{_upper(_ranks(lost))} waited here for {waited}, until the run was stopped: {', '.join(said)}."


def _elsewhere(steps: Steps, rank: int) -> str:
    """The call that a rank was in when the run failed."""
    other = np.flatnonzero(steps.lost[:, rank])
    if not len(other):
        return ""
    event = steps.event[other[-1]]
    op, site = (plain(steps.trace.strings[steps.trace.events[name][event]], 60) for name in ("op", "site"))
    return f"the {op_name(op)} at {site}"


def _ranks(ranks: list[int]) -> str:
    """rank 1; ranks 0, 2 and 3."""
    shown = [str(rank) for rank in ranks[:_MOST_RANKS]]
    if len(ranks) > _MOST_RANKS:
        shown.append(f"{len(ranks) - _MOST_RANKS} more")
    return f"ranks {', '.join(shown[:-1])} and {shown[-1]}" if len(shown) > 1 else f"rank {shown[0]}"


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]
