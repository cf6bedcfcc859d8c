"""The trace, version 1: one file per run, plain JSON (gzipped where its name ends in .gz), readable without minitp.

    {"format": "minitp trace", "version": 1,
     "run":     what was run: id, created, command, world, ranks, mesh, model, placement, options, versions, cores, …
     "clock":   {"offset_ns": one per rank, "error_ns": one per rank}: already applied to every time below,
     "strings": [the words that columns give by number],
     "shapes":  [[1, 1, 576], …: the shapes that the column `shape` gives by number],
     "events":  {column: list}, one entry per event, all ranks one after the other, each in its own order,
     "marks":   {column: list}, the phases and steps of each rank with their begin and end,
     "unfinished": {column: list}, the calls that never gave a rank their result (absent, where there are none),
     "values":  [{event, before, after or after_of}]: what collectives took and gave (absent, where not recorded),
     "arrays":  {column: list}, the arrays inside the layers (absent, where not recorded),
     "weights": {column: list}, each rank's part of the model's matrices (absent, where not recorded)}

The columns are the fields of `Event`, `Mark`, `Unfinished`, `Inner` and `Weight` below. Those in WORDS hold numbers of
`strings`, `shape` holds numbers of `shapes`, `broken` is true or false, `array` holds arrays as kept (see below), all
others hold whole numbers from 0 to 2⁵³ - 1 (what JSON can carry exactly everywhere); null, where the field may be None.
All columns of a table have one length. `event` in `values` is the number of an event in this file. In plain Python, the
sites of all data events of rank 0:

    trace = json.load(open("run.json"))                          # or json.load(gzip.open("run.json.gz"))
    events, strings = trace["events"], trace["strings"]
    print([strings[site] for site, rank, plane in zip(events["site"], events["rank"], events["plane"])
           if rank == 0 and strings[plane] == "data"])

A reader ignores keys and columns that it doesn't know: a later minitp may add some without changing the version.

Arrays are kept as one of (numbers in the order of the axes, the last one fastest; null for one that isn't finite)

    {"shape": [2, 4], "data": [...]}                                    all of it, to 6 digits
    {"shape": [2, 640], "block": 40, "maxima": [...]}                   of each row the largest |x| of every 40 numbers
    {"shape": [90, 640], "block": [8, 54], "maxima": [...]}             of a matrix, of every 8 × 54 of them, row by row

Maxima have 3 digits; `first` beside them are the exact first numbers, at most four, of the last row (of a matrix: of
the first). With `row`, the array was larger, and only token `row` of its first sequence is kept: `shape` is that of the
token. `after_of` stands for an `after` equal to that of another event of the same collective: what all ranks got is
there once. Arrays that loading moves are not here: they are what `weights` has.

Of the arrays inside the layers each pass keeps those of one token, the newest of the first sequence. By `site` and
`name`, as the layers call them:

    layers.3.attention_norm, layers.3.mlp_norm, norm        x: the residual stream that comes in
    layers.3.attention.qkv, layers.3.mlp.gate_up (or .up)   x: the normed stream that the columns are multiplied with
    layers.3.attention    query (heads, E), turned by its position and divided by √E; key, value (kv heads, E);
                          scores (heads, positions), the softmax weights, to 4 decimals; heads (heads, E): each one's
                          output. A rank's own heads, in order
    layers.3.mlp          gate, up, h = act(gate) · up: a rank's own part of the ffn
    head                  x, or the rank's `columns` of it; best_ids, best_logits: the best tokens of those whose logits
                          this rank has, before they are gathered or after they are summed

A training step's passes (`forward`, `backward`) keep the last position of the first sequence in the same way, the
backward its gradients: d of something is that of the loss with respect to it, divided by the step's tokens.

    loss                  (forward) exps: exp(own logits − largest); own_largest, own_total, own_target: this rank's
                          largest logit, its sum of exps, its part of the target's logit − largest; largest, total,
                          target: the same over all ranks; targets: the token's id; losses: its loss
    layers.3.mlp.down, layers.3.attention.o, embedding      dy: what arrives, the same on every rank
    layers.3.mlp          dh, dgate, dup: a rank's own part of the ffn
    layers.3.attention    dheads, dquery (heads, E), dkey, dvalue (kv heads, E): of a rank's own heads, of query, key
                          and value as the forward keeps them
    head                  dy: of the logits that this rank has
    (a parameter's name)  (optimizer) gradient: this rank's, summed over the step's micro-batches, before ranks reduce
                          it; of one matrix also `first moment`, `second moment` and `change`, all as maxima

`weights` has the model's matrices by the placement's names, (out, in), each rank's slice of them. What a rank has as
the first rank has it (x is whole) is left out, in `arrays` and `weights` alike; where ranks that should agree don't, as
in a run that was broken on purpose, each one's is there. In `run`, `prompt_pieces` and `pieces` are the words of the
prompts' tokens and of the new ones, `words` those of all best tokens, of targets and of those read, by their ids.
`memory` has the bytes that each rank holds, by kind, as it counted them in its own arrays: of a training as its first
steps came to, of a generation between its passes.

A run that has `simulated` in `run` was never run: its times are a model's (`minitp.plan.simulate`). That object names
the `machine` and how many `devices` it has to do with, and gives for each rank of the file in `ranks` which `device` it
is, where that one stands in the mesh, and how many it `stands_for`. Views must say so (`minitp.trace.simulated`).

A run over a link that was made slower on purpose has `emulated` in `run`: its `delay` has the least and the most, in
seconds, that a collective or message of the planes data and sample was held up. Views of times must say so
(`minitp.trace.emulated`).

A run that failed has `failed` in `run`: its error, as it was told, on one line and without folders. Its events are
those that ended until then, of the ranks that could still be asked: one rank may have more of them than another, one
none at all, and the last pass is cut off. `unfinished` has the calls that the ranks were in then; of one that sends and
receives at once, the receive. Marks that a rank was in end where its recording was taken. The rest of `run` tells what
was known by then: of the passes or steps also the one that it failed in, of tokens and losses those that were there,
no `memory`, and nothing of hosts and cores where a rank could not be asked. A program that catches the error of a call
and goes on has such calls, too, without having failed (`minitp.trace.failed`).

An event is one collective, or one message, on one rank. What a rank computes lies in the gaps between its events: a
compute span is named by the sites it lies between (`minitp.trace.timeline`). Times are ns since the run's start, which
is the earliest event or mark of any rank.
"""
from typing import NamedTuple

