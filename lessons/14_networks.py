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
# # 14 · Networks: what may go over which wire
#
# *Why is a matrix cut inside one machine, and what does a switch on the way really cost?* About 35 minutes. You need
# lesson 06 (a pass has 2L + 2 sync points, one after the other) and lesson 08 (all-reduces made of messages).
#
# Two numbers describe a link well enough to think with. `α` (alpha) is the time until a message arrives that carries
# nothing: its **latency**. `β` (beta) is the time each further byte takes: one over the **bandwidth**. A message of `n`
# bytes takes `α + n·β`. This is Hockney's model. Everything here but the cells that say "measured" is such a model.

# %%
import time

import numpy as np

from minitp import Partial
from minitp.checkpoint import open_checkpoint
from minitp.comm.algorithms import BuiltCollectives
from minitp.comm.algorithms.schedules import schedule
from minitp.comm.delayed import DelayedCommunicator
from minitp.generate import Generation, Request
from minitp.lesson import begin, exercise, pictures, predict, run
from minitp.model import Transformer
from minitp.models import Bundled
from minitp.placement import Placement
from minitp.plan import catalogue, units
from minitp.plan.job import Inference
from minitp.plan.layout import Layout
from minitp.plan.links import LINKS
from minitp.plan.network import sync_cost
from minitp.plan.network.curve import sync_point, sync_points
from minitp.plan.network.hierarchy import shards
from minitp.plan.questions import QUESTIONS
from minitp.plan.questions.base import named
from minitp.plan.simulate import simulated
from minitp.plan.speed import decode, step, traffic
from minitp.weights import load_weights

begin("14")
for link in LINKS:
    print(f"{link.name:22} α {units.duration(link.latency_s):>7}   {units.rate(link.bytes_per_s):>11}   "
          f"α·bandwidth {link.latency_s * link.bytes_per_s:>9,.0f} bytes")

# %% [markdown]
# **NVLink** joins the cards inside one machine. **RDMA** (remote direct memory access) lets a network card read and
# write another machine's memory without asking either operating system; InfiniBand is one such network. **Ethernet** in
# this list means ordinary sockets: every message passes through the TCP software of two operating systems, and that,
# not the cable, is what its α is made of.
#
# The last column is the size at which both parts are equal. A smaller message mostly waits; a larger one mostly moves.
#
# **Predict.** A sync point of Llama-2-70B carries one token: its hidden size is in the next cell, times 2 bytes. Of the
# time of one such message over InfiniBand, which percentage is α?

# %%
model = catalogue.model("llama-2-70b")
n = sync_point(model)[1]
print(f"hidden size {model.config.hidden:,}, so n = {n:,.0f} bytes")
guess = predict("percent of a message that is latency", None)

# %%
nvlink, rdma, tcp, slow = LINKS
share = 100 * rdma.latency_s / (rdma.latency_s + n / rdma.bytes_per_s)
guess.check(round(share), "n is far below α·bandwidth, so the message waits more than it moves.")
for link in LINKS:
    print(f"{link.name:22} one message {units.duration(link.latency_s + n / link.bytes_per_s)}")

# %% [markdown]
# ## All sync points of a token
#
# A token waits for all of them in turn. With recursive doubling (lesson 08) an all-reduce over `p` ranks takes lg p
# messages one after the other, each of all n bytes. So one token waits for `syncs · lg p · (α + n·β)`.
#
# **Predict.** Milliseconds a token waits on 8 ranks over TCP on 10 GbE. The two factors are printed.

# %%
syncs, ranks = sync_points(model), 8
print(f"{syncs} sync points, {int(np.log2(ranks))} messages in turn each")
guess = predict("ms of waiting a token, 10 GbE", None)

# %%
by_hand = {link.name: syncs * np.log2(ranks) * (link.latency_s + n / link.bytes_per_s) for link in LINKS}
planned = {row.link: row.token_s for row in sync_cost.on_links(n, syncs, [ranks], algorithms=["doubling"])}
for name, seconds in by_hand.items():
    print(f"{name:22} by hand {units.duration(seconds):>7}   planner {units.duration(planned[name]):>7}")
guess.check(round(1000 * by_hand[tcp.name], 1), "the same bytes and messages as over NVLink. Most of it is α.")
pictures.links("llama-2-70b")

