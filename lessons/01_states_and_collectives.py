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
# # 01 · Four states and four collectives
#
# *When one array is spread over several computers, what can each of them do alone, and when must they talk?*
# About 30 minutes. You need NumPy, and nothing else.
#
# A language model is, for the most part, a list of big matrices of trained numbers, its **weights**. To use it, vectors
# are multiplied by one after the other. First: why would anybody cut such a matrix?

# %%
import numpy as np

import minitp
from minitp.lesson import begin, exercise, pictures, predict, run
from minitp.plan import catalogue
from minitp.trace.wording import size

begin("01")
model, card = catalogue.model("llama-3.1-405b"), catalogue.device("a100-80")
print(f"{model.name} has {model.parameters:,} weights. At 2 bytes each they take {size(2 * model.parameters)}.")
print(f"One {card.name}, a card that such models run on, has {size(card.memory)} of memory.")

# %% [markdown]
# It doesn't fit, so it has to be shared out, and then the parts must talk. This lesson is about the words for both; all
# other lessons are made of them.
#
# ## Ranks
#
# A program that runs on several processors at once is started once for each of them. Each copy is a **rank**, and has a
# number: 0, 1, 2, … All ranks run the same function; what differs is the number. A rank sees its own memory only: to
# know what another one has computed, they must send it to each other.
#
# `run(fn, ranks=4)` starts `fn` on four ranks. What `fn` gets, here called `tp`, is the rank's telephone: `tp.rank` is
# its number, `tp.size` how many there are. (`tp` stands for *tensor parallel*, the name for cutting the matrices
# themselves.) In a notebook the ranks are threads of one program, so nothing has to be installed. Threads could look
# into each other's memory; the functions here never do.
#
# `run` gives back what each rank returned (`.results`) and a record of all that they said to each other.


# %%
def who(tp):
    return f"I am rank {tp.rank} of {tp.size}"


print(*run(who, ranks=4).results, sep="\n")

# %% [markdown]
# ## Whole and shard
#
# Here is a small array that every rank has (as all ranks have what is made outside of a function). Its state is called
# **whole**: the same complete array is everywhere. A rank may always put most of it aside and keep its slice. That
# state is called **shard**: the ranks' pieces, laid side by side, are the array. `minitp.Cut(6, 4)` says who keeps
# which of 6 numbers on 4 ranks: shares as even as can be, larger ones first.
#
# **Predict.** How many of the 6 numbers does rank 0 of 4 keep? Put your number in place of `None`, then run both cells
# (click on a cell, then press Shift and Enter).

# %%
x = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
guess = predict("how many numbers rank 0 keeps", None)


# %%
def keep_my_slice(tp):
    mine = minitp.Cut(len(x), tp.size).of(tp.rank)        # a range: which entries are this rank's
    return x[mine.start:mine.stop]


slices = run(keep_my_slice, ranks=4)
for rank, x_p in enumerate(slices.results):
    print(f"rank {rank} keeps {x_p}")
print("messages between ranks:", len(slices.events))
guess.check(len(slices.results[0]), "6 on 4 don't come out even, so some ranks keep one more than others.")

# %% [markdown]
# Nobody said a word: from whole to shard is **free**. We write `x_p` for a rank's own part of `x`; p is the number of
# ranks.
#
# ## Shard to whole: all-gather
#
# The way back is not free. A rank that wants the other slices has to be sent them, and all ranks have to come to that
# call. Such a call is a **collective**; where all must meet, we say **sync point**, for the early ones wait for the
# last.
#
# **all-gather**: every rank gets all slices, side by side. In minitp's call, `axis` says along which axis they are
# laid, and `cut` how long each is. `site` says *where* in the model the call stands, `reason` *why*: both are recorded.
#
# **Predict.** 4 ranks gather an array of 6 numbers of 8 bytes each. What is the *payload*: the bytes of the whole array
# that comes out, counted once?

# %%
guess = predict("bytes of payload", None)


# %%
def lay_side_by_side(tp):
    cut = minitp.Cut(len(x), tp.size)
    mine = cut.of(tp.rank)
    x_p = 10 * x[mine.start:mine.stop]                    # each rank works on its own slice: free
    return tp.all_gather(x_p, axis=0, cut=cut, site="ten_x", reason="every rank wants all of 10 x")


