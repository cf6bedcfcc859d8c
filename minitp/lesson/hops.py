"""What a collective built from messages cost, counted from its trace: rounds, messages, bytes."""
from collections import deque
from typing import NamedTuple

from minitp.errors import ConfigError
from minitp.trace.file import Trace
from minitp.trace.schema import Event


class Hops(NamedTuple):
    """rounds: messages that had to follow one another, on the longest path; messages: of all ranks; sent: bytes by the
    rank that sent them."""
    rounds: int
    messages: int
    sent: tuple[int, ...]

    @property
    def busiest(self) -> int:
        """Bytes sent by the rank that sent most."""
        return max(self.sent, default=0)


def hops(trace: Trace) -> Hops:
    """Of all messages, on whatever plane. A rank sends one message and receives one at a time."""
    said = [event for event in trace if event.peer is not None]
    sends = [event for event in said if event.op == "send"]
    sent = tuple(sum(event.payload for event in sends if event.rank == rank) for rank in range(trace.run["ranks"]))
    return Hops(_longest_path(said), len(sends), sent)


def _longest_path(said: list[Event]) -> int:
    """A message takes one round from when its sender is ready; a taker that is busy takes it a round later.

    ConfigError where the trace lacks the sender's side of a message.
    """
    left = {rank: deque(event for event in said if event.rank == rank) for rank in {event.rank for event in said}}
    ready = dict.fromkeys(left, 0)
    arrives: dict[tuple[int | None, int | None, int], int] = {}     # (from, to, its number) → the round
    while to_come := sum(map(len, left.values())):
        for rank, events in left.items():
            while events:
                one = events[0]
                if one.op == "receive" and (one.peer, rank, one.sequence) not in arrives:
                    break                                           # its sender comes first
                events.popleft()
                if one.op == "receive":
                    ready[rank] = max(ready[rank] + 1, arrives[one.peer, rank, one.sequence])
                    continue
                arrives[rank, one.peer, one.sequence] = ready[rank] + 1
                if not (events and events[0].op == "receive" and events[0].enter == one.enter):
                    ready[rank] += 1                                # else an exchange: it receives at the same time
        if sum(map(len, left.values())) == to_come:
            rank, one = next((rank, events[0]) for rank, events in left.items() if events)
            raise ConfigError(f"no rounds can be counted: at {one.site} rank {rank} received message {one.sequence} of "
                              f"rank {one.peer}, and the trace doesn't have it sent. Was the sender's recorder paused?")
    return max(ready.values(), default=0)
