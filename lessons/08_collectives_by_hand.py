# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 08 · Collectives by hand
#
# *What happens inside an all-reduce, and why can 4 computers be faster than 8?* About 40 minutes. You need lesson 01
# (what an all-reduce gives) and of lesson 06 the price of a message, `α + n·β`: latency, and bytes over bandwidth.
#
# An all-reduce is nothing but messages, each from one rank to another, in an order that somebody chose. You will write
# four such orders with `send`, `receive` and `exchange`, count what each costs, and then see what a wrong choice did to
# a cluster that people really built.
#
# Letters: `p` ranks, `n` bytes of the whole array (the payload).

# %%
import numpy as np

import minitp
from minitp.lesson import begin, exercise, pictures, predict, run
from minitp.lesson.hops import hops

begin("08")
N = 10                                                    # numbers in the array: not a multiple of 4, on purpose
WHY = {"site": "by hand", "reason": "one message of an all-reduce"}


def term_of(rank):
    return 10.0 * rank + np.arange(1, N + 1)              # what a rank brings


def tried(all_reduce, ranks=4, **how):
    """Run it, see that every rank has the sum, and count its messages."""
    found = run(lambda tp: all_reduce(tp, term_of(tp.rank)), ranks, **how)
    truth = sum(term_of(rank) for rank in range(found.ranks))
    assert all(np.array_equal(total, truth) for total in found.results)
    return hops(found.trace)


# %% [markdown]
# ## Star
#
# The simplest: everybody sends its term to rank 0, the **root**, which adds them up and sends the sum to everybody.
# `receive` must know what comes, so it is told shape, type and source. A `send` may wait until it is received.
#
# What counts is **rounds**: messages that must follow one another, because a rank sends one and receives one at a time.
# Messages between different pairs share a round. `hops` counts them from the trace, along the longest path.
#
# **Predict.** How many rounds has a star of 4 ranks?

# %%
guess = predict("rounds of a star of 4", None)


# %%
def star(tp, mine):
    if tp.rank:
        tp.send(mine, to=0, **WHY)
        return tp.receive(shape=mine.shape, dtype=mine.dtype, source=0, **WHY)
    total = mine.copy()
    for other in range(1, tp.size):
        total += tp.receive(shape=mine.shape, dtype=mine.dtype, source=other, **WHY)
    for other in range(1, tp.size):
        tp.send(total, to=other, **WHY)
    return total


found = tried(star)
print(f"{found.rounds} rounds, {found.messages} messages, bytes sent by each rank: {found.sent}")
guess.check(found.rounds, "p − 1 messages come to the root one by one, then p − 1 go out.")


# %% [markdown]
# ## Tree
#
# The root of a star does all the work, the others wait. In a **tree** they help: rank 1 gives its term to 0 while 3
# gives its to 2; then 2 gives the sum of both to 0. The way back is the same, mirrored. Each round halves the number of
# sums that are still apart: ⌈lg p⌉ rounds each way (lg is the logarithm to base 2, ⌈ ⌉ rounds up).
#
# In the code, `distance` is 1, 2, 4, …: a rank whose number has that bit (`tp.rank & distance`) gives its sum to the
# rank below, at that distance, and is done with taking.
#
# **Predict.** How many messages has a tree of 4 ranks, there and back?

# %%
guess = predict("messages of a tree of 4", None)


# %%
def tree(tp, mine):
    total, distance = mine.copy(), 1
    while distance < tp.size and not tp.rank & distance:              # take terms in, from nearer ranks first
        if tp.rank + distance < tp.size:
            total += tp.receive(shape=mine.shape, dtype=mine.dtype, source=tp.rank + distance, **WHY)
        distance *= 2
    if tp.rank:                                                       # give the sum up, and wait for the whole one
        tp.send(total, to=tp.rank - distance, **WHY)
        total = tp.receive(shape=mine.shape, dtype=mine.dtype, source=tp.rank - distance, **WHY)
    while distance > 1:                                               # hand it down, to farther ranks first
        distance //= 2
        if tp.rank + distance < tp.size:
            tp.send(total, to=tp.rank + distance, **WHY)
    return total


