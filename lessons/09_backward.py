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
# # 09 · Backward: the same cuts, the other way
#
# *Training needs gradients. What do the ranks owe each other on the way back?* About 40 minutes. You need lesson 02
# (column and row cuts), lesson 05 (logits that stay cut over the vocabulary) and lesson 07 (copies of kv heads); and
# that gradients are found by the chain rule.
#
# Letters: `D` hidden size, `F` size inside the MLP, `L` layers, `p` ranks. `dx` is the gradient of the loss at x: how
# much the loss changes for a small change of each number of x. It has x's shape.

# %%
import numpy as np

import minitp
from minitp.context import Context
from minitp.gradients import Gradients
from minitp.layers import ColumnParallelLinear, RowParallelLinear, TensorBoundary
from minitp.lesson import begin, exercise, pictures, predict, run
from minitp.saved import Saved

begin("09")
D, F = 4, 7
rng = np.random.default_rng(9)
x = rng.normal(size=(1, 2, D))                              # (batch, tokens, D)
W_up, W_down, b = rng.normal(size=(F, D)), rng.normal(size=(D, F)), rng.normal(size=D)
dy = rng.normal(size=x.shape)                               # the gradient at y, as the rest of a model would send it


def mlp(x, W_up, W_down, b):
    return np.tanh(x @ W_up.T) @ W_down.T + b


# %% [markdown]
# ## One rank, by hand
#
# The rule for y = x Wᵀ: `dx = dy · W`, and `dW = dyᵀ · x`. A function such as tanh multiplies by its slope, 1 − tanh².
# Whether such formulas are right can be *measured*: change one number a little, and see how the loss changes (**finite
# differences**). For that we need a loss; Σ dy · y is one whose gradient at y is dy.

# %%
def backward_by_hand(x, W_up, W_down, dy):
    h = np.tanh(x @ W_up.T)                                 # (1, 2, F)
    du = (dy @ W_down) * (1 - h * h)
    return {"x": du @ W_up, "W_up": du[0].T @ x[0], "W_down": dy[0].T @ h[0], "b": dy[0].sum(0)}


def finite_differences(values, name, step=1e-5):
    found = np.zeros_like(values[name])
    for at in np.ndindex(found.shape):
        up, down = values[name].copy(), values[name].copy()
        up[at] += step
        down[at] -= step
        change = mlp(**values | {name: up}) - mlp(**values | {name: down})
        found[at] = (dy * change).sum() / (2 * step)
    return found


values = {"x": x, "W_up": W_up, "W_down": W_down, "b": b}
true = backward_by_hand(x, W_up, W_down, dy)
for name in values:
    apart = abs(finite_differences(values, name) - true[name]).max()
    print(f"d{name}: {true[name].size} numbers, formulas and finite differences agree to 8 decimals: {apart < 1e-8}")

# %% [markdown]
# ## f and g
#
# Now cut: `W_up` by columns, `W_down` by rows. Forward that is one sync point, the sum of y. Backward every rank begins
# with the whole dy, and wants the whole dx and the gradients of its own shards.
#
# **Predict.** How many sync points has the MLP backward?

# %%
guess = predict("sync points of the MLP's backward", None)

# %% [markdown]
# Two places of the pass touch all ranks. The paper that introduced this cut ([Shoeybi et al.,
# Megatron-LM](https://arxiv.org/abs/1909.08053)) calls them f and g:
#
# | | forward | backward |
# |---|---|---|
# | **f**, where the whole x enters the columns | nothing | all-reduce |
# | **g**, where the partial y leaves the rows | all-reduce | nothing |
#
# Why g is free backward: y is a sum of the ranks' terms. A change of any term changes y by as much. So each term's
# gradient is dy itself, and every rank has it.
#
# Why f is not: each rank multiplied the *same* x by *its own* columns. A change of x changes the loss in all these
# ways, so dx is a sum, and each rank knows its own term: **partial**.
#
# In minitp f and g are a `TensorBoundary`: a pass `enter`s by f and `leave`s by g, and back it goes through
# `leave_backward` and `enter_backward`. The layers are lesson 02's. What their backward needs of the forward pass they
# put into `Saved`, and weights' gradients are added up in `Gradients`.

