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
# # Puzzles · Mend a cut, within a budget
#
# *Can you write it so that the ranks talk no more than they must?* Twelve functions, about 120 minutes in all; each
# says which lessons it needs.
#
# Your function runs on every rank. Its first argument `tp` is the group of ranks: `tp.rank` is this rank's number,
# `tp.size` how many there are, and its collectives are those of lesson 01: `tp.all_reduce(minitp.Partial(a, tp), …)`,
# `tp.all_gather(a, axis=…, cut=…, …)`, `tp.reduce_scatter(…)` and so on, each with `site="…"` and `reason="…"`, in
# words of your own. The other arguments are what the puzzle says that a rank is given.
#
# `puzzle(name, function)` runs it on a few ranks with sizes that don't divide evenly, and says what is wrong: the
# state, the value, or what was spent beyond the budget. A **budget** has three parts: sync points (how often the ranks
# meet), bytes (of the whole arrays that they move), and memory (the most that one rank holds at once beyond what it was
# given, a copy inside a collective included). Once something ran, you see its timeline: a lane for each rank.
# With `puzzle(name, function, seed=…)` numbers, sizes and ranks are others: a solution must hold for all of them.

# %%
import numpy as np  # noqa: F401 (for your functions)

import minitp  # noqa: F401
from minitp.lesson import begin, puzzle
from minitp.lesson.puzzles.judge import FULL, PARTS, RIGHT

begin("puzzles")
print(f"of {FULL} points: {RIGHT} for the right result, then, each within budget, "
      + ", ".join(f"{points} for {part}" for part, points in PARTS.items()))

# %% [markdown]
# ## 1 · A bias, once
#
# *Needs lesson 02.*
#
# `y = x · Wᵀ + b` with `W` cut by rows of its transpose: rank r holds the columns of `W` that meet its piece of `x`.
# Each rank's product is one term of a sum, and there is only one `b`, which every rank has.
#
# **Given** on each rank: its shard `x_p` (T, n_p), its columns `W_p` (M, n_p), and the whole `b` (M,).
# **Return** the whole `y` (T, M) on every rank. **Budget:** one sync point, of the size of `y`.


# %%
def bias_once(tp, x_p, W_p, b):
    ...


puzzle("bias-once", bias_once)

# %% [markdown]
# ## 2 · The wrong QKV cut
#
# *Needs lesson 04.*
#
# Many checkpoints store the three projections of attention as one matrix: the `q` rows of all heads, below them the
# `k` rows of all heads, then the `v` rows. Somebody cut it like any other matrix, rank r taking the r-th piece of its
# rows, and read the piece as `q`, `k`, `v`. On one rank the text was fine; on two it was nonsense, and no shape
# complained.
#
# **Given** on each rank: the whole `x` (T, D), the whole `W_qkv`, which is `(3·H·E, D)`, and the number of heads `H`.
# **Return** this rank's `(q_p, k_p, v_p)`, each `(T, H_p·E)`: queries, keys and values of the heads that the rank
# holds when `H` heads are dealt out by `minitp.Cut(H, tp.size)`. **Budget:** no sync point, and no memory for the
# other ranks' heads.


# %%
def qkv_cut(tp, x, W_qkv, H):
    ...


puzzle("qkv-cut", qkv_cut)

# %% [markdown]
# ## 3 · Gate and up in one matrix
#
# *Needs lesson 03.*
#
# `y = (silu(x · W_gateᵀ) * (x · W_upᵀ)) · W_downᵀ`, with `silu(a) = a / (1 + exp(-a))`. The file has gate and up as
# one matrix `W_gu` (2·F, D): first all rows of gate, then all rows of up. Each column of `h` needs its gate and its up
# on the same rank.
#
# **Given** on each rank: the whole `x` (T, D), the whole `W_gu` (2·F, D), and `W_down_p` (D, F_p), its columns by
# `minitp.Cut(F, tp.size)`. **Return** the whole `y` (T, D). **Budget:** one sync point, of the size of `y`; memory for
# this rank's columns of `h` alone.


# %%
def gate_up_cut(tp, x, W_gu, W_down_p):
    ...


puzzle("gate-up-cut", gate_up_cut)

