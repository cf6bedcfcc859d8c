"""The play read back, as the player reads it: for the tour, the text table, captions and tests.

What they say is taken from the play and nothing else, so it is what the picture shows.
"""
import base64
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Drawn:
    """One array of a sync or weight: exact numbers, or magnitudes by block."""
    numbers: np.ndarray
    exact: bool
    shape: tuple[int, ...]
    axis: str = ""


@dataclass(frozen=True)
class SyncView:
    """One sync of the play: its columns in words, and its times by rank in ns since its pass began."""
    index: int
    number: int                    # 1 is the first of its pass
    of: int                        # syncs of its pass
    pass_index: int
    phase: str
    op: str
    site: str
    layer: int
    part: str
    reason: str
    before: str
    after: str
    shape: tuple[int, ...]
    dtype: str
    payload: int
    plane: str
    root: int
    broken: bool
    caller: str
    code: str
    last: int
    among: int                     # of a predicted run: devices that meet here; 0: the ranks that are shown
    group: str                     # who they are, in words
    never: bool                    # the run failed, and nobody gets past it
    missing: tuple[int, ...]       # the ranks that never came to it
    failed: str                    # who waited and who didn't come, in words; "": it ended on every rank
    begin: np.ndarray              # (ranks,)
    enter: np.ndarray
    ready: np.ndarray
    leave: np.ndarray
    present: np.ndarray            # bool

    @property
    def waits(self) -> dict[int, int]:
        """How long each rank that took part waited for what it depends on, in ns."""
        return {r: int(self.ready[r] - self.enter[r]) for r in np.flatnonzero(self.present).tolist()}

    @property
    def computing(self) -> dict[int, int]:
        return {r: int(self.enter[r] - self.begin[r]) for r in np.flatnonzero(self.present).tolist()}

    @property
    def moving(self) -> dict[int, int]:
        return {r: int(self.leave[r] - self.ready[r]) for r in np.flatnonzero(self.present).tolist()}


class PlayReader:
    """A play's columns by sync, its slots by name and rank."""

    def __init__(self, play: dict[str, Any]):
        self.play, self.run, self.strings = play, play["run"], play["strings"]
        self.ranks, self.model = self.run["ranks"], self.run["model"]
        self._syncs = play["syncs"]
        self.n = len(self._syncs["pass"])

    @cached_property
    def _times(self) -> np.ndarray:
        times = np.frombuffer(base64.b64decode(self.play["times"]), "<i4").reshape(self.n, self.ranks, 5)
        tick = np.array(self.play["passes"]["tick"], np.int64)[self._syncs["pass"]]
        return times.astype(np.int64) * tick[:, None, None]

    @cached_property
    def _offsets(self) -> np.ndarray:
        sizes = [sum(map(_nbytes, layout["slots"])) for layout in self.play["layouts"]] + [0]
        return np.cumsum([0, *(sizes[i] for i in self._syncs["layout"])])

    @cached_property
    def _blob(self) -> bytes:
        return base64.b64decode(self.play["blob"])

    def word(self, column: str, k: int) -> str:
        return self.strings[self._syncs[column][k]]

    def sync(self, k: int) -> SyncView:
        s, passes = self._syncs, self.play["passes"]
        at = s["pass"][k]
        words = {name: self.word(name, k) for name in (
            "op", "site", "part", "reason", "before", "after", "dtype", "plane", "caller", "code", "group")}
        times, failed = self._times[k], self.play.get("never", {}).get(str(k), {})
        return SyncView(
            index=k, number=k - passes["first"][at] + 1, of=passes["count"][at], pass_index=at,
            phase=self.strings[passes["phase"][at]], layer=s["layer"][k],
            shape=tuple(self.play["shapes"][s["shape"][k]]), payload=s["payload"][k], root=s["root"][k],
            broken=bool(s["broken"][k]), last=s["last"][k], among=s["among"][k], begin=times[:, 0],
            enter=times[:, 1], ready=times[:, 2], leave=times[:, 3], present=times[:, 4] > 0,
            never=failed.get("never", False), missing=tuple(failed.get("missing", ())), failed=failed.get("words", ""),
            **words)

    def first_broken(self) -> int | None:
        """The first sync that was broken on purpose."""
        return next((k for k, broken in enumerate(self._syncs["broken"]) if broken), None)

    def pass_words(self, i: int) -> tuple[str, int, str, str]:
        """(phase, step, the word it produced, the word it read) of a pass."""
        passes = self.play["passes"]
        return (self.strings[passes["phase"][i]], passes["step"][i], self.strings[passes["text"][i]],
                self.strings[passes["input"][i]])

    def slots(self, k: int) -> dict[tuple[str, int], Drawn]:
        """The arrays of a sync, by name and rank (-1: whole)."""
        layout = self._syncs["layout"][k]
        if layout < 0:
            return {}
        found, at = {}, int(self._offsets[k])
        for slot in self.play["layouts"][layout]["slots"]:
            found[slot["slot"], slot["rank"]] = _drawn(self._blob, at, slot)
            at += _nbytes(slot)
        return found

    @cached_property
    def weights(self) -> dict[tuple[str, int], Drawn]:
        """The matrices that have numbers, as stored, by name and rank."""
        blob, found, at = base64.b64decode(self.play["weight_blob"]), {}, 0
        for entry in self.play["weights"]:
            if entry["kind"] != "none":
                found[entry["name"], entry["rank"]] = _drawn(blob, at, entry)
                at += _nbytes(entry)
        return found


def _nbytes(slot: dict[str, Any]) -> int:
    cells = slot["rows"] * slot["cols"]
    return 4 * cells if slot["kind"] == "f32" else 4 + -(-cells // 4) * 4


def _drawn(blob: bytes, at: int, slot: dict[str, Any]) -> Drawn:
    rows, cols = slot["rows"], slot["cols"]
    shape, axis = tuple(slot["shape"]), slot.get("axis", "")
    if slot["kind"] == "f32":
        return Drawn(np.frombuffer(blob, "<f4", rows * cols, at).reshape(rows, cols).astype(float), True, shape, axis)
    scale = float(np.frombuffer(blob, "<f4", 1, at)[0])
    cells = np.frombuffer(blob, np.uint8, rows * cols, at + 4).reshape(rows, cols)
    return Drawn(cells / 255 * scale, False, shape, axis)
