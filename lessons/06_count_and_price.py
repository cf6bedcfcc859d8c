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
# # 06 · Count and price the sync points
#
# *How often must the ranks wait for one another to write a token, and what does that cost?* About 40 minutes. You need
# lessons 02 (one sync for a column cut and a row cut) and 04 (attention is such a pair, too).
#
# A **sync point** is a collective that the mathematics needs: nobody can go on before it is done. A **pass** is once
# through all layers. Before them stands the **embedding**, a table with a vector for each token; after them the
# **head**, which gives a score (*logit*) for each token that might come next. Both are cut over the ranks, too
# (lesson 05).
#
# A **prefill** is the pass over the whole prompt; it gives the first new token. Every further token is a **decode**
# pass: one new token goes in, and what earlier tokens left in attention, their keys and values, is read from a cache.
#
# Letters: `L` layers, `B` sequences at once, `T` tokens of each in a pass, `D` hidden size, `p` ranks.
#
# You may have heard: "the price of cutting a model is communication: for each token about as many sync points, one
# after the other, as it has layers". Let us count, and then price.

# %%
from dataclasses import replace

from minitp import Placement, Transformer
from minitp.checkpoint import open_checkpoint
from minitp.generate import Generation, Request
from minitp.lesson import begin, exercise, pictures, predict, run
from minitp.models import resolve
from minitp.weights import RandomSource, load_weights

begin("06")
tiny = open_checkpoint(resolve("tiny").folder)            # a small model that comes with minitp; a byte is a token
print(f"{tiny.config.layers} layers, hidden size {tiny.config.hidden}")


# %%
def generate(source, prompts, new):
    """What each rank does: load its slices, then the prompts in one pass, then a pass for each further token."""
    def on_rank(tp):
        placement = Placement(source.config, tp.size)
        model, weights = Transformer(source.config, placement, tp), load_weights(source, placement, tp)
        return [step.tokens for step in Generation(model, weights, Request(prompts, max_tokens=new))]
    return on_rank


def by_pass(found):
    """The sync points of each pass, on rank 0."""
    passes = {}
    for event in found.events:
        passes.setdefault(f"{event.phase} {event.step}", []).append(event)
    return passes


# %% [markdown]
# ## Count
#
# **Predict.** How many sync points has one decode pass of this model, with its 2 layers?

# %%
guess = predict("sync points of one decode pass of tiny", None)

# %%
short = run(generate(tiny, [tuple(b"The list")], new=3), ranks=4)
for event in by_pass(short)["decode 1"]:
    print(f"{event.site:22} {event.op:11} {event.reason}")
counts = {name: len(events) for name, events in by_pass(short).items()}
print(counts)
guess.check(counts["decode 1"], "two in each layer, one for the embedding before them and one for the logits after.")

# %% [markdown]
# Attention is a column cut and a row cut: one sum. The MLP is another pair: one more. Embedding and head add one each
# at the ends. That is **2L + 2 for each forward pass**, and it follows from sizes alone. So minitp has it as a closed
# form: every collective of a run, foretold in order, with its shape and bytes. First it is held against the run above;
# then it counts models that no laptop holds. And a run of a real model comes with minitp: SmolLM2-135M on 3 processes,
# recorded.

# %% tags=["C02"]
from minitp.plan import catalogue
from minitp.runs import samples
from minitp.trace.check import compare
from minitp.trace.file import Trace
from minitp.trace.predict import GenerationPlan, predict as foretell


def closed_form(config, passes, batch=1, ranks=4):
    """All collectives of passes [(kind, tokens of each sequence), …] over `batch` sequences. Loading the weights has
    none: each rank reads its own slices."""
    return foretell(GenerationPlan(Placement(config, ranks), "slice", "float32", batch, passes, choices=len(passes)))


foretold = closed_form(tiny.config, [("prefill", 8), ("decode", 1), ("decode", 1)], ranks=short.ranks)
print(f"{len(foretold)} collectives of tiny's run foretold; differences from the recorded: "
      f"{compare(short.trace, foretold) or 'none'}\n")

one_token = [("decode", 1)]
print("model           layers   sync points of a decode pass")
for name in ("tiny", "smollm2-135m", "llama-3.1-8b", "llama-3.1-70b", "gpt-3-175b"):
    config = catalogue.model(name).config
    print(f"{name:15} {config.layers:6} {len(closed_form(config, one_token)):6}")

