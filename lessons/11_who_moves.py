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
# # 11 · Who moves: the activations or the weights
#
# *A model is spread over machines. What travels between them at each step, and what stays?* About 35 minutes. You need
# lesson 02 (the two cuts), lesson 08 (a ring) and lesson 09 (what a backward pass sends).
#
# "So the parameters are spread among machines without moving them at each iteration." Two schemes give every rank
# one p-th of every weight. They are often taken for the same thing:
#
# - **tensor parallelism** (TP): every rank sees all tokens and multiplies with its own part of the weights;
# - **ZeRO-3** (also called fully sharded data parallelism): every rank has tokens of its own and multiplies with the
#   *whole* weights, which it borrows from the others just before use and drops right after.
#
# You will run one MLP both ways by hand, on ranks, forward and backward, and count what moves and what is held.
#
# Letters: `N` tokens of a pass (over all ranks), `D` hidden size, `F` size inside the MLP, `p` ranks, `b` bytes of a
# number. The MLP is that of the first layer of `tiny`, the small trained model that comes with minitp. It has three
# matrices: `y = (silu(x · W_gateᵀ) ∘ (x · W_upᵀ)) · W_downᵀ`, where silu is the bend and ∘ multiplies number by number.

# %%
import numpy as np

from minitp import Cut, Partial
from minitp.checkpoint import open_checkpoint
from minitp.layers.mlp import activate, slope
from minitp.lesson import begin, exercise, pictures, predict, run
from minitp.models import Bundled

begin("11")
checkpoint = open_checkpoint(Bundled("tiny").folder)
W = {p.name.split(".")[3]: checkpoint.read(p, tuple(slice(0, n) for n in p.shape))
     for p in checkpoint.parameters if p.name.startswith("layers.0.mlp.")}
F, D = W["gate"].shape
X = np.random.default_rng(11).normal(size=(384, D)).astype(np.float32)           # rows of tokens, float32: b = 4
print({name: matrix.shape for name, matrix in W.items()}, f" {sum(w.nbytes for w in W.values()):,} bytes in all")


def one_rank(x):
    g, u = x @ W["gate"].T, x @ W["up"].T                                        # (N, F) each
    return (activate(g, "silu", np) * u) @ W["down"].T                           # (N, D): the truth


# %% [markdown]
# To see what a rank holds, its arrays are put on a shelf that counts: what is on it is held; what is deleted has been
# given back. (What lives within one line only isn't counted.)

# %%
class Shelf(dict):
    """The arrays that a rank holds, by name; `steps`: their bytes together after each change."""

    def __init__(self, **arrays):
        super().__init__(arrays)
        self.steps = [self.bytes]

    @property
    def bytes(self):
        return sum(array.nbytes for array in self.values())

    def __setitem__(self, name, array):
        super().__setitem__(name, array)
        self.steps.append(self.bytes)

    def __delitem__(self, name):
        super().__delitem__(name)
        self.steps.append(self.bytes)


# %% [markdown]
# ## Tensor parallelism: weights stay, activations move
#
# As in lesson 02: `W_gate` and `W_up` by columns, `W_down` by rows, one all-reduce. Every rank has all `N` rows of `x`.
#
# **Predict.** How many bytes is the payload of that all-reduce for 12 tokens? (It is the whole y, whatever the number
# of ranks; D is in the shapes above.)

# %%
guess = predict("bytes of payload, tensor parallel, 12 tokens", None)


# %%
def tensor_parallel(tp, x):
    mine = Cut(F, tp.size).of(tp.rank)
    mine = slice(mine.start, mine.stop)
    s = Shelf(gate=W["gate"][mine], up=W["up"][mine], down=W["down"][:, mine])   # a p-th of each, for good
    s.rest = s.bytes                                                             # what it holds between passes
    s["x"] = x                                                                   # (N, D) whole
    s["g"], s["u"] = s["x"] @ s["gate"].T, s["x"] @ s["up"].T                    # (N, F_p) shard
    s["h"] = activate(s["g"], "silu", np) * s["u"]                               # (N, F_p) shard
    s["y"] = tp.all_reduce(Partial(s["h"] @ s["down"].T, tp), site="mlp.down",
                           reason="add the ranks' terms of y")                   # (N, D) whole
    return s