# %%
def split_mlp(boundary_type):
    def on_rank(tp):
        mine = minitp.Cut(F, tp.size).of(tp.rank)
        own = slice(mine.start, mine.stop)
        weights = {"mlp.up.weight": W_up[own], "mlp.down.weight": W_down[:, own], "mlp.down.bias": b}
        up = ColumnParallelLinear("mlp.up", tp, len(mine))
        down = RowParallelLinear("mlp.down", tp, len(mine), "add the ranks' partial sums of y", bias=True)
        boundary, ctx, gradients = boundary_type(tp), Context(saved=Saved()), Gradients(weights)
        with tp.recorder.mark("forward"):                                        # so the record knows the phase
            h = np.tanh(up.forward(boundary.enter(x), weights, ctx))
            y = down.add_bias(boundary.leave(down.product(h, weights, ctx), "mlp.down", down.reason), weights)
        with tp.recorder.mark("backward"):
            dh, of_down = down.backward_input(boundary.leave_backward(dy), weights, ctx)
            dx, of_up = up.backward_input(dh * (1 - h * h), weights, ctx)        # dx is a partial sum
            dx = boundary.enter_backward(dx, "mlp.up", "add the ranks' partial gradients of x")
            down.backward_weight(of_down, gradients)
            up.backward_weight(of_up, gradients)
        return y, {"x": dx, "W_up": gradients["mlp.up.weight"], "W_down": gradients["mlp.down.weight"],
                   "b": gradients["mlp.down.bias"]}
    return run(on_rank, ranks=4)


def true_part(name, rank, p):
    mine = minitp.Cut(F, p).of(rank)
    return {"W_up": true["W_up"][mine.start:mine.stop], "W_down": true["W_down"][:, mine.start:mine.stop]}.get(
        name, true[name])


right = split_mlp(TensorBoundary)
for event in right.events:
    print(f"{event.phase:8} {event.op} at {event.site}, {event.payload} B: {event.reason}")
for name in values:
    close = all(np.allclose(d[name], true_part(name, rank, right.ranks), rtol=1e-12)
                for rank, (_, d) in enumerate(right.results))
    print(f"d{name} on every rank, shape on rank 0 {right.results[0][1][name].shape}: equal to one rank's: {close}")
guess.check(sum(event.phase == "backward" for event in right.events), "f's. The weights' gradients need none.")

# %% [markdown]
# A layer's backward is in two parts. `backward_input` gives dx, which the layer before waits for. `backward_weight`
# adds to the weights' gradients and *never* sends anything: a shard's gradient is a shard, of the same cut. Gradients
# stay where the weights are.
#
# ## The bias: whole stays whole
#
# The bias is added after the sum, once, by every rank to the same whole y.
#
# **Predict.** Each rank computes a gradient of b from the whole dy. By which factor is it off if the ranks add these
# up?

# %%
guess = predict("db, summed over the ranks ÷ the true one", None)

# %%
summed = sum(d["b"] for _, d in right.results)
print("true:", true["b"].round(4), " summed over the ranks:", summed.round(4))
guess.check(round(float((summed / true["b"]).mean())), "it was whole already, the same on every rank. Whole things are "
                                                       "not summed.")

# %% [markdown]
# ## What if f is forgotten?
#
# Nothing stops, nothing is refused. Here is a boundary whose backward keeps the rank's own term of dx.
#
# **Predict.** Which of this MLP's gradients will be wrong: `x`, `W_up` or `W_down`?

# %%
guess = predict("the gradient that goes wrong", None)


# %%
class WithoutF(TensorBoundary):
    def enter_backward(self, partial, site, reason):
        return partial.consume(self.group)[0]               # this rank's term, taken for the whole


forgetful = split_mlp(WithoutF)
wrong = [name for name in values if not all(np.allclose(d[name], true_part(name, rank, forgetful.ranks))
                                            for rank, (_, d) in enumerate(forgetful.results))]
