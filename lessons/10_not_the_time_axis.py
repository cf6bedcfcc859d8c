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
# # 10 · Not the time axis
#
# *Activations have a batch, a time and an embedding axis. Why is a model cut along the embedding?* About 40 minutes.
# You need lessons 02 (column then row) and 04 (heads, and kv heads that several query heads share); of lesson 06 what a
# prefill and a decode pass are, of lesson 09 what a backward pass sums.
#
# You may have heard: "each token depends on the one before, so it can't be cut along time; that is why it is cut along
# the embedding". Here you cut one small model along all three axes, by hand, and count what each cut moves and what
# each rank must hold.
#
# Letters: `B` sequences, `T` tokens, `D` hidden size (the embedding axis), `H` query heads, `K` kv heads, `E` head
# size, `F` size inside the MLP, `p` ranks.

# %%
import numpy as np

import minitp
from minitp.lesson import begin, exercise, pictures, predict, run

begin("10")
B, T = 4, 10
config = minitp.ModelConfig(hidden=12, layers=2, heads=4, kv_heads=2, head_size=3, ffn=20, vocab=8, positions=64,
                            rotary=None)
D, H, K, E, F = config.hidden, config.heads, config.kv_heads, config.head_size, config.ffn
OWNER = np.arange(H) // config.heads_per_kv               # the kv head of each query head
SHAPES = {"q": (H * E, D), "k": (K * E, D), "v": (K * E, D), "o": (D, H * E), "up": (F, D), "down": (D, F)}
draw = np.random.default_rng(10)
layers = [{name: draw.normal(size=shape) / 4 for name, shape in SHAPES.items()} for _ in range(config.layers)]
x = draw.normal(size=(B, T, D))                           # the prompt, after the embedding table
print("query heads read kv heads", OWNER, " bytes of a layer:", sum(W.nbytes for W in layers[0].values()))


# %% [markdown]
# ## One rank: the truth
#
# A layer is attention and an MLP, each behind a norm and added to its input. Embedding table, head and positions are
# left out: they change nothing here. `attend` gives the softmax's three parts apart, for later: the largest score, the
# sum of the exponentials, and the sum of the values weighted by them. Their quotient is a head's output.

# %%
def norm(x):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)


