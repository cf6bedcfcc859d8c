"""The trace, version 1: one file per run, plain JSON (gzipped where its name ends in .gz), readable without minitp.

    {"format": "minitp trace", "version": 1,
     "run":     what was run: id, time, command, world, mesh, model, placement, options, versions, cores, threads,
     "clock":   {"offset_ns": one per rank, "error_ns": one per rank}: already applied to every time below,
     "strings": the words that the columns below give as numbers,
     "events":  {column: list}, one entry per event, all ranks one after the other,
     "marks":   {column: list}, the phases and steps of each rank with their begin and end,
     "values":  [{event, before, after}] or absent: small arrays whole, large ones as block maxima}

An event is one collective, or one message, on one rank. What a rank computes lies in the gaps between its events: a
compute span is named by the sites it lies between (`minitp.trace.timeline`). Times are ns since the run's start.
"""
from typing import NamedTuple

FORMAT, VERSION = "minitp trace", 1


class Event(NamedTuple):
    """The columns of `events`, in order."""
    rank: int                       # the rank in the run
    axis: str                       # mesh axis of the group: tp
    group: int                      # which group of that axis: the smallest rank in it
    sequence: int                   # running number of the call in its group
    plane: str                      # data (a sync point), sample, control
    op: str                         # all_reduce, all_gather, reduce_scatter, scatter, broadcast, …, send, receive
    root: int | None                # of a scatter, broadcast, gather, reduce
    peer: int | None                # of a message
    chunk: int | None               # of a message: which piece of the array
    site: str                       # where in the model: layers.3.mlp.down
    reason: str                     # why, in words
    phase: str                      # load, prefill, decode, forward, backward, optimizer
    step: int | None                # token index, or training step
    micro_batch: int | None
    draft: int | None               # draft tokens that a speculative pass carries
    before: str                     # state before: whole, shard(axis), partial, on root
    after: str
    shape: tuple[int, ...]          # of the whole array
    dtype: str
    payload: int                    # bytes of the whole array; the sum of the pieces where copies are sent
    enter: int                      # ns: this rank is ready
    leave: int                      # ns: this rank has its result
    start: int | None               # ns: a non-blocking one was started …
    wait: int | None                # … its result was asked for …
    complete: int | None            # … and was there
    wire: int | None                # bytes sent by this rank; known only for collectives built from our own sends
    broken: bool                    # a fault was injected here: the partial was taken for the whole
    caller: str                     # the line of code that called it


class Mark(NamedTuple):
    """The columns of `marks`: a phase or step of one rank."""
    rank: int
    phase: str
    step: int | None
    micro_batch: int | None
    enter: int
    leave: int


WORDS = ("axis", "plane", "op", "site", "reason", "phase", "before", "after", "dtype", "caller")
"""The columns whose entries are numbers of `strings`."""