def told(s):
    return {"y": s["y"], "rest": s.rest, "peak": max(s.steps), "steps": s.steps}


few = X[:12]
tensor = run(lambda tp: told(tensor_parallel(tp, few)), ranks=4)
tensor.tell()
print("equal to one rank:", all(np.allclose(found["y"], one_rank(few), atol=1e-5) for found in tensor.results))
guess.check(tensor.payload, f"N · D · b = {len(few)} · {D} · 4: activations. No weight has moved.")

# %% [markdown]
# ## ZeRO-3: activations stay, weights move
#
# Now each rank gets its own rows of `x`, a p-th of the tokens, and a p-th of each matrix. *Which* p-th doesn't matter:
# the matrix is never multiplied in pieces, so the cut is for storage alone (here: rows as they lie). Before each
# product the rank **all-gathers** the matrix; after it the rank drops what isn't its own.
#
# **Predict.** How many bytes is the payload of its three gathers together, for the same 12 tokens?

# %%
guess = predict("bytes of payload, ZeRO-3, 12 tokens", None)


# %%
def gathered(tp, s, name):
    """The whole matrix, from everybody's share of its rows."""
    return tp.all_gather(s[f"{name}_p"], axis=0, cut=Cut(len(W[name]), tp.size), site=f"mlp.{name}",
                         reason="borrow the others' rows of this weight, for one product")


def zero_3(tp, x):
    rows = {name: Cut(len(matrix), tp.size).of(tp.rank) for name, matrix in W.items()}
    s = Shelf(**{f"{name}_p": W[name][mine.start:mine.stop] for name, mine in rows.items()})
    s.rest = s.bytes
    mine = Cut(len(x), tp.size).of(tp.rank)
    s["x"] = x[mine.start:mine.stop]                                             # (N_p, D): my tokens
    s["gate"] = gathered(tp, s, "gate")                                          # (F, D) whole
    s["g"] = s["x"] @ s["gate"].T                                                # (N_p, F)
    del s["gate"]
    s["up"] = gathered(tp, s, "up")
    s["u"] = s["x"] @ s["up"].T
    del s["up"]
    s["h"] = activate(s["g"], "silu", np) * s["u"]
    s["down"] = gathered(tp, s, "down")
    s["y"] = s["h"] @ s["down"].T                                                # (N_p, D), complete
    del s["down"]
    return s


zero = run(lambda tp: told(zero_3(tp, few)), ranks=4)
zero.tell()
y = np.concatenate([found["y"] for found in zero.results])
print("the ranks' rows, one below the other, equal to one rank:", np.allclose(y, one_rank(few), atol=1e-5))
twice = run(lambda tp: told(zero_3(tp, X[:24])), ranks=4)
print(f"payload for {len(few)} tokens: {zero.payload:,} B; for 24: {twice.payload:,} B")
guess.check(zero.payload, f"3 · F · D · b = 3 · {F} · {D} · 4: all weights, once. Tokens don't enter.")

# %% [markdown]
# (`shard(-2)`: cut along the last axis but one, the rows.) Same weights, same ranks, same answer: one all-reduce of
# activations against three all-gathers of weights. In ZeRO-3 no product meets a piece of a matrix, so no partial sum
# arises: every rank's rows of `y` are complete.
#
# ## Where they cross
#
# A payload isn't yet what a rank sends: round a ring (lesson 08), an all-gather sends (p − 1)/p of it and an all-reduce
# twice that, as it is a reduce-scatter and an all-gather. So the forward pass of this MLP sends, per rank:
#
# | | bytes sent |
# |---|---|
# | TP | 2 · (p − 1)/p · `N·D·b` |
# | ZeRO-3 | (p − 1)/p · `3·F·D·b` |
#
# **Predict.** At how many tokens are the two equal?