print("wrong:", wrong)
for rank, (_, d) in enumerate(forgetful.results):
    print(f"rank {rank}: dx is off by {100 * np.linalg.norm(d['x'] - true['x']) / np.linalg.norm(true['x']):.0f} %")
guess.check(", ".join(wrong), "f stands before the layer: it is what comes earlier that gets the wrong dx.")

# %% [markdown]
# All weights of *this* layer learn rightly, so a test of one layer alone, looking at its weights, passes. In a model
# all layers before it are wrong. You will see how much, below.
#
# ## Five column cuts in a layer
#
# A layer has five column cuts: q, k and v (which make the heads' queries, keys and values) read one x; gate and up read
# another. Each of the five has a partial dx to send back.
#
# **Predict.** With how few all-reduces does a layer's backward manage?

# %%
guess = predict("all-reduces of a layer's backward", None)

# %%
sizes = {"q": 8, "k": 4, "v": 4, "gate": 7, "up": 7}
matrices = {name: rng.normal(size=(rows, D)) for name, rows in sizes.items()}
backs = {name: rng.normal(size=(1, 2, rows)) for name, rows in sizes.items()}


def back_through(add_first):
    def on_rank(tp):
        results = []
        for sharing in (("q", "k", "v"), ("gate", "up")):
            terms, ctx = [], Context(saved=Saved())
            for name in sharing:
                mine = minitp.Cut(sizes[name], tp.size).of(tp.rank)
                weights = {f"{name}.weight": matrices[name][mine.start:mine.stop]}
                layer = ColumnParallelLinear(name, tp, len(mine))
                layer.forward(x, weights, ctx)
                terms.append(layer.backward_input(backs[name][..., mine.start:mine.stop], weights, ctx)[0])
            if add_first:
                terms = [sum(terms[1:], start=terms[0])]    # partial + partial: free
            results.append(sum(tp.all_reduce(term, site=f"before {', '.join(sharing)}",
                                             reason="add the ranks' partial gradients of x") for term in terms))
        return results
    return run(on_rank, ranks=4)


one_each, together = back_through(add_first=False), back_through(add_first=True)
print(f"one each: {one_each.sync_points} sync points, {one_each.payload} B;  added first: {together.sync_points}, "
      f"{together.payload} B;  the same:", np.allclose(one_each.results[0], together.results[0], rtol=1e-12))
guess.check(together.sync_points, "partial + partial is partial, and adding is free: one f before attention, one "
                                  "before the MLP.")

# %% [markdown]
# **Two all-reduces a layer, not five**, as many as forward. In minitp q, k and v are one matrix on each rank, and so
# are gate and up: the product itself adds the terms.
#
# ## A whole model
#
# The trained model that comes with minitp takes one real training step: forward, loss, backward, optimizer. The logits
# stay cut over the vocabulary, so forward has 2L + 1 sync points: two a layer, and the embedding's. The loss is −log of
# the share that softmax gives to the true next token, and takes three small all-reduces, of one number a token each:
# the largest logit, the sum of the exponentials, the true token's logit.
#
# **Predict.** With L = 2, how many sync points has backward?

# %%
guess = predict("sync points of the backward pass", None)

# %%
from minitp.checkpoint import open_checkpoint
from minitp.layers import VocabParallelCrossEntropy
from minitp.models import CATALOG, Bundled
from minitp.train.optimizer import AdamW
from minitp.train.step import Passes, accumulate, split_batch, train_step
from minitp.weights import load_weights

tiny = open_checkpoint(Bundled(CATALOG["tiny"].name).folder)
text = b"The value of the expression is a new object. If the "
windows = np.frombuffer(text, np.uint8)[:52].reshape(4, 13).astype(int)           # 4 texts of 12 tokens and the next


def learner(tp, source):
    """This rank's part of the model: layers, weights, and a store for gradients."""
    placement = minitp.Placement(source.config, tp.size)
    weights = load_weights(source, placement, tp, dtype=np.float64)
    return minitp.Transformer(source.config, placement, tp), weights, Gradients(weights)