recorded = Trace.read(next(sample.path for sample in samples() if sample.name.startswith("smollm2")))
where = [(event.phase, event.step) for event in recorded if event.rank == 0 and event.plane == "data"]
passes = {pass_: where.count(pass_) for pass_ in where if pass_[0] in ("prefill", "decode")}
print(f"\nthe recorded run of SmolLM2-135M: {len(passes)} passes; sync points of each: {[*passes.values()]}")

# %% [markdown]
# So "about as many as layers" is short by a factor of two: it is 2L + 2. SmolLM2's 30 layers give 62, closed form and
# recording alike; 80 layers give 162. Here is one decode pass of that recorded run, a lane for each rank. Every dark
# stripe is a sync point: there all ranks are in the same collective, and whoever came early has waited (hatched).

# %%
pictures.lanes(recorded, "decode", 5,
               f"One decode pass of SmolLM2-135M on {len(recorded.ranks)} ranks, a lane for each rank: "
               f"{passes['decode', 5]} times all of them compute, wait for the last one, and move.")

# %% [markdown]
# ## Per pass, not per token
#
# The other half of the saying is "for each token".
#
# **Predict.** tiny again, now with a prompt of 100 tokens: how many sync points has its prefill?

# %%
guess = predict("sync points of a prefill of 100 tokens", None)

# %% tags=["C02"]
kinds = {
    "decode, 1 sequence": ([tuple(b"The list")], "decode 1", 1),
    "prefill, 100 tokens": ([tuple(b"0123456789" * 10)], "prefill 0", 100),
    "decode, 8 sequences": ([tuple(b"The list")] * 8, "decode 1", 8),
}
counted = {}
print("pass                  tokens  sync points  for each token   payload")
for kind, (prompts, name, tokens) in kinds.items():
    events = by_pass(run(generate(tiny, prompts, new=2), ranks=4))[name]
    counted[kind] = len(events)
    payload = sum(event.payload for event in events)
    print(f"{kind:20} {tokens:7} {len(events):12} {len(events) / tokens:15.2f} {payload:9,} B")
guess.check(counted["prefill, 100 tokens"], "a sync moves an array of all tokens at once: more bytes, not more syncs.")

# %% [markdown]
# A pass has 2L + 2 whatever it carries. A prompt of 100 tokens has as many as one token; 8 sequences decoded together
# share the same 6. What grows is the payload. (The prompt's is not 100 times as large: the head's logits are wanted for
# its last token only.) Some programs guess a few tokens ahead and check them all in one pass, which is called
# *speculation*.
#
# **Predict.** SmolLM2 checks 5 guesses in a pass. How many sync points is that for each of the 5 tokens?

# %%
guess = predict("sync points for each of 5 guesses", None)

# %% tags=["C02"]
smol = catalogue.model("smollm2-135m").config
for what, batch, tokens in (("1 token", 1, 1), ("a prompt of 100", 1, 100), ("8 sequences", 8, 1), ("5 guesses", 1, 5)):
    syncs = len(closed_form(smol, [("decode", tokens)], batch))
    print(f"{what:16} {syncs} sync points, {syncs / (batch * tokens):5.2f} for each token")
guess.check(syncs / (batch * tokens), "to check 5 guesses is a pass over 5 tokens, and they share its syncs.")

# %% [markdown]
# All four passes have the same syncs. What differs is how many tokens share them.
#
# ## A block that needs one
#
# When is "about as many as layers" right? In some models (GPT-J, PaLM) attention and MLP stand side by side: both read
# the same x, and both results are added to x. Both results are partial sums, and partial + partial is partial: they can
# be added *before* the sum over ranks.
#
# **Predict.** With such blocks, how many sync points has a pass of tiny's size?

# %%
guess = predict("sync points of a pass with parallel blocks", None)

# %% tags=["C02"]
beside = replace(tiny.config, parallel_block=True)        # nobody has trained this one: its weights are random
sides = run(generate(RandomSource(beside), [tuple(b"The list")], new=2), ranks=4)
for event in by_pass(sides)["decode 1"]:
    print(f"{event.site:22} {event.reason}")
guess.check(len(by_pass(sides)["decode 1"]), "L + 2: one in each layer, and the two ends.")
palm = catalogue.model("palm-540b").config
print(f"PaLM-540B: {palm.layers} layers, {len(closed_form(palm, one_token))} sync points")