# %%
guess = predict("tokens at which both send the same", None)

# %%
from minitp.plan.network.collectives import cost


def sent(found):
    """Bytes that a rank sends, were each collective a ring's; `volume` is how many times the payload that is."""
    return round(sum(event.payload * cost(event.op, "ring", found.ranks).volume for event in found.events))


even = 3 * F / 2                                          # of 2·N·D = 3·F·D
print(f"{'tokens':>6} {'TP sends':>10} {'ZeRO-3 sends':>13}")
for n in (12, 48, int(even), 192, 384):
    both = [run(lambda tp, way=way, n=n: told(way(tp, X[:n])), ranks=4) for way in (tensor_parallel, zero_3)]
    print(f"{n:6} {sent(both[0]):10,} {sent(both[1]):13,}")
guess.check(even, "2·N·D = 3·F·D, so N = 3F/2: neither the hidden size nor the number of ranks matters.")

# %% [markdown]
# TP's bytes grow with the tokens, ZeRO-3's don't know them. A single new token (a decode step) moves almost nothing
# under TP; under ZeRO-3 it moves the whole model. A large training batch is the other way round.
#
# ## What a rank holds
#
# **Predict.** Both hold a p-th of the weights between passes. Which holds more at its peak, in a pass of 96 tokens:
# `TP` or `ZeRO-3`?

# %%
guess = predict("who holds more at the peak", None)

# %%
from minitp.view.lines import Lines

n, ways = int(even), {"TP": tensor_parallel, "ZeRO-3": zero_3}
last = {}
for tokens in (len(few), n):
    for name, way in ways.items():
        found = run(lambda tp, way=way, tokens=tokens: told(way(tp, X[:tokens])), ranks=4).results[0]
        print(f"{tokens} tokens, {name:6}: at rest {found['rest']:,} bytes, at its peak {found['peak']:,}, "
              f"y {found['y'].shape}")
        last[name] = found
guess.check(max(last, key=lambda name: last[name]["peak"]),
            "TP has x and y of all tokens on every rank; ZeRO-3 its own, and a whole matrix for a moment.")
pictures.lines(Lines({name: list(enumerate(found["steps"])) for name, found in last.items()},
                     "arrays made and dropped on rank 0, in order", steps=True))

# %% [markdown]
# With few tokens the borrowed matrix counts most, with many the activations. Those inside the MLP (g, u, h) are as
# large either way: all tokens times a p-th of `F`, or a p-th of the tokens times all of `F`. In the picture, of the
# longer pass, the three teeth of ZeRO-3 are the borrowed matrices. Real implementations gather a whole layer at once,
# and the next one while this one computes: fewer, larger messages, and higher teeth.
#
# ## Backward
#
# TP: the gradient of `x` comes back partial, one all-reduce (f, lesson 09). The weights' gradients are shards where
# they are: nothing is sent.
#
# ZeRO-3: the weights were dropped, so each is gathered **again**. And each rank has the weight gradient of *its own
# tokens* only: a partial sum of full size. Everybody needs just the rows that it stores: a **reduce-scatter**.
#
# **Predict.** How many collectives does ZeRO-3's MLP need, forward and backward together?

# %%
guess = predict("collectives of ZeRO-3, forward and backward", None)


# %%
def inner(dh, s):
    """Gradients at gate and up from that at h."""
    return dh * slope(s["g"], "silu", np) * s["u"], dh * activate(s["g"], "silu", np)


def tensor_parallel_step(tp, x, dy):
    s = tensor_parallel(tp, x)
    dg, du = inner(dy @ s["down"], s)                                            # (N, F_p)
    dW = {"gate": dg.T @ x, "up": du.T @ x, "down": dy.T @ s["h"]}               # of my part: complete, all tokens
    dx = tp.all_reduce(Partial(dg @ s["gate"] + du @ s["up"], tp), site="mlp.up",
                       reason="add what comes back from the ranks' columns")
    return {"dx": dx, **dW}