# %% [markdown]
# ## 4 · f and g swapped
#
# *Needs lesson 09.*
#
# Around a column-then-row block stand two operators that Megatron-LM calls f and g. One is a sum over the ranks on the
# way forward and does nothing on the way back; the other does nothing forward and is a sum on the way back. Somebody
# put each where the other belongs: the loss went down, slowly, to somewhere else.
#
# The block is `h = max(x · W_upᵀ, 0)`, `y = h · W_downᵀ`. Backward, with `dy` the gradient at `y`:
# `dh = dy · W_down`, zero where `h` is zero; `dx = dh · W_up`.
#
# **Given** on each rank: the whole `x` (T, D) and the whole `dy` (T, D), its rows `W_up_p` (F_p, D), and its columns
# `W_down_p` (D, F_p). **Return** `(y, dx)`, both whole. **Budget:** one sync point each way.


# %%
def f_and_g(tp, x, dy, W_up_p, W_down_p):
    ...


puzzle("f-and-g", f_and_g)

# %% [markdown]
# ## 5 · The winner, without gathering
#
# *Needs lesson 05.*
#
# Greedy decoding takes the word with the largest logit. The head is cut over the vocabulary, so each rank has the
# logits of its own words, and a copy of all of them on every rank would cost far more than the answer is worth: of
# each rank's words only one can win.
#
# **Given** on each rank: `logits` (B, V_p), a shard along the vocabulary, and `start`, the id of its first column. The
# logits are rounded, so several words may share the largest one: then the smallest id wins, as in `np.argmax`.
# **Return** the winners' ids (B,), whole: the same on every rank. **Budget:** two sync points, and no more bytes than
# one number and one id of every rank for each row take.


# %%
def arg_max(tp, logits, start):
    ...


puzzle("arg-max", arg_max)

# %% [markdown]
# ## 6 · The loss, without gathering
#
# *Needs lesson 05.*
#
# The loss of a token with logits z and target t is `log Σⱼ exp zⱼ − z_t`. Its logits are cut over the vocabulary. The
# sum runs over all words, and only one rank has the target's logit; but both are one number a token, where the logits
# are V. These logits are large: `exp` of them overflows, so the largest must be taken off first, and it must be the
# same one on all ranks.
#
# **Given** on each rank: `logits` (T, V_p), a shard along the vocabulary; `start`, the id of its first column; the
# whole `targets` (T,), ids of the whole vocabulary. **Return** the losses (T,), whole: one for each token, the same on
# every rank. **Budget:** two sync points, and no more bytes than three numbers of every rank for each token take.
# (What doesn't wait for each other can travel together.)


# %%
def sharded_loss(tp, logits, start, targets):
    ...


puzzle("sharded-loss", sharded_loss)

# %% [markdown]
# ## 7 · One table, two uses
#
# *Needs lessons 05 and 09.*
#
# The smallest language model that ties its table: `x = E[ids]`, `logits = x · Eᵀ`. `E` is cut along the vocabulary, so
# it serves twice: a rank looks up the words it has (and adds 0 for the others), and computes the logits of the same
# words. Going back, E is met twice, too: as head it gets `dlogitsᵀ · x`, as embedding it gets, in the row of each
# token's word, the gradient of that token's `x`. Both are added into the one table, each once.
#
# **Given** on each rank: its rows `E_p` (V_p, D) of the table; `start`, the id of the first; the whole `ids` (T,), in
# which words repeat; `dlogits` (T, V_p), the loss's gradient at its own words' logits: a shard along the vocabulary.
# **Return** the gradient of `E_p` (V_p, D): a shard. **Budget:** two sync points, each of the size of `x` (T, D); the
# table itself, of V rows, doesn't move.


# %%
def tied_table(tp, E_p, start, ids, dlogits):
    ...


puzzle("tied-table", tied_table)

# %% [markdown]
# ## 8 · A KV head with two holders
#
# *Needs lessons 07 and 09.*
#
# In grouped-query attention several query heads share one KV head. Cut by query heads, a KV head whose group is spread
# over two ranks is held by both, as a copy. After backward each copy has the gradient of the query heads of its own
# rank: the two are terms of one sum. If they aren't added, the copies drift apart after the first step, and nothing
# complains.
#
# **Given** on each rank: `dk` (K_p, E, D), its KV heads' gradient from its own query heads; `held`, a list with one
# range for each rank: the global numbers of the KV heads that the rank holds. `held[tp.rank]` are the heads of `dk`,
# in order. **Return** the gradient of this rank's KV heads (K_p, E, D): the same on every rank that holds the head.
# **Budget:** one sync point, of the size of the heads that more than one rank holds; a head with one holder has
# nothing to wait for.


# %%
def kv_copies(tp, dk, held):
    ...


puzzle("kv-copies", kv_copies)

