"""The passes of a run, numbered: which events are one forward pass, one backward pass, one optimizer step, one token.

A pass is what a rank does under one phase, step and micro-batch. Passes are numbered from 0 in the order of their first
event, and that number is what `token` means in an address, on every page:

    a generation    load, prefill 0, decode 1, decode 2, …
    training        forward 0 of micro-batch 0, backward 0 of micro-batch 0, forward 0 of micro-batch 1, …, optimizer 0

Several micro-batches may be in flight at once, so a pass need not lie in one piece. Step numbers may begin anew, as
those of the sample texts between training steps: what comes again after another step is a pass of its own. Where no
data moves (control messages, checkpoints) is no pass.
"""
from dataclasses import dataclass

import numpy as np

from minitp.trace.schema import MESSAGES
from minitp.trace.timeline import Timeline, codes


@dataclass(frozen=True)
class PassNumbers:
    """What tells the n passes apart, and which of them each event belongs to.

    of_event                   per event, its pass; -1: a control message
    phase, step, micro_batch   (n,) as in the events: a number of the trace's strings, -1 for none
    begin                      (n,) ns, when the first rank entered its first event
    speaker                    per sync of the timeline, the event that speaks for it: the sender's, else the first in
                               the trace (of the lowest rank); -1: all of its events are control messages
    """
    of_event: np.ndarray
    phase: np.ndarray
    step: np.ndarray
    micro_batch: np.ndarray
    begin: np.ndarray
    speaker: np.ndarray

    def __len__(self) -> int:
        return len(self.phase)

    @classmethod
    def of(cls, timeline: Timeline) -> "PassNumbers":
        trace, sync = timeline.trace, timeline.sync
        work = np.flatnonzero(~trace.where(plane="control"))
        speaker = _speakers(timeline, work)
        code = _visits(timeline, work)
        met = speaker[sync[work]]                             # all ranks of a sync are in the pass of its speaker
        of_work = code[np.searchsorted(work, met)]
        enter = trace.events["enter"][work]
        order = np.argsort(enter, kind="stable")
        found, first = np.unique(of_work[order], return_index=True)
        number = np.empty(len(found), np.int64)
        number[np.argsort(first)] = np.arange(len(found))
        of_event = np.full(len(trace), -1)
        of_event[work] = number[np.searchsorted(found, of_work)]
        first = np.sort(first)
        phase, step, micro_batch = (trace.events[name][met[order[first]]] for name in ("phase", "step", "micro_batch"))
        return cls(of_event, phase, step, micro_batch, enter[order[first]], speaker)

    def owner(self, phase: np.ndarray, step: np.ndarray, micro_batch: np.ndarray, until: np.ndarray) -> np.ndarray:
        """The pass of each mark or span: of those with its phase, step and micro-batch the last that had begun when it
        ended, or the first of them; -1 where no data moved under these."""
        n = len(phase)
        key = codes(np.concatenate([phase, self.phase]), np.concatenate([step, self.step]),
                    np.concatenate([micro_batch, self.micro_batch]))
        time = codes(np.concatenate([until, self.begin]))
        place = key * (int(time.max(initial=0)) + 1) + time
        order = np.argsort(place[n:], kind="stable")
        if not len(order):
            return np.full(n, -1)
        before = np.searchsorted(place[n:][order], place[:n], side="right") - 1
        owner = np.full(n, -1)
        for candidate in (np.minimum(before + 1, len(order) - 1), np.maximum(before, 0)):
            mine = order[candidate]
            owner = np.where(key[n:][mine] == key[:n], mine, owner)
        return owner


def _speakers(timeline: Timeline, work: np.ndarray) -> np.ndarray:
    speaker = np.full(int(timeline.sync.max(initial=-1)) + 1, -1)
    sends = work[timeline.trace.where(op=MESSAGES[0])[work]]
    for events in (work, sends):
        speaker[timeline.sync[events[::-1]]] = events[::-1]                    # the last assignment stays
    return speaker


def _visits(timeline: Timeline, work: np.ndarray) -> np.ndarray:
    """A number for each event of `work`, equal for the events of one pass on whatever rank.

    Beside phase, step and micro-batch it counts how often its rank has come back to them after another step. Rank by
    rank, since one may be a step ahead of another.
    """
    columns = {name: timeline.trace.events[name][work] for name in ("rank", "enter", "phase", "step", "micro_batch")}
    order = np.lexsort((columns["enter"], columns["rank"]))
    changes = [np.diff(columns[name][order], prepend=0) != 0 for name in ("rank", "step")]
    stay = np.empty(len(work), np.int64)
    stay[order] = np.cumsum(changes[0] | changes[1])                           # equal: the rank has stayed in its step
    key = codes(*(columns[name] for name in ("phase", "step", "micro_batch")))
    of_rank = codes(columns["rank"], key)
    _, one, visit = np.unique(codes(of_rank, stay), return_index=True, return_inverse=True)
    owner = of_rank[one]
    starts = np.flatnonzero(np.diff(owner, prepend=-1))
    count = np.arange(len(one)) - np.repeat(starts, np.diff(starts, append=len(one)))
    return codes(key, count[visit])