def pieces(model, gradients):
    """This rank's part of every gradient, by the weight's name in the file (some lie in one array: q, k, v)."""
    homes = model.placement.homes(model.group.rank)
    return {name: gradients[array.name][rows] for name, (array, rows) in homes.items()}


def one_step(tp):
    model, weights, gradients = learner(tp, tiny)
    loss = VocabParallelCrossEntropy(tp, model.placement.vocab)
    told = train_step(model, loss, weights, gradients, AdamW(weights), split_batch(windows, 1), 0.001, step=0,
                      passes=Passes(np.float64))
    return told.loss, pieces(model, gradients)


alone = run(one_step, ranks=1, threads=True).results[0]
step = run(one_step, ranks=4)
part = ["loss" if event.site.startswith("loss.") else event.phase for event in step.events]
print({name: part.count(name) for name in dict.fromkeys(part)})
table = minitp.Placement(tiny.config, step.ranks)
print(f"loss {step.results[0][0]:.4f}; on one rank {alone[0]:.4f}; all {len(alone[1])} gradients equal in 9 digits:",
      all(np.allclose(of_rank[name], whole[table.slices(table.parameter(name), rank)], rtol=1e-9, atol=1e-12)
          for rank, (_, of_rank) in enumerate(step.results) for name, whole in alone[1].items()))
guess.check(part.count("backward"), "what was sent forward is free backward, and the other way round: two f a layer, "
                                    "and one before the head. The embedding has none: token ids have no gradient.")

# %% [markdown]
# The optimizer (what changes each weight by its gradient) works on every rank's own weights and sends nothing. Its one
# sync is for the length of the whole gradient: one that is too long is shortened, by the same factor everywhere.
#
# A recorded training run, just where the last layer's MLP sends its partial gradients through f. Read it from right to
# left: the same dy on all ranks, each rank's own gradients of its shards, and the gate where the four terms of a number
# of dx are added.

# %%
from minitp.runs import samples
from minitp.trace.file import Trace

recorded = next(sample for sample in samples() if sample.name.startswith("tiny-training"))
pictures.watch(Trace.read(recorded.path), "The player, paused in a backward pass of a training step: the ranks' "
               "partial gradients before the last layer's MLP are added up.", at="token=1&sync=1&phase=2")

# %% [markdown]
# Now the same model without its f: each block gets the boundary that forgets.
#
# **Predict.** In the *first* layer, by how many % is the gradient of the MLP's `down` off, on rank 0? (The length of
# the error ÷ the length of the true gradient; a rough guess will do.)

# %%
guess = predict("% off in the first layer", None)

# %%
from dataclasses import replace


def step_without_f(tp):
    model, weights, gradients = learner(tp, tiny)
    model.blocks = [replace(block, boundary=WithoutF(tp)) for block in model.blocks]
    accumulate(model, VocabParallelCrossEntropy(tp, model.placement.vocab), weights, gradients,
               split_batch(windows, 1), passes=Passes(np.float64))
    return pieces(model, gradients)


def off(name):
    whole = alone[1][name][table.slices(table.parameter(name), 0)]
    return 100 * float(np.linalg.norm(broken.results[0][name] - whole) / np.linalg.norm(whole))


broken = run(step_without_f, ranks=4)
for name in ("layers.1.mlp.down.weight", "layers.1.mlp.gate.weight", "layers.1.attention.o.weight",
             "layers.0.mlp.down.weight", "layers.0.attention.q.weight"):
    print(f"{name:27} on rank 0: {off(name):.0f} % off")
norms = [of_rank["layers.0.attention_norm.weight"] for of_rank in broken.results]
print("a norm's gradient is the same on all ranks:", all(np.allclose(norms[0], one) for one in norms))
guess.check(round(off("layers.0.mlp.down.weight")), "its dy lacks the other ranks' terms of the layer above.")