# %% [markdown]
# The planner's function says what you computed. These are bare links; a library adds its own start-up, and plans count
# that (`library` below).
#
# ## Why tensor parallelism stays inside a machine
#
# First the waiting of one token, as a plan prices it: the same 8 cards inside a machine, and in 8 machines of one card.

# %% tags=["C14"]
asked = named(QUESTIONS, "inside-a-machine").ask().numbers
inside, reading = asked["inside s"], asked["reading s"]
print(f"reading the weights of a token: {units.duration(reading)}")
print(f"{'NVLink, inside':22} {asked['syncs']:.0f} syncs {units.duration(inside):>7}")
for link in LINKS[1:]:
    waits = asked[f"{link.name} library"]
    print(f"{link.name:22} {asked['syncs']:.0f} syncs {units.duration(waits):>7}, {waits / inside:.1f} times")

# %% [markdown]
# So the statement "the right data must travel over the right link" holds, and the two numbers say why: inside the
# machine waiting is a fraction of reading; over TCP a token mostly waits.
#
# Training moves bytes, not only latencies. BLOOM was trained on 384 cards: TP4 (tensor parallel, inside machines of 8),
# PP12 (a pipeline of 12 groups of layers), DP8 (8 copies that share a batch). Each axis sends over some level of the
# network; Omni-Path is its RDMA network. One card's step:
#
# **Predict.** How many times as many bytes does a card send for TP as for PP? (A PP message is sent once a stage and
# micro-batch; TP reduces twice a layer, forward and backward.)

# %%
bloom = catalogue.run("bloom-176b")
print(bloom.layout, "on", bloom.layout.devices, "cards")
guess = predict("TP bytes over PP bytes", None)


# %% tags=["C14"]
def sent(layout, job, of, machine):
    """GB that a card sends in a step, by axis and level."""
    found = {}
    for row in traffic.step(of, layout, job, machine):
        for level, size in row.wire.items():
            found[row.axis, level] = found.get((row.axis, level), 0) + size / 1e9
    return found


moved = sent(bloom.layout, bloom.training, bloom.model, bloom.machine)
rate = {level.name: level.link.bytes_per_s / 1e9 for level in bloom.machine.levels}
for (axis, level), size in moved.items():
    print(f"{axis} over {level:10} {size:6.1f} GB a card and step, at {rate[level]:5.1f} GB/s: "
          f"{size / rate[level]:.2f} s")
guess.check(moved["tp", "NVSwitch"] / moved["pp", "Omni-Path"], "TP talks in every layer, PP only where a stage ends.")
over = moved["tp", "NVSwitch"]
print(f"TP's bytes over the network between machines: {over / rate['Omni-Path']:.0f} s instead of "
      f"{over / rate['NVSwitch']:.1f} s")
time_of_step = step.training_step(bloom.model, bloom.layout, bloom.training, bloom.machine)
print(f"the whole step: planned {time_of_step.seconds:.0f} s, published {bloom.published['step_seconds']:.0f} s")

# %% [markdown]
# The axis that sends most has the fastest wire; what goes between machines is little. Had TP's bytes gone between
# machines, they alone would have taken more than half of the whole step.
#
# Across machines an all-reduce needn't send everything. It is done in **levels**: a reduce-scatter inside leaves each
# card a shard of the sum, and only that shard crosses. You will write this one in exercise 14.3.

# %%
for part in shards("all_reduce", ((0, 8), (1, 2))):
    print(f"{('inside', 'between')[part.level]:8} {part.op:14} over {part.ranks} ranks, {part.share} of the array")

# %% [markdown]
# ## It is a price, not a law
#
# Take the biggest LLaMA on two machines of 8 cards, one sequence at a time: TP16 across both, or TP8 in each and a
# pipeline of two between. `simulate` plays both, event by event.
#
# **Predict.** Which generates faster over InfiniBand: `TP16` or `TP8 × PP2`?

# %%
guess = predict("TP16 or TP8 × PP2", None)

# %% tags=["C14"]
big, two_tokens, seconds = catalogue.model("llama-3.1-405b"), Inference(prompt=1, new=2), {}
for wire in ("ib-hdr", "ethernet-10g", "ethernet-1g"):
    machines = catalogue.machine("8xa100-80", devices=16, between=wire)
    for layout in (Layout(tp=16), Layout(tp=8, pp=2)):
        played = simulated(big, layout, two_tokens, machines, to_write=False)
        seconds[wire, str(layout)] = played.seconds / two_tokens.new
        print(f"{wire:12} {layout!s:9} {units.duration(played.seconds / two_tokens.new):>7} a token")
