"""What a world of ranks must offer: plain buffers moved between ranks, no states and no names.

The communicator above packs, records and checks; a transport moves. All arrays handed over are C-contiguous host
arrays. Movement is of bytes (any dtype), sums are of numbers. Counts are elements per rank.
"""
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from minitp.errors import CollectiveError


class Call(NamedTuple):
    """What this rank is about to do: the ranks of a group must agree on all of it (checked mode)."""
    sequence: int
    op: str
    site: str
    dtype: str
    shape: tuple[int, ...]                # of the whole array
    root: int | None = None
    peer: int | None = None               # of a message: where it goes, or comes from

    def __str__(self) -> str:
        what = f"{'×'.join(map(str, self.shape))} {self.dtype}".strip() if self.op != "barrier" else ""
        root = "" if self.root is None else f" root {self.root}"
        peer = "" if self.peer is None else f" {'to' if self.op == 'send' else 'from'} rank {self.peer}"
        return f"{self.op}({what}){root}{peer} at {self.site}, call {self.sequence}"


@runtime_checkable
class Transport(Protocol):
    """One rank's end of a world."""
    rank: int
    size: int
    world: str                            # "threads" or "mpi"
    patient: bool                         # True: wait without a deadline

    def announce(self, call: Call, checked: bool) -> int:
        """Say what comes next; with `checked`, the ranks compare it and raise CollectiveError if they differ.

        Returns the bytes of the extra message this took (0 where the comparison rides with the collective itself).
        """
        ...

    def all_reduce(self, array: np.ndarray, in_place: bool) -> np.ndarray:
        """The sum, in `array` itself where `in_place` (nothing else may read it) or in a new array."""
        ...

    def all_reduce_max(self, array: np.ndarray) -> np.ndarray:
        """The largest of the ranks' numbers, entry by entry, in a new array."""
        ...

    def reduce(self, array: np.ndarray, root: int) -> np.ndarray | None: ...

    def reduce_scatter(self, array: np.ndarray, counts: Sequence[int]) -> np.ndarray: ...

    def all_gather(self, array: np.ndarray, counts: Sequence[int]) -> np.ndarray: ...

    def gather(self, array: np.ndarray, counts: Sequence[int], root: int) -> np.ndarray | None: ...

    def scatter(self, array: np.ndarray | None, counts: Sequence[int], dtype: np.dtype, root: int) -> np.ndarray: ...

    def broadcast(self, array: np.ndarray, root: int) -> None:
        """Fill `array` (allocated on every rank) with the root's."""
        ...

    def all_to_all(self, array: np.ndarray, send: Sequence[int], receive: Sequence[int]) -> np.ndarray: ...

    def send(self, array: np.ndarray, to: int) -> None:
        """Hand `array` to rank `to`. May wait until it is received: two ranks that both send first wait for ever."""
        ...

    def receive(self, array: np.ndarray, source: int) -> None:
        """Fill `array` with what `source` sends."""
        ...

    def exchange(self, array: np.ndarray, to: int, into: np.ndarray, source: int) -> None:
        """Send `array` to rank `to` and fill `into` with what `source` sends, both at once: neither waits first."""
        ...

    def barrier(self) -> None: ...


def check_agreement(calls: Sequence[Any], texts: Sequence[Any] | None = None) -> None:
    """Raise CollectiveError naming the ranks that differ, unless all calls are equal; `texts` describe them."""
    groups: dict[Any, list[int]] = {}
    for rank, call in enumerate(calls):
        groups.setdefault(call, []).append(rank)
    if len(groups) > 1:
        lines = [f"  rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}: {(texts or calls)[ranks[0]]}"
                 for ranks in groups.values()]
        raise CollectiveError("the ranks don't make the same collective call:\n" + "\n".join(lines))