# %% [markdown]
# The last layer's MLP is right, as before. All that comes earlier is wrong by far, and worse: the norms, which every
# rank holds whole, now get another gradient on each rank: from the first step on the ranks train different models.
# There was no error and no hang. This is why minitp's tests hold every gradient against one rank *and* against finite
# differences through all collectives, at sizes that don't divide.
#
# ## Copies of kv heads: one more debt, paid once
#
# Lesson 07: where several ranks hold a kv head, each of them uses it for its own query heads. So each copy's gradient
# is a term of a sum, and the copies must learn the same, or they cease to be copies. But it is not on the way back to
# x: no layer waits for it. It is only owed before the optimizer's step.
#
# **Predict.** On 5 ranks k and v of 2 layers have copies. With how few all-reduces can all of them be paid?

# %%
guess = predict("all-reduces for the copies", None)

# %%
from minitp.train.reduce import sum_copies
from minitp.weights import RandomSource

odd = minitp.ModelConfig(hidden=12, layers=2, heads=9, kv_heads=3, head_size=4, ffn=10, vocab=23, positions=16)
few = windows % odd.vocab
KEY = "layers.0.attention.k.weight"


def with_copies(tp):
    model, weights, gradients = learner(tp, RandomSource(odd))
    accumulate(model, VocabParallelCrossEntropy(tp, model.placement.vocab), weights, gradients, split_batch(few, 1),
               passes=Passes(np.float64))
    before = pieces(model, gradients)[KEY].copy()
    with tp.recorder.mark("optimizer"):
        sum_copies(gradients, model.placement, tp)
    return before, pieces(model, gradients)[KEY]


one_rank = run(with_copies, ranks=1, threads=True).results[0][1]
copied = run(with_copies, ranks=5, threads=True)
for rank in (0, 1):
    before, after = copied.results[rank]
    print(f"rank {rank} holds kv heads {[*minitp.Placement(odd, 5).kv_heads(rank)]}: a number of kv head 0's gradient "
          f"{before[0, 0]:+.6f}, after the sum {after[0, 0]:+.6f}")
print(f"on one rank {one_rank[0, 0]:+.6f}")
owed = [event for event in copied.events if event.phase == "optimizer"]
for event in owed:
    print(f"{event.op} at {event.site}, {event.payload:,} B: {event.reason}")
guess.check(len(owed), "one, whatever the number of layers.")

# %% [markdown]
# All gradients of all copies lie in one buffer, with zeros where a rank has no copy, and all ranks sum it. (Only the
# ranks that share a head need to. But such groups would overlap: ranks 0 and 1 share a kv head, and 1 and 2 another.)
#
# That is all: 2L + 1 forward, 3 for the loss, 2L + 1 backward; once a step the copies' sum, where there are copies, and
# the norm. minitp predicts the list from the placement, and its tests hold every training run against it.
#
# ## The same on real processes
#
# With MPI installed, `minitp run -n 4 09_backward.py` (or `mpirun -n 4 python 09_backward.py`) runs these cells on 4
# processes. With 3 the trained model's step has the copies' sum, too: look at the line of its counts.
#
# ## Exercises
#
# **9.1** How many sync points have forward, loss and backward of SmolLM2-135M together, in one step of training? (All
# texts of the step go through at once.)

# %%
from minitp.plan import catalogue

print("layers of SmolLM2-135M:", catalogue.model("smollm2-135m").config.layers)
exercise("9.1", None)


# %% [markdown]
# **9.2** Write the backward pass of the MLP above, without bias. You get x and dy (tokens, D), which are whole; `h`,
# your own part of tanh(x · W_upᵀ); and your own shards of both matrices, stored (out, in). Return dx (whole), dW_up,
# dW_down.

# %%
def mlp_backward(tp, x, h, W_up, W_down, dy):
    ...


exercise("9.2", mlp_backward)


# %% [markdown]
# **9.3** q, k and v are three column cuts of one x. From your own parts of dq, dk, dv (tokens, rows) and your shards of
# the matrices give the whole dx, with one sync.

# %%
def before_qkv(tp, dq, dk, dv, W_q, W_k, W_v):
    ...


exercise("9.3", before_qkv)

# %% [markdown]
# **Next:** [10 · Not the time axis](10_not_the_time_axis.ipynb). Figures of these lessons are free to reuse.