found = tried(tree)
print(f"{found.rounds} rounds, {found.messages} messages, bytes sent by each rank: {found.sent}")
guess.check(found.messages, "as many as the star's: all ranks but the root give one sum up, and get the whole one.")


# %% [markdown]
# ## Ring
#
# Star and tree move the whole array each time, and many ranks are idle. A **ring** cuts the array into `p` chunks and
# keeps everybody busy. Each rank talks to its neighbors only: it sends to the right what it has just got from the left.
# In the first p − 1 rounds chunks are added on their way (a *reduce-scatter*: in the end each rank has one chunk of the
# sum, complete). In the next p − 1 rounds the complete chunks travel once around (an *all-gather*).
#
# Everybody sends and receives in the same round. If all called `send` first, all could wait forever. `exchange` does
# both at once. (`chunk` and `received_chunk` are for the record only.)
#
# **Predict.** How many times the payload does each rank of 4 send in a ring? (1 would be: the whole array once.)

# %%
guess = predict("what a rank of a ring of 4 sends, as a multiple of the payload", None)


# %%
def ring(tp, mine):
    p, total, cut = tp.size, mine.copy(), minitp.Cut(mine.size, tp.size)

    def pass_on(gives, takes):                                        # chunk `gives` to the right, `takes` comes
        give, take = cut.of(gives % p), cut.of(takes % p)
        came = tp.exchange(total[give.start:give.stop], to=(tp.rank + 1) % p, shape=(len(take),), dtype=mine.dtype,
                           source=(tp.rank - 1) % p, chunk=gives % p, received_chunk=takes % p, **WHY)
        return slice(take.start, take.stop), came

    for step in range(p - 1):                                         # reduce-scatter: what comes is added
        place, came = pass_on(tp.rank - step - 1, tp.rank - step - 2)
        total[place] += came
    for step in range(p - 1):                                         # all-gather: what comes is complete
        place, came = pass_on(tp.rank - step, tp.rank - step - 1)
        total[place] = came
    return total


found = tried(ring)
print(f"{found.rounds} rounds, {found.messages} messages, bytes sent by each rank: {found.sent}")
payload = term_of(0).nbytes
guess.check(round(float(np.mean(found.sent)) / payload, 3),
            "2(p − 1) chunks of 1/p each: never more than twice the payload, at any p.")

# %% [markdown]
# As many rounds as the star, but small messages, and no rank is a bottleneck. Here is a round of this ring, the last of
# its reduce-scatter, on 4 ranks with 4 numbers each: above what each rank held before, below after. A cell is one
# number, striped in the hues of the ranks whose terms are in it, and gray when all are. A thick edge marks what is sent
# in this round, and what comes of it; dotted is what was given away.

# %%
from minitp.view import lab

play = lab.run("all_reduce", "ring", lab.example("all_reduce", 4, 4))
pictures.collective_round(play, 2)


# %% [markdown]
# ## Recursive doubling
#
# In a ring a rank hears from the others one after the other. But two ranks that exchange what they have both end up
# with the sum of both.
#
# **Predict.** What is the smallest number of rounds in which all of 4 ranks can have the whole sum, if in each round a
# rank exchanges something with one other?

# %%
guess = predict("fewest rounds on 4 ranks", None)

# %% [markdown]
# In the first round ranks 0 and 1 exchange, and 2 and 3; in the next 0 and 2 exchange the sums, and 1 and 3. In general
# the partner is at distance 1, 2, 4, …: after lg p rounds everybody has everything. That works where p is a power of
# two; else the last ranks first give their terms to others, and get the sum at the end: two rounds more.

# %%
def doubling(tp, mine):
    total, q = mine.copy(), 1 << (tp.size.bit_length() - 1)           # q: the largest power of two within p
    like = {"shape": mine.shape, "dtype": mine.dtype}
    if tp.rank >= q:                                                  # one of those too many
        tp.send(total, to=tp.rank - q, **WHY)
        return tp.receive(source=tp.rank - q, **like, **WHY)
    if tp.rank + q < tp.size:
        total += tp.receive(source=tp.rank + q, **like, **WHY)
    distance = 1
    while distance < q:
        partner = tp.rank ^ distance                                  # the bit of this distance, flipped
        total += tp.exchange(total, to=partner, source=partner, **like, **WHY)
        distance *= 2
    if tp.rank + q < tp.size:
        tp.send(total, to=tp.rank + q, **WHY)
    return total