gathered = run(lay_side_by_side, ranks=4)
for rank, whole in enumerate(gathered.results):
    print(f"rank {rank} has {whole}")
gathered.tell()
guess.check(gathered.payload, "however many ranks get the array, it is counted once.")

# %% [markdown]
# `tell()` printed the line above the verdict, the record of the call. Read it once, for you will see many: which
# collective, at which site, from which state to which, the shape of the whole array, its payload, the reason.
# `shard(-1)` is a shard along the last axis.
#
# ## Partial: a term of a sum
#
# Now a sum over all of `x`, where each rank has only its slice. It can add up its own numbers. What comes out looks
# like an answer, and is none: it is one **term** of the answer, and the other ranks have the other terms. This state is
# called **partial**. The answer is the sum over the ranks. (A matrix product is made of such sums, so where their
# numbers are spread over ranks, it ends like this, too.)
#
# **Predict.** What does rank 0 hold, before anything is sent?

# %%
guess = predict("rank 0's term of 1 + 2 + 3 + 4 + 5 + 6", None)


# %%
def sum_of_x(tp):
    mine = minitp.Cut(len(x), tp.size).of(tp.rank)
    term = x[mine.start:mine.stop].sum(keepdims=True)     # (1,), copied below: a collective may write over its input
    total = tp.all_reduce(minitp.Partial(term.copy(), tp), site="sum", reason="add the ranks' terms")
    return term, total


summed = run(sum_of_x, ranks=4)
for rank, (term, total) in enumerate(summed.results):
    print(f"rank {rank}: its term {term}, after the all-reduce {total}")
summed.tell()
guess.check(float(summed.results[0][0][0]), "its own slice, added up.")

# %% [markdown]
# **all-reduce**: partial to whole. The terms are added, and every rank gets the sum. Of all collectives you will meet
# this one most.
#
# A partial is dangerous: it has the right shape and wrong numbers. So minitp gives it a type of its own, `Partial`, and
# that type admits only what may be done *before* the sum as well as after it. Twice each term is twice the sum: fine.
# Plus one on each of 4 ranks is plus four: refused.
#
# **Predict.** Read the six things that the next cell tries on a partial sum `y`. How many of them are allowed?

# %%
guess = predict("how many of the six are allowed", None)
tries = {
    "2 * y": lambda y, tp: 2 * y,
    "y + y": lambda y, tp: y + y,
    "y @ matrix": lambda y, tp: y @ np.ones((1, 2)),
    "y + 1 on every rank": lambda y, tp: y + np.ones(1),
    "np.maximum(y, 0)": lambda y, tp: np.maximum(y, 0),
    "reduce it twice": lambda y, tp: [tp.all_reduce(y, site="twice", reason="add the terms") for _ in range(2)],
}


# %%
def refused(tp, attempt):
    """Why it is refused; nothing where it is allowed."""
    try:
        attempt(minitp.Partial(np.array([tp.rank + 1.0]), tp), tp)
    except (TypeError, ValueError) as error:
        return str(error)


allowed = 0
for name, attempt in tries.items():
    why = run(lambda tp, attempt=attempt: refused(tp, attempt), ranks=4).results[0]
    allowed += why is None
    print(f"{name}: {'allowed' if why is None else why}\n")
guess.check(allowed, "scaling, adding another partial and multiplying by a whole matrix: each may come before the sum.")

# %% [markdown]
# (a + b) M is a M + b M, so a product may come before the sum; max(a + b, 0) isn't max(a, 0) + max(b, 0), so that may
# not. (A *bias* and the *residual* are whole arrays that a model adds.) The last one has another reason. A collective
# *consumes* its partial: once it is added up, the terms are spent, and a second sum would count everything again.
#
# ## On root: where the weights start
#
# The fourth state. A model's file often lies on one machine: one rank holds the array, the others nothing. That rank is
# the **root**, and the state **on root**. **scatter** hands each rank its slice; **broadcast** hands everyone the
# whole. (Their mirror images, *gather* and *reduce*, end on the root.) The other ranks don't know what they will get,
# so all are told its shape and type.


