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
# # 07 · Uneven cuts: nine heads on four ranks, and a rank with none
#
# *Must the ranks divide the model evenly, and what does it cost when they don't?* About 30 minutes. You need lesson 04
# (heads are cut whole; several query heads share a kv head) and lesson 05 (the vocabulary).
#
# SmolLM2-135M has 9 query heads and 3 kv heads. Many programs refuse to cut it on 4 ranks, for 4 divides neither.
# minitp cuts any model on any number of ranks. Who holds what is written in one table, the **placement**: loading,
# layers and pictures all ask it, and no other code divides a size by a number of ranks.
#
# Letters: `H` query heads, `E` numbers in a head, `D` hidden size, `p` ranks. *ffn* is the MLP's inner size.

# %%
import numpy as np

import minitp
from minitp.lesson import begin, exercise, pictures, predict, run
from minitp.plan import catalogue

begin("07")
smollm2 = catalogue.model("smollm2-135m").config
print(f"{smollm2.heads} query heads, {smollm2.kv_heads} kv heads, ffn {smollm2.ffn}, vocabulary {smollm2.vocab:,}")

# %% [markdown]
# ## Heads are dealt out whole
#
# Softmax works within a head, so half a head could do nothing without one more sync: the **unit** of the cut is a head.
# `Cut` deals units out as evenly as they allow, larger shares first.
#
# **Predict.** 9 heads on 5 ranks: how many has the last rank?

# %%
guess = predict("query heads on rank 4 of 5", None)

# %%
for p in (2, 3, 4, 5, 7):
    print(f"{smollm2.heads} heads on {p} ranks: {minitp.Cut(smollm2.heads, p).sizes}")
guess.check(minitp.Cut(smollm2.heads, 5).sizes[-1], "four ranks take 2, and one is left.")

# %% [markdown]
# ## Kv heads are copied where the cut falls between query heads that share one
#
# Three query heads share each kv head here: 0, 1, 2 use kv head 0, and so on. A rank needs the kv heads of *its* query
# heads. Where three sharers are spread over two ranks, both ranks need the same kv head: both hold its weights, and
# both compute its keys and values. So the kv heads are not cut, they are **covered**: each is held at least once.
#
# **Predict.** On 5 ranks, how many kv heads do all ranks together hold, copies counted? (There are 3 to begin with.)

# %%
guess = predict("kv heads held by 5 ranks together", None)


# %%
def who_holds_what(p):
    placement = minitp.Placement(smollm2, p)
    for rank in range(p):
        heads, kv_heads = placement.heads.of(rank), placement.kv_heads(rank)
        print(f"  rank {rank}: query heads {[*heads]}, kv heads {[*kv_heads]}")
    return sum(len(placement.kv_heads(rank)) for rank in range(p))


print("3 ranks:")
who_holds_what(3)
print("4 ranks:")
who_holds_what(4)
print("5 ranks:")
held = who_holds_what(5)
guess.check(held, "kv heads 0, 1 and 2 are each needed on two ranks.")

# %% [markdown]
# The matrix that makes the keys, on 5 ranks, drawn as it multiplies: three kv heads from left to right. Where several
# ranks hold the same part, each has a stripe of it. (A stripe is only a sign: each of these ranks holds the whole
# part.)

# %%
pictures.parameter(minitp.Placement(smollm2, 5), "layers.0.attention.k.weight")

# %% [markdown]
# Copies must never be gathered: lay the ranks' kv heads side by side, and you get 6 where the model has 3. Nor need
# they be: a rank's query heads find their keys and values at home, and what leaves the rank is its term of the output
# projection, in which each query head counts exactly once. (In training the copies do have to meet: lesson 09.)
#
# ## Every run equals one rank
#
# Here is a small model with SmolLM2's head counts, odd sizes elsewhere, and random weights. It runs on 1 rank, and then
# on others. Its vocabulary is cut, too: 23 words.
#
# **Predict.** With 5 ranks instead of 3, does a pass have more sync points (True or False)?

# %%
guess = predict("5 ranks need more sync points than 3", None)

# %%
from minitp.context import plan_pass
from minitp.weights import RandomSource, load_weights

odd = minitp.ModelConfig(hidden=21, layers=2, heads=smollm2.heads, kv_heads=smollm2.kv_heads, head_size=4, ffn=26,
                         vocab=23, positions=8)
ids = np.array([[3, 0, 22, 7]])