def zero_3_step(tp, x, dy):
    s = zero_3(tp, x)
    mine = Cut(len(x), tp.size).of(tp.rank)
    dy = dy[mine.start:mine.stop]

    def shared_out(name, term):
        """My rows of a weight's gradient, all ranks' tokens added."""
        return tp.reduce_scatter(Partial(term, tp), axis=0, cut=Cut(len(W[name]), tp.size), site=f"mlp.{name}",
                                 reason="add the gradients of all ranks' tokens; each keeps the rows it stores")

    dW, dx = {}, 0
    dg, du = inner(dy @ gathered(tp, s, "down"), s)                              # (N_p, F); the matrix is dropped
    dW["down"] = shared_out("down", dy.T @ s["h"])
    for name, d in (("gate", dg), ("up", du)):
        dx = dx + d @ gathered(tp, s, name)                                      # (N_p, D), complete
        dW[name] = shared_out(name, d.T @ s["x"])
    return {"dx": dx, **dW}


dy = np.random.default_rng(12).normal(size=(n, D)).astype(np.float32)
steps = {"one rank": run(lambda tp: tensor_parallel_step(tp, X[:n], dy), ranks=1, threads=True),
         "TP": run(lambda tp: tensor_parallel_step(tp, X[:n], dy), ranks=4),
         "ZeRO-3": run(lambda tp: zero_3_step(tp, X[:n], dy), ranks=4)}
truth = steps["one rank"].results[0]
laid = {"TP": {"gate": 0, "up": 0, "down": 1}, "ZeRO-3": {"gate": 0, "up": 0, "down": 0, "dx": 0}}
for name, axes in laid.items():
    results = steps[name].results
    whole = {what: np.concatenate([one[what] for one in results], axis) for what, axis in axes.items()}
    whole = {"dx": results[0]["dx"]} | whole
    same = all(np.allclose(whole[what], truth[what], rtol=1e-3, atol=1e-3) for what in truth)
    ops = [event.op for event in steps[name].events]
    print(f"{name:7} {' '.join(f'{ops.count(op)} {op}' for op in dict.fromkeys(ops))}: sent {sent(steps[name]):,} "
          f"bytes; dx and all gradients equal to one rank: {same}")
guess.check(steps["ZeRO-3"].sync_points, "three gathers forward; three gathers and three reduce-scatters backward.")

# %% [markdown]
# Forward and backward TP sends twice its forward bytes, ZeRO-3 three times: the crossing moves up by half. At the
# forward pass's crossing ZeRO-3 now sends more.
#
# ## A real model
#
# The same count for whole models, by minitp's planner (a model; numbers of 2 bytes, and rings again). First one new
# token of Llama-2 70B on 8 cards; then a training step of Llama-2 7B on 8 cards, and **pipeline parallelism** beside
# them: there each card keeps whole layers and passes on the activations at its border.
#
# **Predict.** To make one token, how many times as many bytes would a card move if the weights travelled (ZeRO-3)
# instead of the activations (TP)?

# %%
guess = predict("bytes by ZeRO-3 over bytes by TP, one token of a 70B", None)

# %% tags=["C05"]
from minitp.plan import catalogue
from minitp.plan.job import Training
from minitp.plan.layout import Layout
from minitp.plan.questions import QUESTIONS
from minitp.plan.questions.base import named
from minitp.plan.speed import traffic
from minitp.trace.wording import size

numbers = named(QUESTIONS, "what-moves").ask().numbers
print(f"one token of a 70B on 8 cards: {size(round(numbers['token sent']))} of activations, or "
      f"{size(round(numbers['weights moved']))} of weights")
