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
# # 04 · Heads: computed apart, then summed
#
# *Attention mixes tokens with each other. How can it be cut over ranks without mixing ranks, too?* About 40 minutes.
# You need lesson 01 (states, all-reduce) and lesson 02 (column cut, row cut). The model is `tiny`, which comes with
# minitp and was really trained; a byte is a token (lesson 03 looks into its MLP).
#
# You will compute one head of a trained model by hand, see that no other head had a say in it, check to the last digit
# that heads may be summed instead of joined, and then cut a head in two, to see why nobody does.

# %%
import numpy as np

import minitp
from minitp.checkpoint import open_checkpoint
from minitp.lesson import begin, exercise, pictures, predict, run
from minitp.models import Bundled
from minitp.placement import Placement

begin("04")
checkpoint = open_checkpoint(Bundled("tiny").folder)
config = checkpoint.config
D, H, E = config.hidden, config.heads, config.head_size
print(f"tiny: hidden size D = {D}, H = {H} heads of size E = {E}; {H} × {E} = {H * E}")

# %% [markdown]
# ## What a head is
#
# In attention every token looks at itself and the tokens before it, and takes something from each. How much is
# computed: a token's vector x is multiplied by three matrices, which give its **query** q (what it looks for), its
# **key** k (what it can be found by) and its **value** v (what it hands over). Then
#
# 1. scores: its q · the k of each of these tokens, divided by √E;
# 2. softmax: `eˢ / Σ eˢ`, which makes them shares that add up to 1;
# 3. the values, added up by these shares.
#
# A model does this many times at once, each time with its own small piece of q, k and v: E numbers instead of D. Each
# such piece is a **head**. What the heads found is laid side by side (H · E numbers a token) and multiplied by one last
# matrix, the *output projection* `W_o`, which gives the layer's y.
#
# Two details of today's models. Query and key are turned by an angle that depends on the token's position (*rotary*),
# so that a score can know the distance. And heads may share keys and values in groups: tiny has 8 query heads and 4 *kv
# heads*.
#
# First, x: what layer 0 of tiny reads when its text is "in a dic". That is one row of the embedding table for each
# byte, scaled by the norm (each row to the same size, each column by a trained number).

# %%
text = "in a dic"
T = len(text)
one_rank = Placement(config, ranks=1)                                                 # who holds what: here one has all


def read(name):
    parameter = one_rank.parameter(name)
    return checkpoint.read(parameter, one_rank.slices(parameter, 0), dtype=np.float64)


x = read("embedding.weight")[list(text.encode())]                                     # (T, D) a byte is a token
x = x / np.sqrt((x * x).mean(-1, keepdims=True) + config.norm_eps) * read("layers.0.attention_norm.weight")
W_q, W_k, W_v, W_o = (read(f"layers.0.attention.{name}.weight") for name in "qkvo")
print(f"x {x.shape}; stored (out, in): W_q {W_q.shape}, W_k {W_k.shape}, W_v {W_v.shape}, W_o {W_o.shape}")

# %% [markdown]
# Now one head, in NumPy. `rows` picks the head's rows of a stored matrix; `turned` is rotary; the rest are the three
# steps above. (A token must not look ahead, so the scores of later tokens are −∞ before the softmax.)

# %%
from minitp.context import plan_pass
from minitp.layers.attention import rotate

angles = plan_pass(config, np.arange(T)[None], dtype=np.float64)                      # of the positions 0 … T-1


def turned(a):
    return rotate(a[None, None], angles)[0, 0]                                        # (T, E)


def softmax(scores):
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def rows(W, number):
    """The rows of a stored matrix that belong to one head."""
    return W[number * E:(number + 1) * E]


future = np.triu(np.full((T, T), -np.inf), 1)                                         # added to the scores


def head(h, W_q, W_k, W_v):
    """(shares (T, T), result (T, E)) of query head h."""
    kv = h // config.heads_per_kv                                                     # the kv head that it shares
    q, k, v = turned(x @ rows(W_q, h).T), turned(x @ rows(W_k, kv).T), x @ rows(W_v, kv).T
    shares = softmax(q @ k.T / np.sqrt(E) + future)
    return shares, shares @ v