found = tried(doubling)
print(f"{found.rounds} rounds, {found.messages} messages, bytes sent by each rank: {found.sent}")
guess.check(found.rounds, "lg p where p is a power of two, else two more for those left over.")

# %% [markdown]
# ## Side by side, and against minitp's own
#
# minitp has the same four, as `BuiltCollectives`. Those above must match them, and the planner's formula `cost`, for
# any number of ranks: 4, and 5, which is no power of two.

# %%
from minitp.comm.algorithms import BuiltCollectives
from minitp.plan.network.collectives import cost

MINE = {"star": star, "tree": tree, "ring": ring, "doubling": doubling}


def built(algorithm):
    return lambda tp, mine: BuiltCollectives(tp, algorithm).all_reduce(minitp.Partial(mine.copy(), tp), **WHY)


print("ranks  algorithm  rounds  messages  most sent by a rank  minitp's own")
for p in (4, 5):
    for name, by_hand in MINE.items():
        mine, own = tried(by_hand, p, threads=True), tried(built(name), p, threads=True)
        same = (mine.rounds, mine.messages, sum(mine.sent)) == (own.rounds, own.messages, sum(own.sent))
        assert mine.rounds == cost("all_reduce", name, p).hops
        verdict = "the same" if same else "differs"
        print(f"{p:5}  {name:9} {mine.rounds:7} {mine.messages:9} {mine.busiest:18} B  {verdict}")

# %% [markdown]
# Nobody wins in both columns. Doubling has the fewest rounds, the ring has the busiest rank send the least. Which is
# cheaper depends on the size: with few bytes rounds count, with many bytes count.
#
# ## Price
#
# `rounds · α + bytes on the longest path · β`: each round waits once for a message's latency, and its bytes follow. It
# is a **model** (Hockney's). A sync point of one token is some 16 kB, one of a long prompt is megabytes (lesson 06).
#
# **Predict.** 8 ranks on 10 GbE and 16 kB: `star`, `tree`, `ring` or `doubling`?

# %%
guess = predict("cheapest for 16 kB over 8 ranks", None)

# %%
from minitp.plan.links import link
from minitp.plan.network.collectives import seconds

ethernet = link("ethernet-10g")
for size, unit, factor in ((16_384, "µs", 1e6), (32 * 2**20, "ms", 1e3)):
    print(f"all-reduce of {size:,} B on {ethernet.name}, a model, {unit}")
    print("  ranks:   " + "".join(f"{p:10}" for p in (2, 4, 8, 16, 64)))
    for name in MINE:
        times = [factor * seconds("all_reduce", name, p, size, ethernet) for p in (2, 4, 8, 16, 64)]
        print(f"  {name:9}" + "".join(f"{one:10,.0f}" for one in times))
small = {name: seconds("all_reduce", name, 8, 16_384, ethernet) for name in MINE}
guess.check(min(small, key=small.get), "the fewest rounds: each costs α, and the bytes hardly count.")
pictures.costs("all_reduce", 8, ethernet, "ring", 16_384)

# %% [markdown]
# Down a column: for the small payload doubling, for the large one the ring. Along a row: the star grows in proportion
# to `p`, and so do the ring's many small messages; with the large payload the ring hardly grows at all. In the picture,
# on 8 ranks, the dotted line is at the small payload. (`halving` is doubling's cousin: it exchanges halves instead of
# wholes, and so moves as few bytes as a ring, in 2 lg p rounds.)
#
# ## Why 4 computers beat 8
#
# [distributed-llama](https://github.com/b4rtaz/distributed-llama) runs Llama on small computers over Ethernet. Its root
# sends to, and receives from, each of the others: a star. Its README has times for Raspberry Pi 4B, **measured by its
# author**, of one token of Llama-2-7B:

# %%
from minitp.plan.published import dllama

published = dllama.measured("RasPi4B", "llama-2-7b")
print("measured by others, in ms:\nnodes   a token   of it computing   of it transfer")
for nodes, row in published.items():
    print(f"{nodes:5} {1e3 * row.token:9.1f} {1e3 * row.inference:17.1f} {1e3 * row.transfer:16.1f}")
