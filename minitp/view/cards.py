"""What a card of the tour is, and where in a play the tour stops."""
from functools import cached_property
from typing import Any

from minitp.view.reading import PlayReader, SyncView

Card = dict[str, Any]
CHOICES = 8                        # ranks that a question offers at most
COMPUTE, ARRIVING, COMBINE, AFTER = range(4)


def card(title: str, text: str, sync: int, phase: int, *, cut: int | None = 1, focus: str = "",
         clock: str | None = "steps", t: float = 1, question: str | None = None, choices: list[str] | None = None,
         answer: int = 0, reveal: str = "") -> Card:
    """One card. `t`: how much of the phase is over, 0 to 1; 0 where a question must not be answered by the picture."""
    return {"title": title, "text": text, "sync": sync, "phase": phase, "t": t, "cut": cut, "focus": focus,
            "clock": clock, "question": question, "choices": choices or [],
            "answer": answer, "reveal": reveal}


class Guide:
    """Where in a play the tour stops: in its first decode pass if it has one, in that pass's first layer. Of a run that
    failed in a pass that was over, where there is one."""

    def __init__(self, reader: PlayReader):
        self.reader, self.model, self.ranks = reader, reader.model, reader.ranks
        phases = [reader.pass_words(i)[0] for i in range(len(reader.play["passes"]["first"]))]
        wanted = [i for name in ("decode", "prefill") for i, phase in enumerate(phases) if phase == name]
        working = [i for i, phase in enumerate(phases) if phase != "load"]
        cut_off = {reader.play["syncs"]["pass"][int(k)] for k in reader.play.get("never", {})}
        self.at = [*(i for i in [*wanted, *working] if i not in cut_off), *wanted, *working, 0][0]
        self.prefill = phases.index("prefill") if "prefill" in phases else None

    @cached_property
    def here(self) -> list[SyncView]:
        """The syncs of the tour's pass."""
        return [self.reader.sync(k) for k in self._numbers(self.at)]

    timed_of = ""                  # whose time it is, in words

    @cached_property
    def timed(self) -> list[SyncView]:
        """The syncs whose time the tour adds up."""
        return self.here

    def sync_points(self, pass_index: int) -> int:
        """How many collectives the mathematics of a pass needs: exchanges of winners are counted apart."""
        return sum(self.reader.word("plane", k) == "data" for k in self._numbers(pass_index))

    def _numbers(self, pass_index: int) -> range:
        passes = self.reader.play["passes"]
        first = passes["first"][pass_index]
        return range(first, first + passes["count"][pass_index])

    def find(self, *parts: str) -> SyncView | None:
        """The first sync of the tour's pass that belongs to one of these parts."""
        return next((sync for sync in self.here if sync.part in parts), None)

    @cached_property
    def mlp(self) -> SyncView | None:
        return self.find("mlp", "block")

    @cached_property
    def unseen(self) -> SyncView | None:
        """A sync whose arrivals no card shows before it asks for them: attention's, or that of the last layer."""
        inside = [sync for sync in self.here if sync.part in ("attention", "mlp", "block")]
        return self.find("attention") or next(iter(inside[::-1]), None) or next(iter(self.here), None)

    def cut_of(self, name: str) -> list[dict[str, Any]]:
        """The entries of a matrix by rank: `mlp.down` of any layer."""
        return [entry for entry in self.reader.play["weights"] if entry["name"] == f"layers.*.{name}.weight"]

    def rank_choices(self, answer: int, there: list[int]) -> list[int]:
        """The ranks that a question offers: all of them, or a run of neighbors, so that their number tells nothing."""
        start = min(there.index(answer) // CHOICES * CHOICES, max(len(there) - CHOICES, 0))
        return there[start:start + CHOICES]