print("How much the last token, “c”, takes from each:")
print("      ", *(f"{letter:>5}" for letter in text.replace(" ", "␣")))
for h in range(H):
    print(f"head {h}", *(f"{share:5.2f}" for share in head(h, W_q, W_k, W_v)[0][-1]))

# %% [markdown]
# Each line adds up to 1 (but for rounding). The first two heads look everywhere a little, the others each elsewhere.
# That is what many heads are for.
#
# ## Heads don't know of each other
#
# **Predict.** Overwrite all weights of q, k and v that don't belong to head 5 with NaN ("not a number": whatever it
# touches becomes NaN). How many numbers of head 5's result will be NaN?

# %%
guess = predict("NaNs in the result of head 5", None)


# %%
def others_ruined(W, number):
    ruined = np.full_like(W, np.nan)
    rows(ruined, number)[...] = rows(W, number)
    return ruined


kv = 5 // config.heads_per_kv
_, alone = head(5, others_ruined(W_q, 5), others_ruined(W_k, kv), others_ruined(W_v, kv))
_, together = head(5, W_q, W_k, W_v)
print("head 5, last token:", together[-1].round(3), " with all others ruined:", alone[-1].round(3))
guess.check(int(np.isnan(alone).sum()), "a head reads its own rows of three matrices and the whole x, nothing else.")

# %% [markdown]
# Not one number changed. So heads are the natural unit: a rank that holds a head's rows of W_q, W_k and W_v can do all
# of that head's attention, softmax included, without a word to anyone. In lesson 02's terms: **a column cut**, at the
# borders of heads.
#
# ## Side by side, then projected; or projected, then summed
#
# What comes after? The heads' results are laid side by side and multiplied by W_o. Laying side by side would be an
# all-gather. But W_o can be cut as well, by rows: each head multiplies its own part of W_o, and the products are added.
# "Heads can be computed independently and then summed", it is said. Is that the same? With whole numbers nothing is
# rounded, so a single digit would give a difference away.
#
# **Predict.** Five heads of size 2, one token, 4 outputs. What is the largest difference between the two ways?

# %%
guess = predict("largest difference", None)

# %% tags=["C04"]
found = np.arange(1.0, 11).reshape(5, 2)                                              # (heads, size) one token
project = 10.0 * np.arange(4)[:, None] + np.arange(10)                                # (outputs, heads · size)

joined = found.reshape(10) @ project.T                                                # side by side, one product
parts = [found[h] @ project[:, 2 * h:2 * h + 2].T for h in range(5)]                  # a product for each head
for h, part in enumerate(parts):
    print(f"head {h} gives {part}")
print("their sum:   ", sum(parts))
print("joined first:", joined)
difference = np.abs(sum(parts) - joined).max()
print("largest difference:", difference)
guess.check(float(difference), "a product is a sum over 10 columns; the heads only say in which groups to add them.")

# %% [markdown]
# The saying is right, to the last digit: projecting what was laid side by side *is* the sum of the heads' projections.
# Each head's product is a term of y, and a rank may add up those of its own heads. In lesson 02's terms: **a row cut**.
#
# ## And with real numbers?
#
# Computers round. (0.1 + 0.2) + 0.3 is not 0.1 + (0.2 + 0.3) in floating point: the two differ in the last bit. Cutting
# changes the groups in which a sum is added up.
#
# **Predict.** Take the true heads of tiny and the true W_o. Is their sum equal to the joined product in every bit?
# (True or False)

# %%
guess = predict("equal in every bit", None)

# %% tags=["C04"]
print((0.1 + 0.2) + 0.3, 0.1 + (0.2 + 0.3))
heads = np.concatenate([head(h, W_q, W_k, W_v)[1] for h in range(H)], axis=1).round(6)    # (T, H·E): all machines alike


def added(ranks, dtype):
    """y (T, D): every rank adds up the columns of its heads, in order; then the ranks are added, in order."""
    products = heads.astype(dtype)[:, None] * W_o.astype(dtype)                           # (T, D, H·E)
    total = np.zeros((T, D), dtype)
    for rank in range(ranks):
        term = np.zeros((T, D), dtype)
        for column in Placement(config, ranks).held("head", rank):                        # those of the rank's heads
            term += products[:, :, column]
        total += term
    return total


