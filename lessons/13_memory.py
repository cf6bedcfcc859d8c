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
# # 13 · Memory: to run, to train
#
# *How many bytes does a model take, to run it and to train it, and what does a machine of 8 × 80 GB hold?* About 40
# minutes. You need lesson 09 (gradients; the optimizer) and lesson 11 (ZeRO-3: weights that are dealt out).
#
# Memory is counted in **bytes a parameter**, term by term. You will hold the count against what minitp's own training
# really keeps in its arrays, and then use it for models and machines that we don't have.
#
# Letters: `P` parameters, `s` tokens of a sequence, `b` sequences at once, `h` hidden size, `a` heads.
#
# ## To run it: 2 bytes. And which GB?
#
# Big models are stored and multiplied in half precision, mostly **bf16** (bfloat16: the range of float32, with 8
# significant bits instead of 24): 2 bytes a number. A GB is 10⁹ bytes, a GiB is 2³⁰ bytes, 7 % more.
#
# **Predict.** GPT-3 has 96 layers and about 175 billion parameters. How many GB are its weights in bf16?

# %%
from itertools import product

import numpy as np
from ml_dtypes import bfloat16, finfo

from minitp.lesson import begin, exercise, pictures, predict, run
from minitp.plan import catalogue
from minitp.plan.questions import QUESTIONS
from minitp.plan.questions.base import named
from minitp.plan.units import both

begin("13")
guess = predict("GB of GPT-3's weights in bf16", None)

# %%
model = catalogue.model("gpt-3-175b")
P, layers = model.parameters, model.config.layers
card = catalogue.machine("8xa100-80").device
print(f"{model.name}: {layers} layers, {P:,} parameters; weights in bf16 {both(2 * P)}")
print(f"a card of 80 GB by its name: {both(card.memory)}; as it reports: {both(card.memory_real)}")
print(f"1 GiB is {100 * (2**30 / 10**9 - 1):.0f} % more than 1 GB; float32 has {np.finfo(np.float32).nmant + 1} "
      f"significant bits, bf16 {finfo(bfloat16).nmant + 1}")
guess.check(round(2 * P / 1e9, 1), f"2 bytes · {P / 1e9:.1f}e9.")

# %% [markdown]
# A card "of 80 GB" reports 80 GiB. Both sizes are used in the field, so below there are two counts of cards: *nominal*
# (by the name) and *real*. Many a table that seems 7 % off prints one unit and means the other.
#
# ## To train it: what is kept for each parameter
#
# - the **gradient**: one number a parameter;
# - the **moments** of the optimizer, Adam: running means of the gradient and of its square, in float32;
# - a float32 **master copy** of the weights, where the working ones are bf16: an update is often too small to change a
#   bf16 number (you will see it at the end).
#
# Together with the weights these are the training's **states**. (It also keeps **activations**, what the forward pass
# leaves for the backward pass; they come later.)
#
# "Do they train in single precision?" Mostly not: products and messages are bf16, what is added up stays float32. That
# is **mixed precision**.
#
# **Predict.** How many bytes a parameter does mixed precision keep, with gradients in bf16?

# %%
guess = predict("bytes a parameter: bf16 weights and gradients, float32 master copy and two moments", None)

# %% tags=["C09", "C10"]
from minitp.plan.job import MIXED, MIXED_FP32_GRADIENTS, PURE_BF16, Precision
from minitp.plan.memory.states import bare
from minitp.plan.rows import total

schemes = {"to run it, bf16": Precision(2, 0, 0, 0), "mixed precision": MIXED,
           "gradients in float32": MIXED_FP32_GRADIENTS, "gradients in both": Precision(gradients=2 + 4),
           "all in bf16": PURE_BF16}
for name, scheme in schemes.items():
    rows = bare(P, precision=scheme)
    terms = " + ".join(f"{row.bytes // P} {row.term}" for row in rows)
    print(f"{name:20} {total(rows) // P:2} B a parameter = {terms}\n{'':20} {both(total(rows))}, "
          f"{total(rows) / (2 * P):g} × its file in bf16")