# %% [markdown]
# So the saying is right for such blocks: L + 2. For all others it is 2L + 2; and both are for each *pass*, so a token
# pays for all of it only where it goes alone.
#
# ## Price
#
# A message takes two kinds of time: **α**, the latency, seconds until the first byte is there, whatever the size; and
# **β**, seconds for each byte, one over the bandwidth. For `n` bytes that is `α + n·β`. At `n½ = α/β` both are equal: a
# smaller message mostly waits, a larger one mostly carries.
#
# A sync point inside the layers carries `B·T·D` numbers. Where does one token of Llama-3.1-70B (numbers of 2 bytes)
# stand? Four links, fast to slow: *NVLink* joins the cards inside one machine; *InfiniBand* joins machines, and lets a
# card write into another's memory (*RDMA*); *GbE* is Ethernet, of 10 or 1 Gbit/s. (Lesson 14 is about them.)

# %%
from minitp.plan.links import LINKS
from minitp.plan.network.curve import sync_point

big = catalogue.model("llama-3.1-70b")
_, payload = sync_point(big, tokens=1, bytes_each=2)      # the collective's name, and its bytes
_, of_prompt = sync_point(big, tokens=2048, bytes_each=2)
print(f"payload of a sync point: {payload:,.0f} B for 1 token, {of_prompt:,.0f} B for a prompt of 2048\n")
print("link                          α       bandwidth       n½")
for link in LINKS:
    half = link.latency_s * link.bytes_per_s
    print(f"{link.name:25} {link.latency_s * 1e6:4.1f} µs {link.bytes_per_s / 1e9:9.2f} GB/s {half:10,.0f} B")

# %% [markdown]
# One token lies below n½ of all but the slowest, a prompt far above all. But an all-reduce over `p` ranks is several
# messages, one after the other (lesson 08 builds it from them), and the library that does it on GPUs, NCCL, needs time
# to start it. minitp's planner (`minitp plan`, which knows machines you don't have) counts all that. It is a **model**;
# hollow marks are what others measured.
#
# In the picture you see time by payload, over 8 cards of one machine. The star is one token, the square the prompt, the
# dotted line n½, now of the whole all-reduce. NCCL chooses among orders of messages (*ring*, *tree*) and among ways to
# send one (*LL* waits least, *Simple* carries most, *LL128* is in between). The thick line is what it takes.

# %%
from minitp.view.plan import Asked
from minitp.view.plan_network import lines, measured_line, network

found = network(Asked(show="network", model="llama-3.1-70b", machine="8xa100-80", tp=8, prompt=2048))
words = lines(found)[1:4]                                 # n½, the token, the prompt
print(*words, measured_line(found), sep="\n")
pictures.payloads(found, "Time of an all-reduce by payload, both axes logarithmic (a model): flat on the left, where "
                         "latency counts, rising on the right, where bytes count. " + " ".join(words))

# %% [markdown]
# Flat means: half the bytes would take as long. A decode step lies far in the flat part. A prefill lies in the rising
# part.
#
# ## Which one rules?
#
# Beside the syncs a rank has work of its own: a decode step *reads* all its weights for a single token (bytes ÷ memory
# bandwidth), a prefill *computes* (operations ÷ speed). So four times are compared: reading, computing, and the syncs'
# latency and moving, which together are the network's. First 8 cards in one machine, then the same cards over slower
# links.
#
# **Predict.** For a decode step on NVLink: which takes longest, `memory`, `compute` or `network`?

# %%
guess = predict("bound of a decode step on NVLink", None)

# %%
from minitp.plan.job import Inference
from minitp.plan.layout import Layout
from minitp.plan.speed import decode

job = Inference(batch=1, prompt=2048, new=64)
print(f"{'a model, in ms':26}{'memory:':>10}{'compute:':>10}{'network:':>10}\n"
      f"{'':26}{'reading':>10}{'computing':>10}{'latency':>10}{'moving':>10}   takes longest")
bounds = {}
for link in ("nvlink3", "ib-hdr", "ethernet-10g", "ethernet-1g"):
    machine = catalogue.machine("8xa100-80", link=link)
    for step in (decode.token, decode.prefill):
        time = step(big, Layout(tp=8), job, machine)
        name = f"{'decode' if step is decode.token else 'prefill'} over {link}"
        bounds[name] = time.bound
        shares = "".join(f"{1e3 * s:10,.1f}" for s in (time.memory_s, time.compute_s, time.latency_s, time.moving_s))
        print(f"{name:26}{shares}   {time.bound}")
guess.check(bounds["decode over nvlink3"], "on a fast link a token waits for its weights; the syncs come second.")

