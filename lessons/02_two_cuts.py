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
# lesson 01 (the four states of an array, all-gather and all-reduce).
#
# In a transformer, the part that works on each token alone is the MLP (*multi-layer perceptron*). Its plainest form is
# two products with a bend between them:
#
# `a = x · W_upᵀ`, then `h = act(a)`, then `y = h · W_downᵀ`
#
# `act`, the **activation**, is a nonlinear function that is applied to each number. Here it is `relu(a) = max(a, 0)`.
#
# Letters: `D` numbers in a token's vector x (the *hidden size*), `F` numbers in a and h, `p` ranks. Weights are stored
# (out, in), as the files of trained models store them: `W_up` is (F, D), `W_down` (D, F). "By columns" and "by rows"
# speak of the transpose, which x is multiplied by: a column of `W_upᵀ` is a row of what is stored.

# %%
import numpy as np

import minitp
from minitp.lesson import begin, exercise, pictures, predict, run

begin("02")
D, F = 4, 7
x = np.arange(1.0, D + 1)                                 # (D,) whole: every rank has it
W_up = np.arange(F * D).reshape(F, D) * 4.0 % 9 - 4       # (F, D)
W_down = np.arange(D * F).reshape(D, F) * 7.0 % 9 - 4     # (D, F)
a_true = x @ W_up.T                                       # one rank's answers: the truth for all that follows
h_true = np.maximum(a_true, 0)
y_true = h_true @ W_down.T
print("x =", x, "\na =", a_true, "\nh =", h_true, "\ny =", y_true)

# %% [markdown]
# ## Cut by columns: each rank gets some of the outputs
#
# `W_upᵀ` is cut by columns: a rank holds some of the F rows of the stored `W_up`, and all D numbers of x.
#
# **Predict.** How many of the 7 numbers of `a` does rank 0 of 4 know, right and complete, before anything is sent? Put
# your number in place of `None`.

# %%
guess = predict("right numbers of a on rank 0", None)


# %%
def column_cut(tp):
    cut = minitp.Cut(F, tp.size)
    mine = cut.of(tp.rank)                                # this rank's rows of W_up
    a_p = x @ W_up[mine.start:mine.stop].T                # (F_p,) shard: free
    a = tp.all_gather(a_p, axis=0, cut=cut, site="mlp.up", reason="lay the pieces side by side")
    return a_p, a


columns = run(column_cut, ranks=4)
for rank, (a_p, _) in enumerate(columns.results):
    print(f"rank {rank} computed {a_p}")
print("side by side:  ", columns.results[0][1])
columns.tell()
first, _ = columns.results[0]
guess.check(int((first == a_true[:len(first)]).sum()),
            "as many as it holds rows of W_up: each number needs one row and the whole x, nothing else.")

# %% [markdown]
# Nothing is missing in a rank's numbers, and nothing has to be added. The state of `a` is **shard**: to see all of it,
# the pieces are laid side by side (an all-gather).
#
# ## Cut by rows: each rank gets some of the inputs
#
# `W_downᵀ` is cut by rows: a rank holds some of the F columns of the stored `W_down`, for all D outputs. It can only
# multiply them with the same entries of `h`.
#
# **Predict.** How many of the 4 numbers of `y` does rank 0 of 4 know, right and complete, before anything is sent?

# %%
guess = predict("right numbers of y on rank 0", None)


# %%
def row_cut(tp):
    mine = minitp.Cut(F, tp.size).of(tp.rank)
    y_p = h_true[mine.start:mine.stop] @ W_down[:, mine.start:mine.stop].T        # (D,) one term of the sum
    y = tp.all_reduce(minitp.Partial(y_p.copy(), tp), site="mlp.down", reason="add the ranks' partial sums of y")
    return y_p, y


rows = run(row_cut, ranks=4)
for rank, (y_p, _) in enumerate(rows.results):
    print(f"rank {rank}'s term: {y_p}")
print("their sum:    ", rows.results[0][1])
rows.tell()
assert np.allclose(rows.results[0][1], y_true)
guess.check(int((rows.results[0][0] == y_true).sum()), "it has a number for each of the outputs, and each is one term.")

# %% [markdown]
# What a rank gets has the full shape of `y`, and it is one term of a sum: **partial**.
#
# ## The nonlinearity decides
#
# Now both products. Could the first matrix be cut by rows, too? Then `a` would be partial, and the next thing to do is
# `act(a)`. Let two ranks try: each applies the activation to its own term, and the results are added.
#
# **Predict.** How many of the 7 numbers of `h` come out wrong?

# %%
guess = predict("wrong numbers of h", None)


# %%
def term_of_a(tp):
    mine = minitp.Cut(D, tp.size).of(tp.rank)
    return x[mine.start:mine.stop] @ W_up[:, mine.start:mine.stop].T              # (F,) one term of the sum


terms = run(term_of_a, ranks=2, threads=True).results     # threads=True: two ranks, also where more were started
for rank, term in enumerate(terms):
    print(f"rank {rank}'s term of a:      {term}")
too_early = sum(np.maximum(term, 0) for term in terms)
print("each activated, then added:", too_early)
print("added, then activated:     ", h_true)
guess.check(int((too_early != h_true).sum()), "it is wrong where the ranks' terms have opposite signs.")

# %% [markdown]
# **act(a + b) is not act(a) + act(b).** The wrong numbers look as good as the right ones, and no shape gives them away.
# That is why `Partial` refuses the attempt:


# %%
def activated_too_early(tp):
    return np.maximum(minitp.Partial(term_of_a(tp), tp), 0)