for dtype in (np.float64, np.float32):
    for ranks in (2, 4, 8):
        apart, joined = added(ranks, dtype), added(1, dtype)
        print(f"{np.dtype(dtype)}, {ranks} ranks: {np.mean(apart == joined):.0%} equal in every bit, "
              f"largest difference {np.abs(apart - joined).max():.0e} (numbers up to {np.abs(joined).max():.1f})")
guess.check(bool(np.array_equal(added(H, np.float64), added(1, np.float64))),
            "the same products, added in other groups, are rounded at other places.")

# %% [markdown]
# Most numbers differ, by a last bit or so. No cut is wrong here; all are rounded, each a little differently. This is
# why a model on 4 ranks gives almost, but not exactly, the numbers that it gives on 2, and why a test of such a program
# says how much difference it allows.
#
# ## On ranks
#
# The **placement**, minitp's table of who holds what, deals out heads, never parts of one.
#
# **Predict.** Attention has four matrices and eight heads. How many sync points does it need?

# %%
guess = predict("sync points of attention", None)

# %%
from minitp.model import Transformer
from minitp.weights import load_weights

for ranks in (4, 3):
    placement = Placement(config, ranks)
    print(f"on {ranks} ranks:", "; ".join(f"rank {rank} heads {[*placement.heads.of(rank)]}, "
                                         f"kv heads {[*placement.kv_heads(rank)]}" for rank in range(ranks)))


def attention_of_the_model(tp):
    placement = Placement(config, tp.size)
    weights = load_weights(checkpoint, placement, tp, dtype=np.float64)
    attention = Transformer(config, placement, tp).blocks[0].attention
    partial = attention.product(x[None], weights, plan_pass(config, np.arange(T)[None], dtype=np.float64))
    return tp.all_reduce(partial, site="layers.0.attention.o", reason="add the ranks' partial attention output")[0]


joined = np.concatenate([head(h, W_q, W_k, W_v)[1] for h in range(H)], axis=1) @ W_o.T
layer = run(attention_of_the_model, ranks=4)
layer.tell()
print("largest difference from the heads by hand below 1e-12:",
      all(np.abs(y - joined).max() < 1e-12 for y in layer.results))
guess.check(layer.sync_points, "column cut, each head on its own, row cut: only y has to be added up.")

# %% [markdown]
# Column cut, softmax on the shard, row cut, one all-reduce: attention is cut like the MLP. Three ranks work, too: some
# hold one head more. There kv head 1 is on two ranks, for query heads on both need it (lesson 07).
#
# The picture of the chain, and of the matrix W_o with the true numbers of tiny. It is drawn as it multiplies: heads
# from top to bottom, each rank its rows; a dash marks a negative number.

# %%
from minitp.runs import samples
from minitp.trace.file import Trace

recorded = {sample.name: Trace.read(sample.path) for sample in samples()}["tiny-4-ranks"]
pictures.chain(config, ranks=4, part="attention")
pictures.parameter(Placement(config, ranks=4), "layers.0.attention.o.weight", recorded)

# %% [markdown]
# ## Cut inside a head
#
# Why not smaller pieces? Give each of two ranks half of a head (we take head 6): 2 of its 4 columns of q and k. A score
# q · k is a sum over these columns, so each rank gets one term of every score. And next comes softmax.
#
# **Predict.** Each rank takes the softmax of its terms, and the results are added. To what do a token's shares add up
# then?

# %%
guess = predict("sum of the shares", None)