estimate = named(QUESTIONS, "ten-to-twenty").ask().numbers["states zero-2"]
print(f"DeepSpeed, a library for training, counts {estimate:g} in its own estimate for one card")
precision = named(QUESTIONS, "precision").ask().numbers
print(f"products in bf16 on {card.name}: {precision['speedup']:g} × as fast as in float32, by its data sheet")
guess.check(int(MIXED.states), "2 + 2 working, 4 + 4 + 4 for the optimizer.")

# %% [markdown]
# So "training takes 10 to 20 times the parameter count" is right, **in bytes: 16, 18 or 20 a parameter by scheme**,
# before activations; 8 to 10 times the file that one runs. All in bf16 would be 8, and pays with lost updates. Half
# precision makes products quick and messages small, but not the states: in float32 alone they are 4 + 4 + 8, 16 as
# well, since no second copy is needed. And none of this knows the batch yet.
#
# ## What minitp's own training holds
#
# A formula is worth something once it is held against arrays. Below `tiny`, the small trained model that comes with
# minitp, takes one step of training; every rank counts the bytes of its own arrays, by kind. The planner is asked for
# the same, and doesn't see the arrays.
#
# First what the ranks do (`learner` has a model, its weights and an optimizer; `step` is a step of training):

# %%
from minitp.checkpoint import open_checkpoint
from minitp.config import TINY
from minitp.model import Transformer
from minitp.models import Bundled
from minitp.placement import Placement
from minitp.plan.memory import own
from minitp.train.config import TrainConfig
from minitp.train.initial import make_learner
from minitp.train.memory import Held
from minitp.weights import load_weights

checkpoint = open_checkpoint(Bundled("tiny").folder)
text = np.frombuffer(b"Memory is a sum of terms, and each of them grows with something of its own. " * 4, np.uint8)


def windows(batch, tokens, first=0):
    """(batch, tokens + 1) ids of text; tiny's tokens are bytes."""
    return np.stack([text[at:at + tokens + 1] for at in range(first, first + batch)]).astype(np.int64)


def learner_of(tp, **settings):
    """tiny on this rank, ready to learn."""
    placement = Placement(TINY, tp.size)
    weights = load_weights(checkpoint, placement, tp)
    config = TrainConfig.from_dict({"train": settings, "run": {"save_every": 0}})
    return make_learner(config, Transformer(TINY, placement, tp), weights)


def held(learner, batch, tokens):
    """Bytes by kind that this rank holds in a step of training, and those that the planner says it does."""
    step = learner.step(0, windows(batch, tokens))
    counted = Held.of(learner.weights, learner.gradients, learner.optimizer, step.activations).to_row()
    rows = own.training(learner.model.placement, learner.model.group.rank, batch, tokens,
                        dtype="bf16" if learner.optimizer.bf16 else "float32", recompute=learner.passes.recompute)
    return counted, own.held(rows)


# %% [markdown]
# NumPy has no products in bf16, so in bf16 mode minitp keeps the *rounded* weights in float32 arrays. Gradients are
# summed in float32.
#
# **Predict.** How many bytes a parameter is that, weights, gradients and optimizer together?

# %%
guess = predict("bytes a parameter in minitp's bf16 mode", None)

# %% tags=["C10"]
for row in own.training(Placement(TINY, 4), 0, 2, 32, dtype="bf16"):
    if row.kind not in ("activations", "logits"):
        print(f"planned on rank 0: {row.kind:9} {row.term:26} {row.bytes:7,} bytes")