def heads_of(x, W):
    return (x @ W.T).reshape(*x.shape[:-1], len(W) // E, E)


def attend(q, k, v, owner, first=0):
    """q (B, T, h, E) over k and v (B, S, n, E); query t is token first + t and sees tokens up to itself."""
    k, v = k[:, :, owner], v[:, :, owner]                                       # each query head with its kv head
    scores = np.einsum("bthe,bshe->bths", q, k) / np.sqrt(E)
    later = np.arange(k.shape[1]) > first + np.arange(q.shape[1])[:, None]      # (T, S)
    scores = np.where(later[None, :, None], -np.inf, scores)
    largest = scores.max(-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - largest)
    return largest, weights.sum(-1, keepdims=True), np.einsum("bths,bshe->bthe", weights, v)


def project(heads, W_o):
    return heads.reshape(*heads.shape[:2], W_o.shape[1]) @ W_o.T


def mlp(x, W):
    return np.maximum(norm(x) @ W["up"].T, 0) @ W["down"].T


def extended(past, n, W):
    """Keys and values of all tokens so far: those of the cache, then those of n."""
    new = [heads_of(n, W[name]) for name in "kv"]
    return new if past is None else [np.concatenate(pair, axis=1) for pair in zip(past, new, strict=True)]


def one_rank(x, past=(None, None)):
    """The output, and each layer's keys and values: the cache. `past`: the cache of the tokens before x."""
    cache = []
    for W, before in zip(layers, past, strict=True):
        n = norm(x)
        k, v = extended(before, n, W)
        _, total, out = attend(heads_of(n, W["q"]), k, v, OWNER, first=k.shape[1] - x.shape[1])
        x = x + project(out / total, W["o"])
        x = x + mlp(x, W)
        cache.append((k, v))
    return x, cache


y_true, cache_true = one_rank(x)


def held(arrays):
    return sum(array.nbytes for array in arrays)


WEIGHTS, CACHE = held(W for layer in layers for W in layer.values()), held(a for pair in cache_true for a in pair)
print(f"one rank holds {WEIGHTS:,} B of weights and {CACHE:,} B of cache")

# %% [markdown]
# ## Prefill, cut three ways
#
# Each of the three functions gives back its y, and how many bytes of weights and of cache its rank holds.
#
# **Batch.** A rank takes some of the sequences. Sequences don't know of each other.

# %%
def by_batch(tp, x, past=(None, None)):
    rows = minitp.Cut(B, tp.size).of(tp.rank)
    mine = slice(rows.start, rows.stop)
    own = [None if pair is None else [old[mine] for old in pair] for pair in past]
    y, cache = one_rank(x[mine], own)
    return y, WEIGHTS, held(a for pair in cache for a in pair)


# %% [markdown]
# **Time.** A rank takes some of the tokens of each sequence. Norm, projections and MLP look at one token at a time:
# free. But a query looks at the keys and values of all earlier tokens, and those are on other ranks.
#
# **Predict.** How many sync points does the time cut need for its 2 layers?

# %%
guess = predict("sync points of the time cut, 2 layers", None)


# %%
def by_time(tp, x):
    cut = minitp.Cut(T, tp.size)
    mine = cut.of(tp.rank)
    y, kept = x[:, mine.start:mine.stop], 0
    for W in layers:
        n = norm(y)
        q, k, v = (heads_of(n, W[name]) for name in "qkv")
        kept += k.nbytes + v.nbytes
        kv = tp.all_gather(np.concatenate([k, v], axis=2), axis=1, cut=cut, site="attention.kv",
                           reason="a query needs the keys and values of all earlier tokens")
        _, total, out = attend(q, kv[:, :, :K], kv[:, :, K:], OWNER, first=mine.start)
        y = y + project(out / total, W["o"])
        y = y + mlp(y, W)
    return y, WEIGHTS, kept


# %% [markdown]
# **Embedding.** A rank takes some heads and some of the MLP's columns, for all tokens: column then row, as in lessons
# 02 and 04.

# %%
def share(tp):
    """This rank's slices of each layer; which of its kv heads each of its query heads reads; its kv heads."""
    placement = minitp.Placement(config, tp.size)
    heads, kv_heads, ffn = placement.heads.of(tp.rank), placement.kv_heads(tp.rank), placement.ffn.of(tp.rank)
    q, kv, f = (slice(r.start * e, r.stop * e) for r, e in ((heads, E), (kv_heads, E), (ffn, 1)))
    mine = [{"q": W["q"][q], "k": W["k"][kv], "v": W["v"][kv], "o": W["o"][:, q], "up": W["up"][f],
             "down": W["down"][:, f]} for W in layers]
    return mine, OWNER[heads.start:heads.stop] - kv_heads.start, slice(kv_heads.start, kv_heads.stop)


def add(tp, term, site):
    return tp.all_reduce(minitp.Partial(term, tp), site=site, reason="add the ranks' partial sums")


def by_embedding(tp, x, past=(None, None)):
    (mine, owner, kv_heads), y, kept = share(tp), x, 0
    for W, before in zip(mine, past, strict=True):
        n = norm(y)
        k, v = extended(before and [old[:, :, kv_heads] for old in before], n, W)
        kept += k.nbytes + v.nbytes
        _, total, out = attend(heads_of(n, W["q"]), k, v, owner, first=k.shape[1] - x.shape[1])
        y = y + add(tp, project(out / total, W["o"]), "attention.o")
        y = y + add(tp, mlp(y, W), "mlp.down")
    return y, held(W for layer in mine for W in layer.values()), kept


# %% [markdown]
# Now all three on the same prompt. Beside what moves, the table has three columns of the rank with the most: weights
# and cache held, and its *work*: each weight that it holds is multiplied once for each token that it has. 100 % is what
# one rank alone holds and does.

# %%
def work(result):
    y, weights, _ = result
    return y.shape[0] * y.shape[1] * weights                                    # sequences · tokens · weights


def table(title, runs, tokens, cache):
    print(f"{title:10} sync points   payload            weights             cache   work")
    for name, found in runs.items():
        held_w, held_c = (max(result[place] for result in found.results) for place in (1, 2))
        most = max(work(result) for result in found.results) / (tokens * WEIGHTS)
        print(f"{name:10} {found.sync_points:11} {found.payload:7,} B {held_w:9,} B ={held_w / WEIGHTS:5.0%}"
              f" {held_c:8,} B ={held_c / cache:5.0%} {most:6.0%}")


prefill = {"batch": run(lambda tp: by_batch(tp, x)), "time": run(lambda tp: by_time(tp, x)),
           "embedding": run(lambda tp: by_embedding(tp, x))}
for name, axis in (("batch", 0), ("time", 1)):
    whole = np.concatenate([y for y, *_ in prefill[name].results], axis)
    assert np.allclose(whole, y_true, rtol=0, atol=1e-12)
assert all(np.allclose(y, y_true, rtol=0, atol=1e-12) for y, *_ in prefill["embedding"].results)
print(f"on {prefill['time'].ranks} ranks all three equal one rank, to rounding\n")
table("prefill", prefill, B * T, CACHE)
guess.check(prefill["time"].sync_points, "keys and values, gathered as one array, in every layer; nothing else.")

# %% [markdown]
# So "it can't be cut along time" is not true of a prefill, nor of training (its cost comes below): all tokens are
# known, and the cut needs one gather a layer. Here it even moves fewer bytes than the embedding cut: keys and values of
# 2 kv heads, against two sums of the whole hidden size. It shares out the work. What it does not share is the
# *weights*: every rank holds, and reads, all of them. Only the embedding cut makes them fewer.
#
# One thing is uneven in a time cut, beside the tokens: in attention later tokens look at more earlier ones.

# %%
def looked_at(tp):
    mine = minitp.Cut(T, tp.size).of(tp.rank)
    return sum(token + 1 for token in mine)


print("pairs of query and key on each rank:", run(looked_at).results)

# %% [markdown]
# ## Decode: one new token
#
# Now the next token. The cache holds `T` tokens; the pass has one token of each sequence.
#
# **Predict.** Cut along time, how much of the work (products with the weights) is left for a rank, in percent of what
# one rank alone does?

# %%
guess = predict("a rank's work in decode, cut along time, in percent", None)

# %% [markdown]
# The batch and embedding cuts go on as before, with their own part of the cache. The time cut has one token: nothing to
# cut. Every rank computes its q, k, v and its MLP, with all weights. But the *cache* has `T` entries, and each rank can
# attend to its own part of it. What comes out are `attend`'s three parts of a softmax, over some of the tokens: on rank
# r the largest score m_r, the sum s_r, the weighted values o_r. They can be merged exactly:
#
# `m = max(m_r)`, `s = Σ s_r · exp(m_r − m)`, `o = Σ o_r · exp(m_r − m)`, and the output is `o / s`.
#
# That is the "online softmax". Each rank sends `E + 2` numbers a head, however long its part of the cache is.

# %%
new = draw.normal(size=(B, 1, D))
y_next = one_rank(np.concatenate([x, new], axis=1))[0][:, -1:]


def merge(largest, total, out):
    """Parts of one softmax along axis 0 → the output."""
    scale = np.exp(largest - largest.max(0))
    return (out * scale).sum(0) / (total * scale).sum(0)


def decode_by_time(tp, y, past):
    mine, kept = minitp.Cut(T, tp.size).of(tp.rank), 0
    newest = tp.rank == tp.size - 1                                             # the last rank keeps the new token
    for W, before in zip(layers, past, strict=True):
        n = norm(y)
        k, v = (whole[:, mine.start:mine.stop + newest] for whole in extended(before, n, W))
        kept += k.nbytes + v.nbytes
        parts = np.concatenate(attend(heads_of(n, W["q"]), k, v, OWNER, first=T), axis=-1)      # (B, 1, H, 2 + E)
        parts = tp.all_gather(parts[None], axis=0, cut=minitp.Cut(tp.size, tp.size), site="attention.merge",
                              reason="merge the softmax over all parts of the cache")
        y = y + project(merge(parts[..., :1], parts[..., 1:2], parts[..., 2:]), W["o"])
        y = y + mlp(y, W)
    return y, WEIGHTS, kept


decode = {"batch": run(lambda tp: by_batch(tp, new, cache_true)),
          "time": run(lambda tp: decode_by_time(tp, new, cache_true)),
          "embedding": run(lambda tp: by_embedding(tp, new, cache_true))}
assert np.allclose(np.concatenate([y for y, *_ in decode["batch"].results]), y_next, rtol=0, atol=1e-12)
for name in ("time", "embedding"):
    assert all(np.allclose(y, y_next, rtol=0, atol=1e-12) for y, *_ in decode[name].results)
print(f"on {decode['time'].ranks} ranks all three equal one rank, to rounding\n")
table("decode", decode, B, CACHE * (T + 1) // T)
guess.check(round(100 * work(decode["time"].results[0]) / (B * WEIGHTS)), "all of it, on each rank: one token can't be "
                                                                          "cut.")

# %% [markdown]
# The time cut shares no work any more. Now look at the cache. The embedding cut can't hold less than one kv head: on 4
# ranks, 2 kv heads are held twice. The time cut has no copies, at any number of kv heads. (The rank that keeps the new
# token has a little more.) It pays for that with the parts that are merged: they are of all heads from all ranks, so
# its payload grows with the ranks. (Exercise 10.3 does it with one that doesn't.)
#
# Here is what each of 4 ranks holds, cut both ways; a box is as wide as the whole, and what is filled is held:

# %%
four, ranks = minitp.Placement(config, 4), range(4)
pictures.held([("MLP's weights, embedding cut", "columns", F, [four.ffn.of(rank) for rank in ranks]),
               ("MLP's weights, time cut", "columns", F, [range(F) for _ in ranks]),
               ("cached keys, embedding cut", "kv heads", K, [four.kv_heads(rank) for rank in ranks]),
               ("cached keys, time cut", "tokens", T, [minitp.Cut(T, 4).of(rank) for rank in ranks])])

# %% [markdown]
# ## The same for a large model
#
# Payloads follow from sizes. First the formulas, held against what your runs recorded; then Llama-3.1-70B with 2 bytes
# a number, one prompt of 8,192 tokens, on 8 and on 16 ranks.
#
# **Predict.** In its prefill, how many times the bytes of the time cut does the embedding cut move?

# %%
from minitp.plan import catalogue

llama = catalogue.model("llama-3.1-70b").config
print(f"{llama.layers} layers, hidden size {llama.hidden:,}, {llama.kv_heads} kv heads of {llama.head_size}")
guess = predict("prefill bytes, embedding cut ÷ time cut", None)


# %% tags=["C06"]

def payload(c, cut, ranks, batch, tokens, size):
    """Bytes of the sync points inside the layers of one pass; one new token is a decode step."""
    if cut == "embedding":
        return c.layers * 2 * batch * tokens * c.hidden * size
    if cut == "time" and tokens > 1:
        return c.layers * batch * tokens * 2 * c.kv_heads * c.head_size * size
    return c.layers * ranks * batch * c.heads * (c.head_size + 2) * size if cut == "time" else 0


for cut in prefill:
    assert payload(config, cut, prefill[cut].ranks, B, T, 8) == prefill[cut].payload
    assert payload(config, cut, decode[cut].ranks, B, 1, 8) == decode[cut].payload

prompt, weights = 8192, 2 * minitp.Placement(llama, 1).elements(0)
one_head = 2 * llama.layers * llama.head_size * prompt * 2                      # keys and values of one kv head, bytes
for p in (8, 16):
    placement = minitp.Placement(llama, p)
    print(f"Llama-3.1-70B on {p} ranks   prefill moves   decode moves   weights a rank   cache a rank")
    for cut in ("batch", "time", "embedding"):
        moved = [payload(llama, cut, p, 1, tokens, 2) for tokens in (prompt, 1)]
        own = 2 * placement.elements(0) if cut == "embedding" else weights
        kept = {"batch": llama.kv_heads, "time": llama.kv_heads / p, "embedding": len(placement.kv_heads(0))}[cut]
        print(f"  {cut:24} {moved[0] / 1e9:10.2f} GB {moved[1] / 1e6:11.2f} MB {own / 1e9:13.1f} GB"
              f" {kept * one_head / 1e9:11.3f} GB")
card = catalogue.machine("8xa100-80").device
print(f"a card, {card.name}: {card.memory / 1e9:.0f} GB")
guess.check(payload(llama, "embedding", p, 1, prompt, 2) / payload(llama, "time", p, 1, prompt, 2),
            "two sums of the hidden size, against the keys and values of the kv heads.")

# %% [markdown]
# Now the saying can be put right: it holds for weights and for decode steps, not for prompts and caches.
#
# **The weights decide.** Cut along batch or time, every rank holds all 141.1 GB, more than a card of 80 GB has. Only
# the embedding cut shares them out. A decode step reads every weight that a rank holds; so the embedding cut makes one
# token faster, and the time cut saves the reading of the cache alone. (With one sequence the batch cut leaves all ranks
# but one idle.)
#
# **In a decode step there is no time axis to cut**, but for the cache's. That one *can* be cut, exactly, with one
# exchange a layer that doesn't grow with the cache. It helps where the embedding cut stops: on 16 ranks the 8 kv heads
# are copied, and a rank's cache no longer shrinks. Along time it does.
#
# **A prefill can be cut along time**, and where kv heads are few that moves fewer bytes than the embedding cut. A token
# does *not* wait for the output of the one before: only *writing* new tokens does.
#
# So both cuts are used, together: the embedding for weights, and time (called *context parallelism*) for prompts and
# caches that are long. *Sequence parallelism* in Megatron's sense is a third thing: it keeps the embedding cut, and
# cuts along time only what lies between its syncs.
#
# How much does a decode step read, and how long does that take on 8 cards? By the planner's model:
#
# **Predict.** How many times as many bytes does a card read with a cut along time as with one along the embedding?

# %%
guess = predict("bytes read by a rank, time cut ÷ embedding cut", None)

# %% tags=["C06"]
from minitp.plan.job import Inference
from minitp.plan.layout import Layout
from minitp.plan.speed import decode as model_of

machine = catalogue.machine("8xh200")                     # 141 GB a card: all the weights, nearly
read = {}
print("one sequence, 8,192 tokens cached, a model:  read by a rank   reading     syncs")
for name, layout in (("embedding over 8", Layout(tp=8)), ("time over 8", Layout(cp=8)),
                     ("embedding over 4, time over 2", Layout(tp=4, cp=2))):
    step = model_of.token(catalogue.model("llama-3.1-70b"), layout, Inference(1, prompt, 1), machine, context=prompt)
    read[name] = step.bytes_read
    print(f"{name:43} {step.bytes_read / 1e9:12.1f} GB {1e3 * step.memory_s:7.1f} ms {1e3 * step.network_s:6.1f} ms")
guess.check(read["time over 8"] / read["embedding over 8"], "nearly all that is read are weights, and time cuts none.")

# %% [markdown]
# Cut along the embedding, a rank reads its share of the weights, and its share of the cache. Cut along time it reads
# all weights for the one token; what it saves, a part of this prompt's cache, is small beside them. Both cuts together
# lie in between.
#
# ## And to train?
#
# Every sync of the forward pass has its counterpart backward. In the embedding cut those are two more sums of the
# hidden size a layer (lesson 09); a rank then has the gradients of its own slices, and is done. In the time cut the
# queries of all ranks have used a rank's keys and values, so their gradients are added up and dealt out: a
# *reduce-scatter*, with the payload that the gather had. And since each rank has all weights but only its own tokens,
# the gradients of *all* weights are summed over the ranks, once a step. The batch cut has only this last sum.
#
# **Predict.** A step of training with that one prompt of 8,192 tokens: which moves fewer bytes, `time` or `embedding`?

# %%
guess = predict("fewer bytes in a training step of Llama-3.1-70B: time or embedding", None)

# %% tags=["C06"]
from minitp.trace.wording import size


def step_of(c, cut, numbers, batch, tokens, each):
    """Bytes of the sync points inside the layers, forward and backward, and of the sum of `numbers` gradients."""
    return 2 * payload(c, cut, 1, batch, tokens, each), 0 if cut == "embedding" else numbers * each


for name, c, *sizes in (("the small model", config, WEIGHTS // 8, B, T, 8),
                        ("Llama-3.1-70B", llama, weights // 2, 1, prompt, 2)):
    print(f"{name:16} syncs in layers, both passes   weights' gradients   together")
    moved = {cut: step_of(c, cut, *sizes) for cut in prefill}
    for cut, (in_layers, gradients) in moved.items():
        print(f"  {cut:14} {size(in_layers):>28} {size(gradients):>20} {size(in_layers + gradients):>10}")
guess.check(min(("time", "embedding"), key=lambda cut: sum(moved[cut])), "the weights' gradients outweigh one prompt.")
a_token = (moved["embedding"][0] - moved["time"][0]) / prompt                   # bytes that the time cut saves
print(f"the time cut moves less from about {moved['time'][1] / a_token:,.0f} tokens a step on")

# %% [markdown]
# So training can be cut along time, at the cost of all weights' gradients once a step: with one prompt that is more
# than the embedding cut moves, with a batch of many tokens it is less. (Computed from sizes, not run, and as payload:
# of a sum over the ranks a library sends about twice that. Where kv heads are copied, the embedding cut also sums the
# copies' gradients. And each rank of the time cut holds all weights, as before.)
#
# ## The same on real processes
#
# `minitp run -n 4 10_not_the_time_axis.py` (or `mpirun -n 4 python 10_not_the_time_axis.py`) runs the same cells on
# processes.
#
# ## Exercises
#
# **10.1** How many bytes of keys and values does a time cut gather in all layers for one prompt of 1000 tokens of
# SmolLM2-135M, 4 bytes a number? (Its sizes are printed.)

# %%
smol = catalogue.model("smollm2-135m").config
tokens = 1000
print(f"{smol.layers} layers, {smol.kv_heads} kv heads of {smol.head_size}, hidden size {smol.hidden}")
exercise("10.1", None)

# %% [markdown]
# **10.2** And how many bytes do the sums of the embedding cut come to, in the layers, for the same prompt?

# %%
exercise("10.2", None)


# %% [markdown]
# **10.3** Write attention of one new token over a cache that is cut along time. On this rank: `q` (h, E), already
# divided by √E, the same on every rank; `k` and `v` (S, E), its own part of one kv head's cache, at least one token.
# Return the output (h, E), whole on every rank. Use `tp.all_reduce_max(array, site=…, reason=…)` for the largest score
# and one `all_reduce` for sum and values: what you send must not depend on how many ranks there are.

# %%
def attend_to_parts(tp, q, k, v):
    ...


exercise("10.3", attend_to_parts)

# %% [markdown]
# **Next:** [11 · Who moves](11_who_moves.ipynb). Figures of these lessons are free to reuse.