def logits_of(tp):
    placement = minitp.Placement(odd, tp.size)
    weights = load_weights(RandomSource(odd), placement, tp, dtype=np.float64)     # each rank its slices of the same
    ctx = plan_pass(odd, np.arange(ids.shape[1])[None], dtype=np.float64)          # the tokens' positions
    return minitp.Transformer(odd, placement, tp).forward(ids, weights, ctx).array


alone = run(logits_of, ranks=1, threads=True).results[0]
runs = {p: run(logits_of, ranks=p, threads=True) for p in (2, 3, 4, 5, 7, 11)}
for p, found in runs.items():
    close = all(np.allclose(one, alone, rtol=1e-12, atol=1e-12) for one in found.results)
    print(f"{p:2} ranks: equal to one rank in 12 digits: {close}; {found.sync_points} sync points, "
          f"{found.payload:,} B of payload")
print("collectives inside the layers:", {event.op for event in runs[5].events if event.site.startswith("layers.")})
guess.check(runs[5].sync_points > runs[3].sync_points, "neither count nor payload depends on how the shares are cut.")

# %% [markdown]
# ## A rank that owns nothing
#
# The last of these runs had 11 ranks for 9 heads, so two of them have no head at all. What such a rank has of the
# heads' results is an array of zero columns; its product with zero rows of the output projection has the full shape and
# is all zeros: a right term of a sum.
#
# **Predict.** In how many of the pass's 6 sync points does rank 10, which has no head, take part?

# %%
guess = predict("sync points of the rank without a head", None)

# %%
last = [event for event in runs[11].trace if event.rank == 10 and event.plane == "data"]
mine = minitp.Placement(odd, 11)
print(f"rank 10 of 11 holds query heads {[*mine.heads.of(10)]}, kv heads {[*mine.kv_heads(10)]}, "
      f"{len(mine.ffn.of(10))} of {odd.ffn} ffn rows, {len(mine.vocab.of(10))} of {odd.vocab} words")
empty = np.ones((4, 0)) @ np.ones((0, odd.hidden))
print(f"no heads · no rows of the projection: shape {empty.shape}, sum {empty.sum():g}")
guess.check(len(last), "a collective is everybody's. If one rank skipped it, all others would wait forever.")

# %% [markdown]
# It is not idle either: it has its share of the MLP and of the vocabulary.
#
# ## The slowest rank sets the pace
#
# An uneven cut is right, but it isn't free. At each sync all wait for the one with the most to do. In attention that is
# a rank with the most heads; look at the first list of this lesson.
#
# **Predict.** By which factor are the 9 heads done faster on 4 ranks than on 3, if computing is all that counts?

# %%
guess = predict("speed of the heads on 4 ranks ÷ on 3", None)

# %%
from minitp.trace.wording import count
from minitp.view.cuts import place

heads_at_most = {p: max(minitp.Cut(smollm2.heads, p).sizes) for p in (1, 2, 3, 4, 5, 6, 8, 9, 12)}
for p, most in heads_at_most.items():
    busiest = max(share.operations for share in place(smollm2, p).shares)
    print(f"{p:2} ranks: at most {count(most, 'head')}, done {smollm2.heads / most:.2f} times as fast as on one; "
          f"a whole pass {place(smollm2, 1).shares[0].operations / busiest:.2f} times")
guess.check(heads_at_most[3] / heads_at_most[4], "the busiest rank has 3 heads in either case.")

# %% [markdown]
# The fourth rank doesn't speed up the heads, the fifth does: what counts is the largest share. The whole pass does
# better on 4 ranks than the heads, for MLP and vocabulary divide more finely; on 9 it does worse, for the copies of kv
# heads are computed, too. (Counted, not measured: a multiplication and an addition for each weight that a token meets.
# What the syncs cost comes on top, and lesson 06 prices it.)
#
# ## Bytes of each rank
#
# What a rank holds follows from the same table: SmolLM2 in float32 on 4 ranks.

# %%
pictures.bytes_per_rank(minitp.Placement(smollm2, 4))

# %% [markdown]
# Rank 0 has a query head more than the others, and rank 2 a kv head more: look at the list above. (They cost the same:
# a query head has columns of q and rows of the output projection, a kv head has columns of k and of v.) The ffn can be
# cut as one likes: with `cut="balanced"` ranks that hold less of attention get more of it.
#
# **Predict.** With the even cut the mean rank holds 96.9 % of the bytes that the fullest one holds. How many % is it
# with the balanced cut?

# %%
guess = predict("the mean rank in % of the fullest, balanced", None)

# %%
from minitp.view.shards import totals

for cut in ("even", "balanced"):
    placement = minitp.Placement(smollm2, 4, cut=cut)
    print(f"{cut}: ffn rows {placement.ffn.sizes}. {totals(placement, 4).sentence()}")