for dtype in ("float32", "bf16"):
    found = run(lambda tp, dtype=dtype: held(learner_of(tp, dtype=dtype), 2, 32), ranks=4).results
    counted = found[0][0]
    numbers = counted["weights"] // 4                                   # that rank 0 holds, 4 bytes each
    states = {kind: counted[kind] // numbers for kind in ("weights", "gradients", "optimizer")}
    print(f"{dtype:7} rank 0 holds {numbers:,} parameters at "
          + " + ".join(f"{each} {kind}" for kind, each in states.items()) + f" = {sum(states.values())} bytes")
    print(f"{'':7} counted {counted}; the planner says the same on every rank: {all(a == b for a, b in found)}")
guess.check(sum(states.values()), "4 rounded weights, 4 gradients, 12 for master copy and moments.")

# %% [markdown]
# To the byte, and activations too. A training run's trace has the counted bytes in its header. Here is the trace of a
# run that comes with minitp; `minitp plan check` does the same with a run of your own.

# %%
from minitp.runs import samples
from minitp.trace.file import Trace

recorded = Trace.read(next(one.path for one in samples() if one.name.startswith("tiny-training")))
print("recorded on rank 0:", recorded.run["memory"][0])
print("the planner says the same on every rank:", recorded.run["memory"] == list(map(own.held, own.of_trace(
    recorded.run))))

# %% [markdown]
# ## Activations: by batch, by length, by what is computed again
#
# What the forward pass leaves for the backward pass depends on the tokens, not on the optimizer. **Recomputation**
# trades it for time: keep less, and compute it again in the backward pass. *Selective*: only attention's scores,
# `s × s` numbers for each head. *Full*: all of a layer but its input.
#
# **Predict.** By what factor do the activations of a step grow with sequences twice as long, nothing computed again?

# %%
guess = predict("activations with 128 tokens over those with 64", None)

# %% tags=["C10"]
AGAIN, SIZES = ("none", "selective", "full"), ((1, 64), (2, 64), (1, 128))


def activations(tp):
    learners = [learner_of(tp, dtype="bf16", recompute=again) for again in AGAIN]
    return [[kinds["activations"] for kinds in held(learner, *size)] for learner, size in product(learners, SIZES)]


found = run(activations, ranks=4).results[0]
kept = dict(zip(product(AGAIN, SIZES), (counted for counted, _ in found), strict=True))
print("bytes on rank 0    sequences × tokens: " + "".join(f"{f'{batch} × {tokens}':>10}" for batch, tokens in SIZES))
for again in AGAIN:
    one, more, longer = (kept[again, size] for size in SIZES)
    print(f"computed again: {again:10} {'':14} {one:10,}{more:10,}{longer:10,}   × {more / one:.2f} for twice the "
          f"sequences, × {longer / one:.2f} for twice the length")
print("the planner says the same:", all(counted == planned for counted, planned in found))
guess.check(round(kept["none", (1, 128)] / kept["none", (1, 64)], 2),
            "most terms grow with the tokens, attention's scores with their square.")

# %% [markdown]
# Twice the sequences is nearly twice the bytes (the mask that hides later tokens is one for all sequences). Twice the
# length is more than twice; without the scores, nearly twice. *Full* saves little here, as `tiny` has two layers: at
# its fullest moment one of them has been run again and has all of itself, scores too. A large model has many layers,
# and keeps only the inputs of all but one.
#
# For large models Korthikanti et al. (2022) count `s·b·h · (34 + 5·a·s/h)` bytes a layer: numbers of 2 bytes, the
# scores, and a byte for each number that **dropout** (setting some to zero at random) may hit. minitp's planner counts
# array by array. Do they agree, and what became of it since?

# %% tags=["C10"]
from minitp.plan import memory
from minitp.plan.job import Training
from minitp.plan.layout import Layout
from minitp.plan.rows import by_kind

s, b, h, a = 2048, 1, model.config.hidden, model.config.heads
formula = layers * s * b * h * (34 + 5 * a * s / h)
jobs = {"as in the paper": Training(b, s, b, stored=True, dropout=True),
        "no dropout, scores not kept": Training(b, s, b), "the same, 8 sequences": Training(8, s, 8),
        "full recomputation": Training(b, s, b, recompute="full")}
print(f"{model.name}, {b} sequence of {s:,} tokens; by the formula of 2022 {both(formula)}")
for name, job in jobs.items():
    size = by_kind(memory.worst(model, Layout(), job)[1])["activations"]
    print(f"{name:28} {both(size):22} {size / P:.2g} B a parameter, {size / formula:.3f} of the formula")

# %% [markdown]
# The two counts agree. Since then dropout has gone, and attention's GPU programs compute the scores again as they go:
# about a quarter is left. Beside 16 bytes a parameter one sequence is little; hundreds at once would not be. So a
# step's batch is worked off in **micro-batches** of a few sequences, one after the other, whose gradients are added up.
#
# ## Is it parameters × batch?
#
# "Total memory isn't proportional to parameters × batch, but it grows with both." Right: it is a **sum**. The planner
# takes it apart: it computes every term again for a model twice as wide, and for more sequences, and looks which grew.
#
# **Predict.** Llama-2 7B is trained with one sequence of 2,048 tokens at once. At twice its width it has about 4 × the
# parameters. With 8 × the sequences besides, by what factor does the memory grow?

# %%
guess = predict("memory of 4 × the parameters and 8 × the sequences over what it was", None)

# %% tags=["C13"]
from minitp.view.plan import Asked
from minitp.view.plan_memory import growing, planned

asked = Asked(task="train", model="llama-2-7b", tp=1, step=1, micro=1, seq=2048, wider=1, more=3)
grown = growing(planned(asked), asked.wider, asked.more)
first, last = grown.bars[0], grown.bars[-1]
for (kind, grows), size in first.parts.items():
    print(f"{kind:12} grow {grows:16} {size / 1e9:6.1f} GB; in the end × {last.parts[kind, grows] / size:.2f}")
for bar in grown.bars:
    print(f"{bar.name:18} {bar.bytes / 1e9:6.1f} GB: × {bar.bytes / first.bytes:.2f}. Were it parameters × sequences: "
          f"× {bar.proportional / first.bytes:.2f}")
guess.check(round(last.bytes / first.bytes, 2), "each term has a factor of its own; see the first lines.")
pictures.growing(asked)

# %% [markdown]
# Weights, gradients and optimizer know the parameters alone. Logits know the batch (and the vocabulary). **One term has
# the product in it, activations**, and even that one with the model's *width*, not its parameters: twice the width is
# four times the parameters. (The black line is where a bar would end were it parameters × sequences; where it lies
# above the picture, an arrow says how far.) The app's page *Memory and machines* has this picture with two sliders.
#
# ## 8 × 80 = 640 GB: what fits
#
# The usual machine has 8 such cards with fast links between them. Full **fine-tuning** (training a finished model
# further, every weight of it) keeps the same states as training from the start; only the number of tokens differs.
# (Adapters such as LoRA train a few added weights, and keep states for these alone.) The cards share everything: by TP,
# a pipeline, or **ZeRO**, which deals out over copies of the model the optimizer's states (ZeRO-1), the gradients, too
# (ZeRO-2), or the weights as well (ZeRO-3, lesson 11).
#
# **Predict.** Which is the largest model that such a machine can *train*: `13B`, `33B`, `65B` or `175B`?

# %%
guess = predict("largest model that 8 × 80 GB can train: 13B, 33B, 65B or 175B", None)

# %% tags=["C08"]
numbers = named(QUESTIONS, "one-machine").ask().numbers
print(f"the machine: {both(numbers['bytes'])} by name, {both(numbers['bytes real'])} as its cards report")
names = [name.removesuffix(" runs") for name in numbers if name.endswith(" runs")]
print("                  weights, 2 B   runs?     states, 16 B   trains or fine-tunes, with activations?")
for name in names:
    size = catalogue.model(name).parameters / 1e9
    runs, trains = ("yes" if numbers[f"{name} {what}"] else "no" for what in ("runs", "trains"))
    print(f"{name:15}{2 * size:13,.0f} GB   {runs:3}{16 * size:18,.0f} GB   {trains}")
fits = {what: [name for name in names if numbers[f"{name} {what}"]][-1] for what in ("runs", "trains")}
print(f"largest that runs: {fits['runs']}; largest that trains: {fits['trains']}")
guess.check(fits["trains"].rpartition("-")[2].upper(), "by the best layout that the planner finds, with a reserve kept "
                                                       "free. How long it takes is lesson 15.")

# %% [markdown]
# To run, everything up to BLOOM; to train or fine-tune, up to 33B. For 65B the states alone are more than all 8 cards
# have.
#
# ## "175B × (2 weights + 2 gradients) = 700 GB; two machines might do"
#
# **Predict.** How many cards of 80 GB (nominal) do the states of GPT-3 take, 16 bytes a parameter, no activations yet?

# %%
guess = predict("cards of 80 GB for the states of GPT-3", None)

# %% tags=["C15"]
numbers = named(QUESTIONS, "two-machines").ask().numbers
print(f"said were 700 GB. 2 + 2 bytes: {both(numbers['bytes said'])}, "
      f"{numbers['machines said']:.2f} machines of 640 GB")
for each in (16, 18):
    print(f"with the optimizer, {each} bytes: {both(numbers[f'bytes {each}'])}, {numbers[f'cards {each}']:g} cards "
          f"nominal, {numbers[f'cards {each} real']:g} real")
print(f"do 2 machines train it? {'yes' if numbers['two do'] else 'no'}; the smallest number that the planner finds: "
      f"{numbers['machines that do']:g} machines of 8 cards, activations and reserve included")
print(f"does 1 machine run it? {both(2 * P)} of weights, and beside them {numbers['sequences beside']:g} sequences of "
      "2,048 tokens")
print(f"weights and gradients are {numbers['bytes said'] / numbers['bytes 16']:.0%} of the states at 16 bytes")
guess.check(int(numbers["cards 16"]), f"16 · {P / 1e9:.1f}e9 / 80e9, rounded up.")

# %% [markdown]
# 700 GB is right for what it counts, **and not enough**: the optimizer's 12 bytes are left out, three quarters of the
# states. These are 2.79 TB to 3.14 TB: 33 to 40 cards *before activations*, by real or nominal size and by 16 or 18
# bytes. To *run* it, one machine does.
#
# ## Are single-precision gradients sensible?
#
# A gradient is a sum: over the micro-batches of a step, then over ranks. With 8 significant bits the numbers between
# 256 and 512 lie 2 apart.
#
# **Predict.** A bf16 number starts at 0, and 1 is added to it a thousand times. What does it say?

# %%
guess = predict("a thousand ones, summed in bf16", None)

# %% tags=["C16"]
def summed(terms, kind):
    """Added up one by one, the running sum rounded to `kind` each time; and the share of terms that changed nothing."""
    running, lost = np.zeros(terms.shape[1:], kind), 0
    for term in terms:
        before, running = running, (running + term.astype(kind)).astype(kind)
        lost += ((before == running) & (term != 0)).sum()
    return running.astype(np.float64), lost / np.count_nonzero(terms)


ones = np.ones((1000, 1), np.float32)
print("a thousand ones:", {kind.__name__: float(summed(ones, kind)[0][0]) for kind in (bfloat16, np.float32)})
guess.check(float(summed(ones, bfloat16)[0][0]), "257 lies halfway between 256 and 258, and is rounded to 256.")

# %% [markdown]
# Ones are the worst case: real gradients have both signs. Below are those of `tiny`'s head, one of each micro-batch.
#
# **Predict.** 128 such gradients are added up in bf16. How many percent of the terms will change nothing?

# %%
guess = predict("percent of terms lost, 128 gradients summed in bf16", None)


# %% tags=["C16", "C09"]
from minitp.train.step import accumulate, split_batch


def gradients_of(tp, micro_batches):
    """The gradient at tiny's head of each micro-batch."""
    learner, found = learner_of(tp, dtype="float32"), []
    for at in range(micro_batches):
        learner.gradients.zero()
        accumulate(learner.model, learner.loss, learner.weights, learner.gradients, split_batch(windows(1, 8, at), 1),
                   passes=learner.passes)
        found.append(learner.gradients["head.weight"].copy())
    return np.stack(found)


terms = run(lambda tp: gradients_of(tp, 128), ranks=1, threads=True).results[0]
shares = {}
for n, kind in ((8, bfloat16), (32, bfloat16), (128, bfloat16), (128, np.float32)):
    right, (found, lost) = summed(terms[:n], np.float64)[0], summed(terms[:n], kind)
    error, shares[n, kind] = np.linalg.norm(found - right) / np.linalg.norm(right), lost
    print(f"{n:3} added up in {kind.__name__:8}: {lost:.0%} of the terms changed nothing, the sum is {error:.1%} off")
kept = [name for name, one in catalogue.runs().items() if one.training.precision.gradients == 4]
print(f"float32 gradients: {MIXED_FP32_GRADIENTS.states - MIXED.states:g} bytes a parameter more, for {model.name} "
      f"{both(precision['more bytes'])}. Runs of the catalogue that kept them: {', '.join(kept)}")
print(f"a step of BLOOM sums {precision['micro-batches']:g} micro-batches on each copy of the model")
guess.check(round(100 * shares[128, bfloat16]),
            "beside a large sum a small term is less than half of the sum's last digit.")

# %% [markdown]
# Many additions are lost, and the longer the sum, the more it is off. So **yes, they are sensible**, for 2 bytes a
# parameter: what is *added up* is kept in float32, what is *multiplied or sent* may be bf16. BLOOM and the largest
# Llama were trained so, and minitp does it, too. Norms, softmax and the loss are computed in float32 for the same
# reason. It holds for weights as well: an update is added to them.
#
# **Predict.** One step of Adam changes every weight of a matrix of `tiny`. How many percent of them are still the same
# when rounded to bf16?

# %%
guess = predict("percent of bf16 weights that a step leaves as they were", None)


# %% tags=["C16"]
def one_step(tp):
    """Shares of one matrix that a step changes: of its master copy, and of the rounded weights."""
    learner = learner_of(tp, dtype="bf16")
    name = "layers.0.mlp.down.weight"
    before = learner.optimizer.master[name].copy(), learner.weights[name].copy()
    learner.step(0, windows(4, 32))
    after = learner.optimizer.master[name], learner.weights[name]
    changed = [float((old != new).mean()) for old, new in zip(before, after, strict=True)]
    return changed, learner.schedule.rate(0)


(master, rounded), rate = run(one_step, ranks=1, threads=True).results[0]
print(f"a first step at a rate of {rate:.1g} changes {master:.0%} of the master copy, {rounded:.0%} of the rounded "
      "weights")
guess.check(round(100 * (1 - rounded)), "without the master copy those updates would be lost.")

# %% [markdown]
# That is what the 4 bytes of the master copy are for: small updates add up there until a bf16 number moves.
#
# ## The same on real processes
#
# `minitp run -n 4 13_memory.py` (or `mpirun -n 4 python 13_memory.py`) runs the same cells on 4 processes. For
# another model and machine: `minitp plan llama-65b --machine 8xa100-80 --task train`, or the app's page *Memory and
# machines*.
#
# ## Exercises
#
# **13.1** How many GB (not GiB) are the states of LLaMA 65B in mixed precision with gradients in float32? Its
# parameters are printed below.
#
# **13.2** And how many cards of 80 GB (nominal) are that, before activations?

# %%
print(f"LLaMA 65B: {catalogue.model('llama-65b').parameters:,} parameters")
exercise("13.1", None)
exercise("13.2", None)


# %% [markdown]
# **13.3** `pieces` is a list of this rank's gradients, one for each of its micro-batches, all in bf16. Return their sum
# over micro-batches and ranks, in float32, with one sync point. Nothing may get lost.

# %%
def total_gradient(tp, pieces):
    ...


exercise("13.3", total_gradient)


# %% [markdown]
# **13.4** States needn't be kept p times. This is ZeRO-1 for the simplest optimizer, `m ← DECAY · m + g` and
# `w ← w − RATE · m`: every rank has the whole weights `w` and the gradient `g` of its own tokens, but only its slice
# `m_p` of the moment, by `Cut(len(w), tp.size)`. Return the new `w` (whole) and the new `m_p`, with as few bytes as
# possible.

# %%
DECAY, RATE = 0.9, 0.1


def zero_1(tp, w, g, m_p):
    ...


exercise("13.4", zero_1)

# %% [markdown]
# **Next:** [14 · Networks](14_networks.ipynb). Figures of these lessons are free to reuse.