# %% [markdown]
# Read the rows in pairs. In **decode** latency is more than moving: more bandwidth would not help, fewer messages
# would. Only over 1 GbE does moving catch up, and the table of links told why: that link's n½ lies below the payload.
# In **prefill** it is the other way round: 2048 times the bytes, but only a few times the latency (it grows at all
# because the library now takes ways that wait longer and carry more), so bytes rule.
#
# And "the price is communication"? It holds for a prompt on every link but NVLink, and for a token over Ethernet. On
# the fast links a token pays more for reading its weights.
#
# Batching shares latency. The same decode step with more sequences:

# %%
from minitp.plan.network import price

machine = catalogue.machine("8xa100-80", link="ethernet-10g")
print("over 10 GbE, a model:  latency of a step   for each token   a sync by")
for batch in (1, 8, 64):
    time = decode.token(big, Layout(tp=8), Inference(batch=batch, prompt=2048, new=64), machine)
    by = price("all_reduce", sync_point(big, batch, 2)[1], machine.meeting(8), machine).algorithm
    print(f"{batch:3} sequences: {1e3 * time.latency_s:20.1f} ms {1e3 * time.latency_s / batch:12.2f} ms      {by}")

# %% [markdown]
# With 8 sequences the latency is that of one, shared by 8. With 64 the library takes another way, which waits longer
# and carries more bytes a second; for each token it is less all the same.
#
# ## Measured, on the machine that runs this
#
# Below, an all-reduce is timed on your ranks: the median of many calls. The model stands in a column of its own, with α
# and β of two programs that meet in shared memory. Threads of a notebook are no network, and other programs may be at
# work; look for the flat part and the rising part, not at the digits.

# %% tags=["measured"]
import time

import numpy as np

import minitp
from minitp.plan.links import links
from minitp.plan.network.collectives import best


def timed(tp):
    middle = {}
    for n in (4, 4096, 1 << 18, 1 << 22):                 # bytes
        took = []
        for _ in range(15):
            term = minitp.Partial(np.ones(n // 4, np.float32), tp)
            tp.barrier(site="timing", reason="start together")
            start = time.perf_counter()
            tp.all_reduce(term, site="timing", reason="time it")
            took.append(time.perf_counter() - start)
        middle[str(n)] = float(np.median(took))
    return middle


here = run(timed, ranks=2)
print("payload            measured here   model: shared memory")
for n, seconds in here.results[0].items():
    _, modeled = best("all_reduce", here.ranks, int(n), links()["shared-memory"])
    print(f"{int(n):9,} B {1e6 * seconds:17,.0f} µs {1e6 * modeled:19,.0f} µs")

# %% [markdown]
# ## The same on real processes
#
# `minitp run -n 4 06_count_and_price.py` (or `mpirun -n 4 python 06_count_and_price.py`) runs the same cells on
# processes: the counts stay, the measured times change. `minitp plan ask sync-cost` prices a sync on every link.
#
# ## Exercises
#
# **6.1** Llama-3.1-405B has 126 layers. How many sync points has a pass that decodes one token each of 16 sequences?

# %%
layers, sequences = catalogue.model("llama-3.1-405b").config.layers, 16
print(f"{layers} layers")
exercise("6.1", None)

# %% [markdown]
# **6.2** SmolLM2 answers a prompt of 50 tokens with 10 new ones. How many sync points has the whole answer? (The
# prefill gives the first new token. 30 layers, as above.)

# %%
prompt = 50                                               # tokens
new = 10
exercise("6.2", None)


# %% [markdown]
# **6.3** Write a parallel block. `attention(x)` and `mlp(x)` give this rank's *terms* of the two results, as arrays;
# `x` is whole. Return `x` plus both, whole on every rank, with one sync point.

# %%
def parallel_block(tp, x, attention, mlp):
    ...


exercise("6.3", parallel_block)


# %% [markdown]
# **6.4** From which payload on (bytes) does a ring all-reduce over 8 ranks of InfiniBand HDR carry longer than it
# waits? (A ring is 2(p − 1) messages, one after the other, which together carry 2(p − 1)/p of the payload.) Within a
# percent is right.

# %%
p, hdr = 8, LINKS[1]
print(f"{hdr.name}: α = {hdr.latency_s:.2g} s, bandwidth = {hdr.bytes_per_s:.3g} bytes/s")
exercise("6.4", None)

# %% [markdown]
# **Next:** [07 · Uneven cuts](07_uneven_cuts.ipynb). Figures of these lessons are free to reuse.