FORMAT, VERSION = "minitp trace", 1

CHECK = "checked mode: compare the call over the ranks"
"""The reason of the extra control message that checked mode sends; it carries the sequence number of its collective."""


class Event(NamedTuple):
    """The columns of `events`, in order."""
    rank: int                       # the rank in the run
    axis: str                       # mesh axis of the group: tp
    group: int                      # which group of that axis: the smallest rank in it
    sequence: int                   # running number of the collective in its group; of a message, of its direction
    plane: str                      # data (a sync point), sample, control
    op: str                         # all_reduce, all_gather, reduce_scatter, scatter, broadcast, …, send, receive
    root: int | None                # of a scatter, broadcast, gather, reduce: a rank in the group
    peer: int | None                # of a message: where it goes or comes from, a rank in the group
    chunk: int | None               # of a message: which piece of the array
    site: str                       # where in the model: layers.3.mlp.down
    reason: str                     # why, in words
    phase: str                      # load, prefill, decode, forward, backward, optimizer, evaluate, checkpoint
    step: int | None                # token index, or training step
    micro_batch: int | None         # of a training step, from 0; of an evaluation which of its batches
    draft: int | None               # draft tokens that a speculative pass carries
    before: str                     # state before: whole, shard(axis), partial (of a sum; all_reduce_max: of a
    after: str                      # maximum), on root
    shape: tuple[int, ...]          # of the whole array
    dtype: str
    payload: int                    # bytes of the whole array; the sum of the pieces where copies are sent
    enter: int                      # ns: this rank is ready
    leave: int                      # ns: this rank has its result
    start: int | None               # ns: a non-blocking one was started …
    wait: int | None                # … its result was asked for …
    complete: int | None            # … and was there
    wire: int | None                # bytes sent by this rank; known only for collectives built from our own sends
    broken: bool                    # skipped on purpose: each rank took its partial for the whole; payload is 0
    caller: str                     # the line of code that called it


class Mark(NamedTuple):
    """The columns of `marks`: a phase or step of one rank. Marks of a rank may lie inside one another."""
    rank: int
    phase: str
    step: int | None
    micro_batch: int | None
    enter: int
    leave: int


class Unfinished(NamedTuple):
    """The columns of `unfinished`, which mean what they do of an event."""
    rank: int
    axis: str
    group: int
    sequence: int                   # equal on the ranks that were in the same call, or had its result
    op: str
    root: int | None
    peer: int | None
    site: str
    phase: str
    step: int | None
    micro_batch: int | None
    shape: tuple[int, ...]
    dtype: str
    enter: int                      # ns: this rank was ready
    leave: int                      # ns: the call failed, or nobody looked any more


class Expected(NamedTuple):
    """What a closed form can say of an event before the run: all but the times (`minitp.trace.check`)."""
    op: str
    site: str
    plane: str
    phase: str
    step: int | None
    micro_batch: int | None
    dtype: str
    shape: tuple[int, ...]
    payload: int
    before: str
    after: str
    broken: bool = False


class Inner(NamedTuple):
    """The columns of `arrays`, beside `array`: an array inside a layer, of the newest token of the first sequence."""
    rank: int
    phase: str
    step: int | None
    site: str
    name: str
    micro_batch: int | None = None  # a file may lack this column: null everywhere


class Weight(NamedTuple):
    """The columns of `weights`, beside `array`: a rank's part of a matrix of the model."""
    rank: int
    name: str                       # of the parameter, as the placement names it: layers.3.mlp.gate.weight


WORDS = ("axis", "plane", "op", "site", "reason", "phase", "before", "after", "dtype", "caller", "name")
"""The columns whose entries are numbers of `strings`."""

MAY_BE_NULL = ("root", "peer", "chunk", "step", "micro_batch", "draft", "start", "wait", "complete", "wire")
"""The columns whose entries may be null."""

TIMES = ("enter", "leave", "start", "wait", "complete")
"""The columns that are times in ns."""

MESSAGES = ("send", "receive")
"""The ops between two ranks; every other op is a collective of its group."""