guess.check(round(numbers["weights moved"] / numbers["token sent"]), "the weights, against a vector per sync point.")

model, machine = catalogue.model("llama-2-7b"), catalogue.machine("8xa100-80")
layouts = {"TP (activations)": Layout(tp=8), "ZeRO-3 (weights)": Layout(dp=8, zero=3),
           "pipeline (activations)": Layout(pp=8)}


def step_bytes(layout, tokens_each):
    """What a card sends in a training step of 8 sequences, forward and backward."""
    return sum(row.sent for row in traffic.step(model, layout, Training(8, tokens_each, 1), machine))


lengths = [2**n for n in range(0, 15)]
moved = {name: [(8 * n, step_bytes(layout, n)) for n in lengths] for name, layout in layouts.items()}
print(f"\na training step of {model.name} on 8 cards")
print(f"{'tokens':>8}" + "".join(f"{name:>24}" for name in layouts))
for at in (0, 7, 11, 14):
    print(f"{8 * lengths[at]:8,}" + "".join(f"{size(round(moved[name][at][1])):>24}" for name in layouts))
tokens, bytes_tp = moved["TP (activations)"][-1]
crossing = tokens * moved["ZeRO-3 (weights)"][-1][1] / bytes_tp
print(f"TP and ZeRO-3 cross at {crossing:,.0f} tokens a step")
pictures.lines(Lines(moved, "tokens of a training step", mark=(crossing, "TP and ZeRO-3 send the same")))

# %% [markdown]
# (They cross earlier than the MLP alone would, at `9F/4` tokens: attention has as many syncs as the MLP, and fewer
# weights.)
#
# So the sentence at the top is **true of tensor and pipeline parallelism**: the parameters are dealt out once and never
# move again, activations do. It is **not true of ZeRO-3**: there the parameters move in every pass, twice in a training
# step, and their gradients once. Pipelines move least of all: activations cross a card's border once in each direction,
# not twice in every layer.
#
# Which is better? TP for few tokens (generation) and fast links: it syncs inside every layer and must wait. ZeRO-3 for
# many tokens a step: a layer's weights don't depend on the tokens, so they can be fetched ahead of time while the layer
# before computes. Large runs use both: TP inside a machine, ZeRO or pipelines between (lesson 14).
#
# ## The same on real processes
#
# `minitp run -n 4 11_who_moves.py` (or `mpirun -n 4 python 11_who_moves.py`) runs the same cells on 4 processes.
#
# ## Exercises
#
# **11.1** At how many tokens does a *forward* pass of Llama-2 7B's MLP (gate, up and down, as above) send as many bytes
# by TP as by ZeRO-3?

# %%
print(f"Llama-2 7B: D = {model.config.hidden}, F = {model.config.ffn}")
exercise("11.1", None)

# %% [markdown]
# **11.2** Its weights are of 2 bytes, and 4 ranks run it by ZeRO-3, matrix by matrix as above. How many bytes of
# weights does a rank hold at its peak: its own share of all three matrices, and the whole one that it has just
# gathered? (They are of one size, and 4 divides it.)

# %%
exercise("11.2", None)


# %% [markdown]
# **11.3** One linear layer by ZeRO-3: this rank's tokens `x_p` (N_p, in), its rows `W_p` of a weight that has `rows`
# rows in all, dealt out by `Cut(rows, tp.size)`. Return this rank's tokens of `y = x · Wᵀ`.

# %%
def linear(tp, x_p, W_p, rows):
    ...


exercise("11.3", linear)


# %% [markdown]
# **11.4** The gradient of that weight: `dy_p` (N_p, rows) and `x_p` are of this rank's tokens. Return the rows of `dW`
# that this rank stores, of all tokens, with as few bytes as possible.

# %%
def weight_gradient(tp, x_p, dy_p):
    ...


exercise("11.4", weight_gradient)

# %% [markdown]
# **Next:** [13 · Memory](13_memory.ipynb). Figures of these lessons are free to reuse.
