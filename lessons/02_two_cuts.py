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
# # 02 · Two cuts, and the nonlinearity that decides
#
# *Can two matrices be shared out over ranks so that they talk only once?* About 25 minutes. You need NumPy and
# lesson 01 (the four states of an array).
#
# A transformer's MLP is two products with a bend between them: `y = act(x · W_upᵀ) · W_downᵀ`. Each matrix can be cut
# in two directions. You will run all four combinations on real ranks and count what each costs.
#
# Letters: `D` hidden size, `F` size inside the MLP, `p` ranks. Weights are stored (out, in), as checkpoints store them,
# so `W_up` is (F, D) and "a column" is a column of its transpose: a row of what is stored.

# %%
import numpy as np

import minitp
from minitp.context import Context
from minitp.layers import ColumnParallelLinear, RowParallelLinear
from minitp.lesson import begin, exercise, pictures, predict, run

begin("02")
D, F = 4, 7
x = np.arange(1.0, D + 1)                                 # (D,) whole: every rank has it
W_up = np.arange(F * D).reshape(F, D) * 4.0 % 9 - 4       # (F, D)
W_down = np.arange(D * F).reshape(D, F) * 7.0 % 9 - 4     # (D, F)
y_true = np.maximum(x @ W_up.T, 0) @ W_down.T             # one rank's answer: the truth for all that follows
print("x =", x, "  y =", y_true)

# %% [markdown]
# ## Cut by columns: each rank gets some of the outputs
#
# A rank that holds some rows of `W_up` computes the same rows of `h`, completely: nothing is missing, nothing is added.
# The state of `h` is **shard**: to see all of it, the pieces are laid side by side (an all-gather).
#
# **Predict.** How many numbers does rank 0 of 4 hold of `h`, when 7 rows are dealt out to 4 ranks, larger shares first?
# Put your number in place of `None`.

# %%
guess = predict("numbers of h on rank 0", None)


# %%
def column_cut(tp):
    mine = minitp.Cut(F, tp.size).of(tp.rank)             # this rank's rows of W_up
    h_p = x @ W_up[mine.start:mine.stop].T                # (F_p,) shard: free
    h = tp.all_gather(h_p, axis=0, cut=minitp.Cut(F, tp.size), site="mlp.up", reason="lay the pieces side by side")
    return h_p, h


columns = run(column_cut, ranks=4)
for rank, (h_p, _) in enumerate(columns.results):
    print(f"rank {rank} computed {h_p}")
columns.tell()
guess.check(len(columns.results[0][0]), "shares are as even as whole rows allow, larger ones first.")

# %% [markdown]
# ## Cut by rows: each rank gets some of the inputs
#
# A rank that holds some columns of `W_down` can only multiply the same columns of `h`. What it gets has the full shape
# of `y`, and every number of it is wrong: it is one term of a sum. The state is **partial**. minitp gives it a type of
# its own, `Partial`, that refuses whatever doesn't commute with the sum.

# %%
h_true = np.maximum(x @ W_up.T, 0)


def row_cut(tp):
    mine = minitp.Cut(F, tp.size).of(tp.rank)
    y_p = h_true[mine.start:mine.stop] @ W_down[:, mine.start:mine.stop].T        # (D,) one term of the sum
    y = tp.all_reduce(minitp.Partial(y_p.copy(), tp), site="mlp.down", reason="add the ranks' partial sums of y")
    return y_p, y


rows = run(row_cut, ranks=4)
for rank, (y_p, _) in enumerate(rows.results):
    print(f"rank {rank}'s term: {y_p}")
print("their sum:    ", rows.results[0][1])
assert np.allclose(rows.results[0][1], y_true)

# %% [markdown]
# ## The nonlinearity decides
#
# Now both products. If the first matrix were cut by rows, its result would be partial, and the activation would have to
# act on a term of a sum. **act(a + b) is not act(a) + act(b)**: relu(3 − 5) is 0, but relu(3) + relu(−5) is 3.
#
# **Predict.** Will minitp let a partial sum into `np.maximum`?

# %%
guess = predict("a partial sum may enter the activation (True or False)", None)


# %%
def too_early(tp):
    mine = minitp.Cut(D, tp.size).of(tp.rank)
    h_p = minitp.Partial(x[mine.start:mine.stop] @ W_up[:, mine.start:mine.stop].T, tp)
    return np.maximum(h_p, 0)