# %%
def hand_out(tp):
    table = x if tp.rank == 0 else None                   # the others have nothing
    held = [minitp.Cut(len(x), tp.size).of(rank) for rank in range(tp.size)]
    pieces = [(slice(one.start, one.stop),) for one in held]                        # each rank's slice of each axis
    mine = tp.scatter(table, pieces=pieces, shape=x.shape, dtype=x.dtype, axis=0, site="table",
                      reason="hand every rank its slice")
    everything = tp.broadcast(table, shape=x.shape, dtype=x.dtype, site="table", reason="hand everybody all of it")
    return mine, everything


handed = run(hand_out, ranks=4)
handed.tell()
slice_of_it, all_of_it = handed.results[-1]
print("the last rank got the slice", slice_of_it, "and the whole", all_of_it)

# %% [markdown]
# (`shard(0)`, along the first axis, is here the same as `shard(-1)`: there is but one. Weights are counted from the
# first axis, what is computed from the last.)
#
# | state | what a rank has | how it becomes whole |
# |---|---|---|
# | whole | the complete array | |
# | shard | a slice of it | all-gather |
# | partial | an array of full shape, one term of a sum | all-reduce |
# | on root | all on one rank, nothing on the others | broadcast |

# %% [markdown]
# ## Two more collectives: reduce-scatter and all-to-all
#
# **reduce-scatter**: partial to shard. The terms are added, but each rank gets only its slice of the sum.
# **all-to-all**: from a shard along one axis to a shard along another. Think of a table of which each rank has some
# rows and wants some columns: everyone sends everyone a piece.
#
# **Predict.** If each rank has its slice of a sum (reduce-scatter), and then all slices are laid side by side
# (all-gather): which single collective would have given the same? Answer `"scatter"`, `"broadcast"` or `"all_reduce"`.

# %%
guess = predict("reduce-scatter, then all-gather is the same as …", None)


# %%
def two_more(tp):
    cut = minitp.Cut(len(x), tp.size)
    term = (tp.rank + 1.0) * x                                                      # rank 0: 1 x, rank 1: 2 x, …
    sum_p = tp.reduce_scatter(minitp.Partial(term.copy(), tp), axis=0, cut=cut, site="sum", reason="each its slice")
    both = tp.all_gather(sum_p, axis=0, cut=cut, site="sum", reason="lay the slices side by side")
    once = tp.all_reduce(minitp.Partial(term.copy(), tp), site="sum", reason="add the terms")
    mine = cut.of(tp.rank)
    rows = np.add.outer(10 * x[mine.start:mine.stop], x)                            # this rank's rows of a table
    columns = tp.all_to_all(rows, axis=0, cut=cut, to_axis=1, to_cut=cut, site="table", reason="rows to columns")
    return both, once, rows, columns


moved = run(two_more, ranks=4)
both, once, rows, columns = moved.results[0]
moved.tell()
print("the two in a row:", both, " all-reduce:", once)
print(f"rank 0's rows, {rows.shape}:\n{rows}\nrank 0's columns, {columns.shape}:\n{columns}")
assert np.array_equal(both, once)
guess.check("all_reduce", "many libraries build their all-reduce of just these two.")

# %% [markdown]
# ## What it is all for: a product
#
# In `y = x · M` each rank can hold all of the matrix `M`, some of its columns, or some of its rows. minitp has one
# table of what comes out, and it is short enough to print. Everything in it is free: no collective happens in a
# product. Read it as a preview: lesson 02 shows on numbers why the two lines in the middle are so.

# %%
from minitp.comm.states import CHANGES, PRODUCTS

for (before, held), after in PRODUCTS.items():
    print(f"x {before:<8} · M {'whole' if held == 'whole' else f'by {held}':<11} →  y {after}")
print("\nTo change a state:")
for (before, after), how in CHANGES.items():
    print(f"{before:<8} → {after:<6} {how.replace('_', '-')}{' (free)' if how == 'slice' else ''}")