print(f"\nfrom 4 to 8 nodes: computing × {published[8].inference / published[4].inference:.2f}, "
      f"transfer × {published[8].transfer / published[4].transfer:.1f}")

# %% [markdown]
# From 4 nodes to 8 computing falls, and transfer grows by more than that. Would another algorithm change it? The
# planner has a model of these nodes: each computes its share of the work, and the 2L + 2 sums of lesson 06 go by star,
# ring or doubling.
#
# **Predict.** With a star, which number of nodes from 1 to 16 is fastest?

# %%
guess = predict("fastest number of nodes with a star", None)

# %%
from minitp.plan import catalogue
from minitp.plan.network.curve import sync_point, sync_points
from minitp.plan.questions import QUESTIONS
from minitp.plan.questions.base import named

numbers = named(QUESTIONS, "raspberry-pis").ask().numbers
print("a model, ms a token:\nnodes      star      ring  doubling")
for nodes in (1, 2, 4, 8):
    print(f"{nodes:5} " + "".join(f"{1e3 * numbers[f'{by} {nodes}']:10.0f}" for by in ("star", "ring", "doubling")))
assert numbers["star 4"] < numbers["star 8"] and numbers["doubling 8"] < numbers["doubling 4"]

llama, wire = catalogue.model("llama-2-7b"), link("ethernet-1g-raspberry-pi")
size, syncs = sync_point(llama, tokens=1, bytes_each=4)[1], sync_points(llama)


def token(nodes, algorithm):
    """The work of one node shared out, and all sums of a token."""
    return numbers["star 1"] / nodes + syncs * seconds("all_reduce", algorithm, nodes, size, wire)


best = {by: min(range(1, 17), key=lambda nodes: token(nodes, by)) for by in ("star", "ring", "doubling")}
print(f"\n{syncs} sums of {size:,.0f} B, α = {1e6 * wire.latency_s:.0f} µs; the fastest number of nodes: {best}")
guess.check(best["star"], "work / p falls, 2(p − 1) messages at the root grow: there is a best number.")

# %% [markdown]
# With a star the model turns around between 4 and 8 nodes, as the measured table does. The ring turns around, too: its
# messages are smaller, but as many follow one another, and here rounds count for more than bytes. Summed by doubling, 8
# nodes are faster than 4, and the most that were tried are the fastest: its rounds grow like lg p. In the model, then,
# eight computers are not too many; their star is too busy.
#
# Be careful with what this proves. α of that link was *fitted* to the transfer measured with 8 nodes, so the model's 8
# is no test of it. And the program measured cut its matrices in another way, with more transfers, than the model does.
# The shape is what follows from the algorithm: a star costs 2(p − 1) messages one after the other, whatever the link.
#
# ## The same on real processes
#
# `minitp run -n 4 08_collectives_by_hand.py` (or `mpirun -n 4 python 08_collectives_by_hand.py`) runs the same cells,
# with messages between processes. `minitp plan ask raspberry-pis` gives the whole answer to the last question.
#
# ## Exercises
#
# **8.1** How many messages does the root of a star of 8 take or send in one all-reduce, in and out together?

# %%
exercise("8.1", None)

# %% [markdown]
# **8.2** How many bytes does each rank of a ring of 8 send, in all, in an all-reduce of 16,384 bytes?

# %%
p, n = 8, 16_384
exercise("8.2", None)


# %% [markdown]
# **8.3** Write an all-gather by a ring, with messages only. `piece` is this rank's part of a vector of `cut.size`
# numbers; return the whole vector. `cut.of(r)` is what rank r holds, and parts differ in length. (`WHY` from the top
# will do as site and reason, here and below.)

# %%
def ring_all_gather(tp, piece, cut):
    ...


exercise("8.3", ring_all_gather)


# %% [markdown]
# **8.4** Write a broadcast by a tree, with messages only. Rank 0 has `array`, the others None; all know `shape`
# (float64). Return the array on every rank, in ⌈lg p⌉ rounds on any number of ranks.

# %%
def tree_broadcast(tp, array, shape):
    ...


exercise("8.4", tree_broadcast)

# %% [markdown]
# **Next:** [09 · Backward](09_backward.ipynb). Figures of these lessons are free to reuse.