guess.check(100 * totals(placement, 4).evenness,
            "an ffn row is small, 3 × D numbers a layer, so ffn rows even out nearly all of it.")

# %% [markdown]
# ## The other way: padding
#
# Many programs want even shares and add what is missing: heads and words that don't exist. Padded rows of the head give
# logits, too. They must be **masked**, set to −∞ before a softmax: else words that don't exist take their part of the
# probability.
#
# The loss says how little a model expected the word that really came: log Σ exp z − z_t, where z are its logits and z_t
# is that word's. Take the model above, whose 23 words become 24 on 4 ranks; the row of the 24th is zeros.
#
# **Predict.** Is the loss with padding, unmasked, `"higher"`, `"lower"` or `"equal"`?

# %%
guess = predict("the loss with padded logits", None)


# %%
def loss(logits, target):
    return float(np.log(np.exp(logits).sum()) - logits[target])


z = alone[0, -1]
padded = np.append(z, np.zeros(-len(z) % 4))
masked = np.append(z, np.full(-len(z) % 4, -np.inf))
print(f"uneven {loss(z, 5):.6f}, padded to {len(padded)} {loss(padded, 5):.6f}, masked {loss(masked, 5):.6f}")
guess.check("higher" if loss(padded, 5) > loss(z, 5) else "lower",
            "exp(0) = 1 joins the sum. The loss then depends on the number of ranks.")

# %% [markdown]
# And what does padding cost, in rows of the vocabulary and in heads?

# %%
gpt2 = catalogue.model("gpt2").config
for p in (4, 8):
    unit = 128 * p                                          # shares of whole blocks of 128 rows, as fast kernels like
    rows = -gpt2.vocab % unit
    print(f"GPT-2's {gpt2.vocab:,} words on {p} ranks: {rows} rows of padding, {4 * rows * gpt2.hidden:,} B; "
          f"uneven shares: from {min(minitp.Cut(gpt2.vocab, p).sizes):,} to {max(minitp.Cut(gpt2.vocab, p).sizes):,}")
padded_heads = 4 * max(minitp.Cut(smollm2.heads, 4).sizes)
print(f"{smollm2.heads} heads padded on 4 ranks: {padded_heads} heads, {padded_heads // 4} a rank, "
      f"{padded_heads - smollm2.heads} of them for nothing; uneven: at most {heads_at_most[4]}")

# %% [markdown]
# Padding is no faster: each of its ranks has as many heads as the busiest of the uneven cut. It buys simplicity (all
# shapes are equal) and pays in memory, in masks that must not be forgotten, and in weights of another shape for each p.
#
# ## The same on real processes
#
# This lesson needed certain numbers of ranks, and so they were threads. The next cell takes the ranks that were
# started: with `minitp run -n 5 07_uneven_cuts.py` (or `mpirun -n 5 python 07_uneven_cuts.py`) they are 5 processes.
# Try other numbers.

# %%
started = run(logits_of, ranks=4)
print(f"{started.ranks} ranks, heads {minitp.Cut(odd.heads, started.ranks).sizes}: equal to one rank in 12 digits:",
      all(np.allclose(one, alone, rtol=1e-12, atol=1e-12) for one in started.results))

# %% [markdown]
# ## Exercises
#
# **7.1** Below are the heads of the largest Llama 3, cut on two machines of 8 cards, a rank a card. How many of the
# ranks hold each of its kv heads?

# %%
big, cards = catalogue.model("llama-3.1-405b").config, 16
print(f"{big.name} on {cards} ranks: {big.heads} query heads, {big.kv_heads} kv heads")
exercise("7.1", None)


# %% [markdown]
# **7.2** Which kv heads does a rank need? Write it for any numbers: `heads` is the `range` of its query heads (it may
# be empty), `sharers` of them use one kv head. Return a `range`.

# %%
def kv_heads(heads, sharers):
    ...


exercise("7.2", kv_heads)


# %% [markdown]
# **7.3** Write the output projection. A rank gets `y`, what its own heads give, (tokens, own heads · E), and the
# *whole* `W_o`, stored (D, H · E), of which it is to use the columns of its own heads. H heads are dealt out by `Cut(H,
# p)`, on any number p of ranks, also more than H. Return the whole result, on every rank, with one sync.

# %%
def project(tp, y, W_o, H):
    ...


exercise("7.3", project)

# %% [markdown]
# **Next:** [08 · Collectives by hand](08_collectives_by_hand.ipynb). Figures of these lessons are free to reuse.