# %% [markdown]
# ## 9 · A ring, in chunks
#
# *Needs lesson 08.*
#
# Write the all-reduce yourself, with messages alone. Passing whole arrays around works, and a rank sends the array
# p − 1 times. Cut into p chunks, it sends less than twice the array, for any p: once around the ring to sum, each rank
# adding its part of the chunk that passes, so that every rank ends with one chunk complete; once more to hand the
# complete chunks on.
#
# **Given** on each rank: `y` (n,), its term of the sum. **Return** the whole sum (n,) on every rank. **Budget:** no
# collectives. 2(p − 1) messages from each rank, of one chunk each. `tp.exchange(array, to=…, shape=…, dtype=…,
# source=…, site=…, reason=…)` sends to one rank and receives from another at once (all ranks that first send and then
# receive may wait forever); `minitp.Cut(n, p).of(i)` is chunk i, and n doesn't divide evenly.


# %%
def ring_in_chunks(tp, y):
    ...


puzzle("ring-in-chunks", ring_in_chunks)

# %% [markdown]
# ## 10 · Reduce-scatter, norm, all-gather
#
# *Needs lesson 01.*
#
# An all-reduce is a reduce-scatter and an all-gather. Between the two each rank has some rows of the sum, complete:
# what works row by row, as the residual's addition and the norm do, can be done there, by one rank for each row
# instead of by all ranks for all rows. That is sequence parallelism, and it costs no byte more than the all-reduce.
#
# Here is the seam between attention and MLP: `x_new = x + Σ y_p`, `h = x_new / √(mean(x_new²) + eps) · weight`, the
# mean over the D numbers of a row.
#
# **Given** on each rank: `y_p` (T, D), its term of attention's output; its rows `x_rows` (T_p, D) of the residual
# stream, a shard along the tokens; the whole `weight` (D,); `eps`. Rank r's rows are `minitp.Cut(T, tp.size).of(r)`.
# **Return** two things, `x_new, h`: the residual stream stays a shard (T_p, D), `h` is whole (T, D). **Budget:** two
# sync points; what a rank sends for them on a ring is no more than for one all-reduce of `y`.


# %%
def norm_between(tp, y_p, x_rows, weight, eps):
    ...


puzzle("norm-between", norm_between)

# %% [markdown]
# ## 11 · The norm of all gradients
#
# *Needs lesson 09.*
#
# Clipping needs the length of the whole model's gradient: the root of the sum of the squares of all its numbers, each
# counted once. Each rank has its own pieces of the matrices that are cut, the same gradient of the norms' weights as
# all others, and perhaps a KV head that another rank holds, too (already summed over its copies). Count what is whole
# on every rank, and the norm comes out too large, the more so the more ranks: the steps are clipped too hard, and
# nothing complains.
#
# **Given** on each rank: `gradients`, its arrays by name; `holders`, by the same names the ranks that hold this very
# array: `[2]` is a shard of rank 2's own, `[0, 1]` a head that two have, all ranks a whole array.
# **Return** the norm, one number, whole: the same on every rank. **Budget:** one sync point, of one number.


# %%
def global_norm(tp, gradients, holders):
    ...


puzzle("global-norm", global_norm)

# %% [markdown]
# ## 12 · More ranks than heads
#
# *Needs lessons 04 and 07.*
#
# Multi-query attention has one KV head for all query heads. Cut by query heads over more ranks than there are heads,
# some ranks own none: their matrices have no rows, and what they compute has size 0. They must come to every sync
# point all the same. The ranks that do own a query head hold the KV head, too: each a copy.
#
# Each query head h: `softmax(q_h kᵀ / √E) v`, where token t sees tokens 0…t; the heads side by side, times `Woᵀ`.
# Matrices are stored (out, in): `q = x · Wqᵀ`.
#
# **Given** on each rank: the whole `x` (T, D); its rows `Wq` (H_p · E, D); `Wk` and `Wv` (E, D), on a rank without
# heads (0, D); its columns `Wo` (D, H_p · E); `head_size`, which is E. **Return** the whole `y` (T, D) on every rank.
# **Budget:** one sync point, of the size of `y`.


# %%
def few_heads(tp, x, Wq, Wk, Wv, Wo, head_size):
    ...


puzzle("few-heads", few_heads)

# %% [markdown]
# ## All at once
#
# `minitp grade puzzles.ipynb` judges every function of this notebook on seeds that you haven't seen, in a table or,
# with `--json`, as data. Solutions are in `solutions/puzzles.py`: look when you have points for yours.
