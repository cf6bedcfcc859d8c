"""Planned beside held: what each rank of a run counted in its own arrays, kind by kind."""
from dataclasses import dataclass
from typing import Any

from minitp.plan.memory import own


@dataclass(frozen=True)
class Held:
    """Bytes of one kind on one rank: as planned from the sizes alone, and as the run counted them."""
    rank: int
    kind: str
    planned: int
    held: int

    @property
    def exact(self) -> bool:
        return self.planned == self.held

    def to_plain(self) -> dict[str, Any]:
        return {**vars(self), "exact": self.exact}


def memory(run: dict[str, Any]) -> tuple[Held, ...]:
    """A row for each rank and kind; none where the header doesn't tell what was held. FileFormatError where it tells
    what can't be."""
    table = own.held_in_trace(run)
    if table is None:
        return ()
    planned = [own.held(rows) for rows in own.of_trace(run)]
    return tuple(Held(rank, kind, of_rank.get(kind, 0), counted.get(kind, 0))
                 for rank, (of_rank, counted) in enumerate(zip(planned, table, strict=True))
                 for kind in dict.fromkeys((*of_rank, *counted)))