# %%
h = 6
W_k_h, W_v_h = rows(W_k, h // config.heads_per_kv), rows(W_v, h // config.heads_per_kv)
q, k = turned(x @ rows(W_q, h).T), turned(x @ W_k_h.T)                                # (T, E)
half = [q[:, part] @ k[:, part].T / np.sqrt(E) for part in (slice(0, 2), slice(2, 4))]    # two terms of the scores
right = softmax(half[0] + half[1] + future)[-1]
each = [softmax(term + future)[-1] for term in half]


def show(name, numbers):
    print(f"{name:<28}", *(f"{number:5.2f}" for number in numbers), f"  sum {sum(numbers):.2f}")


show("softmax of the sum (right)", right)
show("softmax of rank 0's terms", each[0])
show("softmax of rank 1's terms", each[1])
show("their sum", each[0] + each[1])
show("half of that", (each[0] + each[1]) / 2)
guess.check(float(round((each[0] + each[1]).sum(), 6)), "each adds up to 1. Even halved it isn't right.")

# %% [markdown]
# softmax(a + b) is not softmax(a) + softmax(b). It is lesson 02's line once more: a nonlinearity needs the whole sum.
#
# **Predict.** With a head cut inside, each rank has some columns of q, k and v, and W_o's rows for them. How many sync
# points does it take to get y right?

# %%
guess = predict("sync points with a head cut inside", None)


# %%
def inside_the_head(tp):
    mine = minitp.Cut(E, tp.size).of(tp.rank)                                         # some columns of one head
    part = slice(mine.start, mine.stop)
    scores = minitp.Partial(q[:, part] @ k[:, part].T / np.sqrt(E), tp)
    scores = tp.all_reduce(scores, site="scores", reason="softmax needs the whole scores")
    y_p = softmax(scores + future) @ (x @ W_v_h[part].T)                              # (T, E_p) shard of the result
    term = y_p @ W_o[:, h * E:(h + 1) * E][:, part].T                                 # (T, D)
    return tp.all_reduce(minitp.Partial(term, tp), site="o", reason="add the partial y")


inside = run(inside_the_head, ranks=2)
inside.tell()
_, right = head(h, W_q, W_k, W_v)
print("right:", np.allclose(inside.results[0], right @ W_o[:, h * E:(h + 1) * E].T))
guess.check(inside.sync_points, "the scores are added up before softmax, y after W_o.")

# %% [markdown]
# Right, with a second sync, that of the scores. How large is it?
#
# **Predict.** Take a layer of SmolLM2 and a prompt of 1,000 tokens. y has D numbers for each token; scores there are
# one for each head and each pair of tokens. How many times the bytes of y do the scores have?

# %%
from minitp.plan import catalogue
from minitp.trace.wording import size

smol = catalogue.model("smollm2-135m").config
print(f"{smol.name}: D = {smol.hidden}, {smol.heads} heads")
guess = predict("bytes of the scores ÷ bytes of y", None)

# %%
print(f"A layer of {smol.name} in float32:")
for tokens in (1, 100, 1000):
    y, scores = 4 * tokens * smol.hidden, 4 * smol.heads * tokens ** 2
    print(f"a prompt of {tokens:>5,} tokens: y {size(y):>8}, scores {size(scores):>8}")
guess.check(scores / y, "a score for each pair, D numbers for each token.")

# %% [markdown]
# For long prompts the new sync is by far the larger one: scores grow with the square of the prompt's length, y with the
# length. That is why heads are the unit of the cut.
#
# Here is the true sync of attention in a recorded run: in each lane the rank's own queries, keys and values, what its
# two heads looked at (*scores*), its rows of W_o, its term of y. In a running notebook it can be played.

# %%
pictures.watch(recorded, "The player at the attention of layer 0: on each of four lanes a rank's queries, keys and "
               "values, the shares of its heads, and its partial sum; then the sum.", at="token=1&sync=1&phase=2")

# %% [markdown]
# ## The same on real processes
#
# This notebook is also a script. With MPI installed, either of these runs the same cells on 4 processes:
#
#     minitp run -n 4 04_heads.py
#     mpirun -n 4 python 04_heads.py
#
# ## Exercises
#
# **4.1** How many bytes would the sync of scores have in one layer of SmolLM2, in float32, for the longest prompt that
# it can read (its *context*)?

# %%
print("context of SmolLM2-135M:", smol.positions, "tokens; heads:", smol.heads)
exercise("4.1", None)


# %% [markdown]
# **4.2** `found` (T, H_p, E) is what this rank's heads found, `W_o` (D, H_p · E) its part of the output projection.
# Return the whole y (T, D), on every rank. Ranks hold different numbers of heads; one has none. One sync.

# %%
def project_heads(tp, found, W_o):
    ...


exercise("4.2", project_heads)


# %% [markdown]
# **4.3** A head cut inside: `q` and `k` (T, E_p) are this rank's columns of one head of size `E`. Return the right
# shares (T, T), on every rank. Here every token may look at every other: nothing is −∞. One sync.

# %%
def shares_of(tp, q, k, E):
    ...


exercise("4.3", shares_of)

# %% [markdown]
# **Next:** [05 · The vocabulary](05_vocabulary.ipynb). Figures of these lessons are free to reuse.