try:
    run(activated_too_early, ranks=2, threads=True)
except TypeError as error:
    print(error)

# %% [markdown]
# So a row cut that comes first must be summed before the activation: one sync in the middle, and another at the end.
#
# Column then row is the other order. It leaves `a` as a shard, and every number of a shard is final, so the
# activation may act on it. And rank r's shard of `h` is just the piece of input that rank r's rows of `W_downᵀ` need.
#
# **Predict.** So the pair, column then row, needs a single sync point. What travels in it: how many bytes, at 8 bytes a
# number?

# %%
guess = predict("bytes of payload of column-then-row", None)

# %% tags=["C01", "C03"]
from minitp.context import Context
from minitp.layers import ColumnParallelLinear, RowParallelLinear


def column_then_row(tp):
    mine = minitp.Cut(F, tp.size).of(tp.rank)
    weights = {"mlp.up.weight": W_up[mine.start:mine.stop], "mlp.down.weight": W_down[:, mine.start:mine.stop]}
    up = ColumnParallelLinear("mlp.up", tp, len(mine))                            # (site, ranks, outputs here)
    down = RowParallelLinear("mlp.down", tp, len(mine), "add the ranks' partial sums of y")
    ctx = Context()                                                               # what a pass carries: nothing yet
    h_p = np.maximum(up.forward(x.reshape(1, 1, D), weights, ctx), 0)             # (batch, token, F_p) shard: free
    return down.forward(h_p, weights, ctx)[0, 0]                                  # shard → partial → whole: a sync


pair = run(column_then_row, ranks=4)
pair.tell()
print("largest difference from one rank:", max(abs(y - y_true).max() for y in pair.results))
print("sync points:", pair.sync_points)
guess.check(pair.payload, "only y travels, D numbers; the F numbers of h stay where they are.")

# %% [markdown]
# `ColumnParallelLinear` and `RowParallelLinear` are minitp's layers. They have the names that the official LLaMA code
# gives to its own.
#
# Here is the same pair in a real model, GPT-2: a row for each array, in which every rank shows what it holds; the bar
# across all ranks is the sync. What is `a` above is called *up* there. (*norm* scales x before the MLP, and at the end
# y is added to x. Both work on whole arrays, which every rank has. The payload is y: D numbers of 4 bytes. That it
# looks like F is chance: GPT-2 has F = 4 D.)

# %%
from minitp.plan import catalogue

pictures.chain(catalogue.model("gpt2").config, ranks=4, part="mlp")

# %% [markdown]
# ## The other order, to see what it costs
#
# **Predict.** Row then column, done right, gives the same y. How many bytes of payload have its syncs together?

# %%
guess = predict("bytes of payload of row-then-column", None)


# %% tags=["C01"]
def row_then_column(tp):
    cut = minitp.Cut(D, tp.size)                                                  # of W_up's inputs, W_down's outputs
    mine = cut.of(tp.rank)
    a = tp.all_reduce(minitp.Partial(term_of_a(tp), tp), site="mlp.up", reason="the activation needs the whole sum")
    y_p = np.maximum(a, 0) @ W_down[mine.start:mine.stop].T
    return tp.all_gather(y_p, axis=0, cut=cut, site="mlp.down", reason="lay y's pieces side by side")


other = run(row_then_column, ranks=4)
assert np.allclose(other.results[0], y_true)
print(f"column then row: {pair.sync_points} sync point, {pair.payload} bytes of payload")
print(f"row then column: {other.sync_points} sync points, {other.payload} bytes of payload")
guess.check(other.payload, "the F numbers of a are summed in the middle, the D numbers of y gathered at the end.")

# %% [markdown]
# Both are right. The second syncs twice, and sends `a` besides `y`.
#
# "Big matrices are split into smaller ones to share the work", it is said. Yes, and there are two ways: a cut by
# columns ends in laying side by side, a cut by rows ends in a sum. Two matrices with an activation between them are cut
# by columns, then by rows, and need one sync.
#
# ## The same on real processes
#
# This notebook is also a script. With MPI installed, `minitp run -n 4 02_two_cuts.py` (or `mpirun -n 4 python
# 02_two_cuts.py`) runs the same cells on 4 processes; lesson 01 has done so from a cell.
#
# ## Exercises
#
# **2.1** SmolLM2-135M is a small model that writes English. Its MLPs are cut by columns, then by rows. How many bytes
# is the payload of one MLP's sync, for one token in float32 (4 bytes a number)?

# %%
smollm2 = catalogue.model("smollm2-135m").config
print(f"SmolLM2-135M: hidden size D = {smollm2.hidden}, MLP size F = {smollm2.ffn}")
exercise("2.1", None)


# %% [markdown]
# **2.2** Write the share of `W_up` (F, D) that rank `rank` of `p` holds in a column cut. No `F // p`: 7 rows on 3 ranks
# must work.

# %%
def share(W_up, p, rank):
    ...


exercise("2.2", share)


# %% [markdown]
# **2.3** Somebody has cut `W_up` by rows, and you can't change it. A rank gets its piece `x_p` (D_p,) of the input and
# its part `up` (F, D_p) of `W_up`; of `W_down`, cut by rows, it gets `down` (D, F_p), its part as `Cut(F, p)` deals F
# out. Return the whole y on every rank, with relu as activation. Two syncs will do.

# %%
def mlp(tp, x_p, up, down):
    ...


exercise("2.3", mlp)

# %% [markdown]
# **Next:** [03 · The MLP of a real model](03_mlp_of_a_real_model.ipynb). Figures of these lessons are free to reuse.