# %% [markdown]
# That is the whole game: **multiplying changes an array's state for free; changing it back costs a sync.** In lesson 02
# you will use two lines of this table, one after the other, so that two matrices cost a single sync.
#
# ## What happens inside a collective
#
# How do terms get added when each rank can only send to one other at a time? There are many ways; libraries choose.
# Here is one, run for real on three ranks with three numbers each: in each round messages travel at the same time. A
# dark frame marks what travels, and where it arrives. Dashed is a rank's own term, two colors are the sum of two ranks'
# terms, gray is the finished sum; an empty box was given away.

# %%
from minitp.view.lab import run as lab

play = lab("all_reduce", "ring", [[1, 2, 3], [10, 20, 30], [100, 200, 300]])
print(len(play.rounds), "rounds; every rank ends with", play.result[0])
pictures.collective_round(play, 0)
pictures.collective_round(play, 1)

# %% [markdown]
# After the second round each rank holds one finished entry of the sum: so far it was a reduce-scatter. The other rounds
# pass these around: an all-gather. Lesson 08 builds them.
#
# ## What was recorded
#
# Whatever ranks say to each other is written down: the **trace**. minitp's pictures of runs are drawn from it. One
# event:

# %%
event = summed.events[0]
for name in ("rank", "op", "site", "reason", "before", "after", "shape", "dtype", "payload"):
    print(f"{name:<8} {getattr(event, name)}")

# %% [markdown]
# It has times, too. They are measured, so they differ from run to run. A rank that comes early waits for the last.

# %% tags=["measured"]
for event in summed.trace:
    if event.op == "all_reduce":
        print(f"rank {event.rank} was in the all-reduce for {(event.leave - event.enter) / 1000:.0f} µs")

# %% [markdown]
# ## The same on real processes
#
# This notebook is also a script, which lies beside it. As `python 01_states_and_collectives.py` it runs these cells on
# threads, as here. With MPI installed (a library for programs that run on many machines), either of these runs them on
# 4 processes, none of which can look into another's memory:
#
#     minitp run -n 4 01_states_and_collectives.py
#     mpirun -n 4 python 01_states_and_collectives.py
#
# The next cells do it, once on threads and once on processes, and compare what the two print.
#
# **Predict.** How many lines come out differently on processes, the measured times left out?

# %%
guess = predict("lines that differ", None)

# %%
from minitp.lesson import jobs

NAME = "01_states_and_collectives.py"
threads = jobs.start_twin(NAME, "python", NAME)
processes = jobs.start_twin(NAME, "minitp", "run", "-n", "4", NAME)
processes.tell(first=7)
if (here := threads.ended()) and (there := processes.ended()) and here.code == there.code == 0:
    pairs = zip(here.out.splitlines(), there.out.splitlines(), strict=False)
    differ = [mine for mine, other in pairs if mine != other and not mine.endswith("µs")]
    guess.check(len(differ), f"only the one that says what the ranks are. Here it is: {differ[0]}")

# %% [markdown]
# Each of the 4 processes ran the whole script, from its first line to its last. Wherever it says `run`, a process was
# one rank, sent what the others needed, and all got all results; rank 0 alone printed them. So there is nothing in this
# notebook that needs threads, or one memory.
#
# ## Exercises
#
# **1.1** Seven ranks all-gather an array whose whole shape is (3, 576), in float32 (4 bytes a number). How many bytes
# is the payload?

# %%
shape, item, ranks = (3, 576), np.dtype(np.float32).itemsize, 7
print(f"whole shape {shape}, {item} bytes a number, {ranks} ranks")
exercise("1.1", None)


# %% [markdown]
# **1.2** Each rank has its slice `x_p` of an array of `n` numbers. Return their mean, on every rank, as an array of
# shape (1,). Slices may differ in length; one of them may be empty. One sync point is enough. (To call an array a term
# of a sum: `minitp.Partial(term, tp)`.)

# %%
def mean(tp, x_p, n):
    ...


exercise("1.2", mean)


# %% [markdown]
# **1.3** Each rank has a term `a` and a term `b`, both of type `Partial`. Return the whole a + 2 b, on every rank. How
# many syncs do you need?

# %%
def weighted(tp, a, b):
    ...


exercise("1.3", weighted)

# %% [markdown]
# **Next:** [02 · Two cuts, and the nonlinearity that decides](02_two_cuts.ipynb). Figures of these lessons are free to
# reuse.