guess.check(min((s, layout) for (wire, layout), s in seconds.items() if wire == "ib-hdr")[1],
            "one sequence has one token in the pipeline: a stage works while the other waits. TP lets all cards read.")

# %% [markdown]
# On a good network TP across two machines *wins* here: the sync points cost less than an idle stage. On the slowest one
# it loses. Many sequences at once give every stage of the pipeline work, and make each sync point larger. And training
# sends whole batches through every sync point:

# %% tags=["C14"]
many = 64
for wire in ("ib-hdr", "ethernet-10g"):
    machines = catalogue.machine("8xa100-80", devices=16, between=wire)
    wide = decode.token(big, Layout(tp=16), Inference(batch=many), machines)
    deep = decode.token(big, Layout(tp=8, pp=2), Inference(batch=many), machines, groups=2)
    print(f"{wire:12} {many} sequences: TP16 {wide.tokens_per_s:5.0f} tokens/s, TP8 × PP2 {deep.tokens_per_s:5.0f}")
for layout in ("TP16", "TP8 × PP2"):
    print(f"GPT-3, trained over InfiniBand, {layout:9}: {asked[f'{layout} between'] / 1e9:5.1f} GB a card between "
          f"machines, step {asked[f'{layout} step s']:.1f} s")

# %% [markdown]
# With 64 sequences TP16 still leads on InfiniBand and falls far behind on Ethernet; in training the pipeline leads on
# InfiniBand, too (so few cards wouldn't hold GPT-3's training; this is about the wires). So "TP inside" is what the two
# numbers of a link give in most cases, and no rule beyond them: work out your own.
#
# ## "RDMA is fast, but with a switch in between you are toast"
#
# A **switch** passes a message on from one cable to another. The claim is that this latency kills it. Test it: a hop
# adds its delay to α, so it is paid once for each message in turn.
#
# **Predict.** By how many percent does an InfiniBand switch lengthen a token's waiting?

# %%
hop = catalogue.switches()["infiniband-switch"].latency_s
print(f"a hop: {units.duration(hop)}; RDMA's own α: {units.duration(rdma.latency_s)}")
guess = predict("percent longer with a switch", None)

# %% tags=["C17"]
hops = syncs * int(np.log2(ranks)) * hop
print(f"{syncs} syncs · {int(np.log2(ranks))} messages · {units.duration(hop)} = {units.duration(hops)} a token")
switch = named(QUESTIONS, "switch").ask().numbers
for name, key in (("RDMA", "bare plain s"), ("TCP on RDMA's wire", "bare tcp on the same wire s"),
                  ("TCP on 10 GbE", "bare tcp s")):
    print(f"{name:22} {units.duration(switch[key]):>7} a token")
print(f"{'RDMA and a switch':22} {units.duration(switch['bare plain s'] + switch['bare hop s']):>7} a token")
print(f"NVSwitch, inside an 8-card machine: {units.duration(catalogue.switches()['nvswitch'].latency_s)} a pass")
for kind in ("infiniband-switch", "nvswitch"):
    print(f"where that is from: {catalogue.switches()[kind].source}")
guess.check(100 * switch["bare hop s"] / switch["bare plain s"], "a hop is a small part of α.")

# %% [markdown]
# Not toast. A hop takes less than a microsecond; a software stack takes tens, on the same wire. And inside an 8-card
# machine the cards already talk through a switch, NVSwitch. The two delays are not measured ones, as their sources say;
# take the hop three times as long, and the answer stays. What the claim gets right is that latency decides, not
# bandwidth. What no number here holds is queues: a switch hurts where many send to one port at once.
#
# ## Measured: a real run on a slower link
#
# Now for real. `DelayedCommunicator` waits `delay` seconds in every collective and message, as a longer wire would. The
# small model `tiny` writes a few tokens on your ranks, at three delays. If the model above is right, a token gets
# longer by delay × sync points.
#
# **Predict.** `tiny` has 2 layers. By how many milliseconds does a token get longer with 5 ms of delay?