try:
    run(too_early, ranks=2, threads=True)
    allowed = True
except TypeError as error:
    print(error)
    allowed = False
guess.check(allowed, f"relu(3 − 5) = {np.maximum(3 - 5, 0)}, but relu(3) + relu(−5) = "
                     f"{np.maximum(3, 0) + np.maximum(-5, 0)}.")

# %% [markdown]
# So a row cut first must be summed before the activation: one sync in the middle, and another at the end. Column then
# row is the other order: the shard `h` goes straight into the activation (a shard is complete where it is) and is just
# the piece of input that the row cut needs.
#
# **Predict.** How many sync points does the pair need, column then row?

# %%
guess = predict("sync points of column-then-row", None)


# %% tags=["C01", "C03"]
def column_then_row(tp):
    mine = minitp.Cut(F, tp.size).of(tp.rank)
    weights = {"mlp.up.weight": W_up[mine.start:mine.stop], "mlp.down.weight": W_down[:, mine.start:mine.stop]}
    up = ColumnParallelLinear("mlp.up", tp, len(mine))
    down = RowParallelLinear("mlp.down", tp, len(mine), "add the ranks' partial sums of y")
    h_p = np.maximum(up.forward(x.reshape(1, 1, D), weights, Context()), 0)       # shard → shard: free
    return down.forward(h_p, weights, Context())[0, 0]                            # shard → partial → whole: one sync


pair = run(column_then_row, ranks=4)
pair.tell()
print("largest difference from one rank:", max(abs(y - y_true).max() for y in pair.results))
guess.check(pair.sync_points, "the shard that the column cut leaves is what the row cut takes.")

# %% [markdown]
# These are the layers that the official LLaMA code names `ColumnParallelLinear` and `RowParallelLinear`. Here is the
# whole MLP of a small model as minitp cuts it: boxes are arrays in their state on every rank, the one gate is the sync.

# %%
from minitp.config import TINY

pictures.chain(TINY, ranks=4, part="mlp")

# %% [markdown]
# ## The other order, to see what it costs

# %% tags=["C01"]
def row_then_column(tp):
    a, b = minitp.Cut(D, tp.size).of(tp.rank), minitp.Cut(D, tp.size).of(tp.rank)
    h_p = minitp.Partial(x[a.start:a.stop] @ W_up[:, a.start:a.stop].T, tp)
    h = np.maximum(tp.all_reduce(h_p, site="mlp.up", reason="the activation needs the whole sum"), 0)
    y_p = h @ W_down[b.start:b.stop].T
    return tp.all_gather(y_p, axis=0, cut=minitp.Cut(D, tp.size), site="mlp.down", reason="lay y's pieces side by side")


other = run(row_then_column, ranks=4)
assert np.allclose(other.results[0], y_true)
print(f"column then row: {pair.sync_points} sync point, {pair.payload} bytes of payload")
print(f"row then column: {other.sync_points} sync points, {other.payload} bytes of payload")

# %% [markdown]
# Both are right. The second pays twice, and its ranks all hold the whole `h` besides.
#
# ## The same on real processes
#
# This notebook is also a script. With MPI installed, `minitp run -n 4 02_two_cuts.py` (or `mpirun -n 4 python
# 02_two_cuts.py`) runs the same cells on 4 processes.
#
# ## Exercises
#
# **2.1** How many bytes is the payload of the one all-reduce of an MLP of SmolLM2-135M, for one token in float32? Its
# hidden size is printed below.

# %%
from minitp.plan import catalogue

print("hidden size of SmolLM2-135M:", catalogue.model("smollm2-135m").config.hidden)
exercise("2.1", None)


# %% [markdown]
# **2.2** Write the share of `W_up` that a rank holds in a column cut. No `F // p`: 7 rows on 3 ranks must work.

# %%
def share(W_up, p, rank):
    ...


exercise("2.2", share)


# %% [markdown]
# **2.3** Write the MLP with `W_up` cut by rows, right on any number of ranks. The checker counts your sync points.

# %%
def mlp(tp, x, W_up, W_down):
    ...


exercise("2.3", mlp)

# %% [markdown]
# **Next:** [03 · The MLP of a real model](03_mlp_of_a_real_model.ipynb). Figures of these lessons are free to reuse.