# %%
source = open_checkpoint(Bundled("tiny").folder)
guess = predict("ms longer with a delay of 5 ms", None)


# %%
def write(delay):
    def on_rank(tp):
        placement = Placement(source.config, tp.size)
        model, weights = Transformer(source.config, placement, tp), load_weights(source, placement, tp)
        tp.delay = delay                                       # from here on
        took, begun, generation = [], time.perf_counter(), Generation(
            model, weights, Request((tuple(b"The ring is"),), max_tokens=4))
        for _ in generation:                                   # a token a turn; the first is the prompt's
            now = time.perf_counter()
            took.append(now - begun)
            begun = now
        return float(np.median(took[1:])), bytes(generation.tokens[0]).decode()
    return run(on_rank, ranks=4, kind=DelayedCommunicator)


delays = (0.0, 0.002, 0.005)
written = [write(delay) for delay in delays]
each = sync_points(catalogue.model("tiny"))
print(f"sync points: {each} a token, {written[0].sync_points} recorded in {written[0].sync_points // each} passes")
print("the text at each delay:", {found.results[0][1] for found in written})
guess.check(5 * each, "each sync point waits once, and none can start before the last has ended.")

# %% tags=["C17", "measured"]
plain = written[0].results[0][0]
print(f"no delay: measured {units.duration(plain)} a token (median of rank 0)")
for delay, found in list(zip(delays, written, strict=True))[1:]:
    took = found.results[0][0]
    print(f"delay {units.duration(delay)}: measured {units.duration(took)}, longer by "
          f"{units.duration(max(took - plain, 0))}; modeled, delay · syncs: {units.duration(delay * each)}")

# %% [markdown]
# The delay came back multiplied by the number of sync points, plus a little: a sleeping program wakes up late, by tens
# of microseconds and more on a busy machine. That is also why the delays here are ten thousand times a switch's and
# more: what was tested is the product. The text is the same at every delay.
#
# A collective of the world counted as one message there. Build one from messages, and it pays once for each **round**.
# On 4 ranks, with the same array:

# %%
rounds = {name: schedule("all_reduce", name, 0, 4).rounds for name in ("ring", "tree", "doubling")}
print("rounds on 4 ranks:", rounds)


def built(tp):
    tp.delay, took = delays[-1], {}
    for name in rounds:
        tp.barrier(site="lesson", reason="begin together")
        begun = time.perf_counter()
        BuiltCollectives(tp, name).all_reduce(Partial(np.ones(8), tp), site="lesson", reason="add the ranks' terms")
        took[name] = time.perf_counter() - begun
    return took


slowest = run(built, ranks=4, threads=True, kind=DelayedCommunicator).results

# %% tags=["measured"]
for name, count in rounds.items():
    print(f"{name:9} measured {units.duration(max(took[name] for took in slowest)):>7}, modeled delay · rounds "
          f"{units.duration(delays[-1] * count)}")

# %% [markdown]
# What emulation leaves out: bytes take no longer (only α grew), no message queues behind another, every delay is the
# same, ranks that share this machine's cores still wait for a core, and nothing was computed while waiting. It shows
# one thing truly: what latency does to a chain of sync points.
#
# ## The same on real processes
#
# `minitp run -n 3 14_networks.py` (or `mpirun -n 3 python 14_networks.py`) delays the messages of 3 processes.
#
# ## Exercises
#
# **14.1** From which payload on does a message on 10 GbE move longer than it waits? In bytes.

# %%
exercise("14.1", None)

# %% [markdown]
# **14.2** How long would one hop have to take for RDMA with that hop to be as slow as TCP on the same wire? Bare links,
# the token above; in microseconds.

# %%
exercise("14.2", None)


# %% [markdown]
# **14.3** Four ranks in two machines: ranks 0 and 1 in the first, 2 and 3 in the second. Write an all-reduce of each
# rank's `x` from messages, so that a rank sends only **half** of `x` to the other machine. `tp.exchange(array, to=…,
# shape=…, dtype=…, source=…, site=…, reason=…)` sends to one rank and returns what another sends. `len(x)` is even.
# Return the sum. The checker counts the bytes that cross.

# %%
def two_levels(tp, x):
    ...


exercise("14.3", two_levels)

# %% [markdown]
# **Next:** [15 · How many GPUs](15_how_many_gpus.ipynb). Figures of these lessons are free to reuse.
