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
# *Why is a matrix cut inside one machine, and what does a switch on the way really cost?* About 40 minutes. You need
# lesson 06 (a pass has 2L + 2 sync points; a message of `n` bytes takes `α + n·β`, latency and bytes over bandwidth),
# lesson 08 (all-reduces made of messages) and lesson 13 (micro-batches, recomputation).
#
# These two numbers describe a link well enough to think with. Everything here is such a model, but for the cells at the
# end that say "measured".

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
          f"n½ {link.latency_s * link.bytes_per_s:>9,.0f} bytes")

# %% [markdown]
# **NVLink** joins the cards inside one machine. **RDMA** (remote direct memory access) lets a network card read and
# write another machine's memory without asking either operating system; InfiniBand is one such network. **Ethernet** in
# this list means ordinary sockets: every message passes through the TCP software of two operating systems, and that,
# not the cable, is what its α is made of.
#
# At `n½ = α·bandwidth` both parts are equal. A smaller message mostly waits; a larger one mostly moves.
#
# **Predict.** A sync point of Llama-2-70B carries one token: its hidden size, printed below, times 2 bytes. Of the time
# of one such message over InfiniBand, which percentage is α?

# %%
model = catalogue.model("llama-2-70b")
n = sync_point(model)[1]
print(f"hidden size {model.config.hidden:,}, so n = {n:,.0f} bytes")
guess = predict("percent of a message that is latency", None)

# %%
nvlink, rdma, tcp, slow = LINKS
share = 100 * rdma.latency_s / (rdma.latency_s + n / rdma.bytes_per_s)
guess.check(share, "n is far below n½, so the message waits more than it moves.")
for link in LINKS:
    print(f"{link.name:22} one message {units.duration(link.latency_s + n / link.bytes_per_s)}")

# %% [markdown]
# ## All sync points of a token
#
# A token waits for all of them in turn. With recursive doubling (lesson 08) an all-reduce over `p` ranks takes lg p
# messages one after the other (lg: to base 2), each of all n bytes. So a token waits for `syncs · lg p · (α + n·β)`.
#
# **Predict.** How many milliseconds does a token wait on 8 ranks over 10 GbE? The factors are printed above and below.

# %%
syncs, ranks = sync_points(model), 8
print(f"{syncs} sync points, {int(np.log2(ranks))} messages in turn each")
guess = predict("ms of waiting a token, 10 GbE", None)

# %%
by_hand = {link.name: syncs * np.log2(ranks) * (link.latency_s + n / link.bytes_per_s) for link in LINKS}
planned = {row.link: row.token_s for row in sync_cost.on_links(n, syncs, [ranks], algorithms=["doubling"])}
for name, seconds in by_hand.items():
    print(f"{name:22} by hand {units.duration(seconds):>7}   planner {units.duration(planned[name]):>7}")
guess.check(1000 * by_hand[tcp.name], "the same bytes and messages as over NVLink. Most of it is α.")
pictures.links("llama-2-70b")

# %% [markdown]
# The planner says what you computed. These are bare links.
#
# ## Why tensor parallelism stays inside a machine
#
# With each collective a library has to be started, too, and a plan counts that. So now the plan's price: 8 cards inside
# a machine, or 8 machines of one card. Beside it stands the work of a token, to read its weights from memory.
#
# **Predict.** On how many of the four links does a token of Llama-2-70B wait longer than it reads?

# %%
asked = named(QUESTIONS, "inside-a-machine").ask().numbers
reading = asked["reading s"]
print(f"reading the weights: {units.duration(reading)} a token, 8 cards at once")
guess = predict("links on which a token waits longer than it reads", None)

# %% tags=["C14"]
waits = {nvlink.name: asked["inside s"]} | {link.name: asked[f"{link.name} library"] for link in LINKS[1:]}
for name, seconds in waits.items():
    print(f"{name:22} {units.duration(seconds):>7} a token, {units.duration(seconds / syncs):>7} a sync: "
          f"{seconds / waits[nvlink.name]:4.1f} times NVLink; bare it was {units.duration(by_hand[name])}")
guess.check(sum(seconds > reading for seconds in waits.values()), "both that go through TCP.")

# %% [markdown]
# So "the right data must travel over the right link" holds, and the numbers say why: inside the machine waiting is a
# fraction of reading (and most of it is the library's start); over TCP a token mostly waits.
#
# Training moves bytes, not only latencies. BLOOM was trained on 384 cards, cut in three ways:
#
# - **TP4**: each matrix is shared by 4 cards of a machine.
# - **PP12**, a pipeline of as many *stages*: groups of cards with some layers each. A stage passes its activations on.
# - **DP8**, data parallelism: 8 copies of all that, each with its part of the batch; their gradients are added.
#
# Let `n` be the bytes of a micro-batch between two layers. A card in the middle has 6 layers, and in each of them TP
# makes 2 all-reduces of `n` a pass. There are 3 passes: forward, forward once more (recomputation), backward. A ring
# over 4 cards sends `2 · 3/4 · n` of each. For PP, `n` goes once to the next stage and once to the one before; the 4
# cards of a TP group have the same `n`, so each sends a quarter.
#
# **Predict.** How many times as many bytes does a card send for TP as for PP?

# %%
bloom = catalogue.run("bloom-176b")
print(f"{bloom.layout} on {bloom.layout.devices} cards (layers: of the first stage, ten in between, the last)")
print(f"micro-batches of {bloom.training.micro_batch} sequences, recomputation: {bloom.training.recompute}")
guess = predict("TP bytes over PP bytes", None)

# %% tags=["C14"]
moved, rate = {}, {level.name: level.link.bytes_per_s for level in bloom.machine.levels}
for row in traffic.step(bloom.model, bloom.layout, bloom.training, bloom.machine, stage=5):
    for level in row.wire:
        moved.setdefault((row.axis, level), np.zeros(2))
        moved[row.axis, level] += row.wire[level], row.per_link[level]
cards = round(np.divide(*moved["pp", "Omni-Path"][::-1]))
print(f"a card in the middle, one step; Omni-Path is the RDMA network between machines, {cards} cards to a port")
for (axis, level), (sent, port) in moved.items():
    print(f"{axis.upper()} over {level:9} {sent / 1e9:6.1f} GB a card, {port / 1e9:6.1f} GB a port of "
          f"{rate[level] / 1e9:5.1f} GB/s: {port / rate[level]:.2f} s")
tensor = moved["tp", "NVSwitch"][0]
guess.check(tensor / moved["pp", "Omni-Path"][0], "6 · 2 · 3 · 2 · 3/4 over 2/4, and TP gathers the quarters again.")
print(f"TP's bytes through the ports between machines: {cards * tensor / rate['Omni-Path']:.0f} s")
time_of_step = step.training_step(bloom.model, bloom.layout, bloom.training, bloom.machine)
print(f"the whole step: planned {time_of_step.seconds:.0f} s, published {bloom.published['step_seconds']:.0f} s")

# %% [markdown]
# The axis that sends most has the fastest wire, NVLink through a switch inside the machine; what goes between machines
# is little. Had TP's bytes gone between machines, they alone would have taken longer than the whole step.
#
# (DP's gradients go over both: two of the copies are in the same machine.) Such an all-reduce needn't send everything
# across. It is done in **levels**: a reduce-scatter inside leaves each card a shard of the sum, and only that shard
# crosses. You will write one in exercise 14.3. Here for 2 machines of 8:

# %%
for part in shards("all_reduce", ((0, 8), (1, 2))):
    print(f"{('inside', 'between')[part.level]:8} {part.op:14} over {part.ranks} ranks, {part.share} of the array")

# %% [markdown]
# ## It is a price, not a law
#
# Take the biggest LLaMA on two machines of 8 cards, one sequence at a time: TP16 across both, or TP8 in each and a
# pipeline of two between (PP2). `simulated` plays both, event by event.
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
# it loses. Many sequences at once give every stage work (they go in two groups: while one stage has the first, the
# other has the second), and make each sync point larger. And training sends whole batches through every sync point.
#
# **Predict.** Which writes more tokens a second for 64 sequences over InfiniBand: `TP16` or `TP8 × PP2`?

# %%
many = 64
guess = predict("64 sequences over InfiniBand: TP16 or TP8 × PP2", None)

# %% tags=["C14"]
rates = {}
for wire in ("ib-hdr", "ethernet-10g"):
    machines = catalogue.machine("8xa100-80", devices=16, between=wire)
    wide = decode.token(big, Layout(tp=16), Inference(batch=many), machines)
    deep = decode.token(big, Layout(tp=8, pp=2), Inference(batch=many), machines, groups=2)
    rates[wire] = {str(Layout(tp=16)): wide.tokens_per_s, str(Layout(tp=8, pp=2)): deep.tokens_per_s}
    print(f"{wire:12} {many} sequences: TP16 {wide.tokens_per_s:5.0f} tokens/s, TP8 × PP2 {deep.tokens_per_s:5.0f}")
for layout in ("TP16", "TP8 × PP2"):
    print(f"GPT-3, trained over InfiniBand, {layout:9}: {asked[f'{layout} between'] / 1e9:5.1f} GB a card between "
          f"machines, step {asked[f'{layout} step s']:.1f} s")
guess.check(max(rates["ib-hdr"], key=rates["ib-hdr"].get),
            "on this wire even the larger sync points cost less than they save.")

# %% [markdown]
# With 64 sequences TP16 still leads on InfiniBand and falls far behind on Ethernet. In training the pipeline leads even
# on InfiniBand. (So few cards wouldn't hold GPT-3's training; this is about the wires.) So "TP inside a machine" is
# what the two numbers of a link give in most cases, and no rule beyond them: work out your own.
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
for name, times in (("RDMA and a switch", 1), ("a hop 3 times as slow", 3)):
    print(f"{name:22} {units.duration(switch['bare plain s'] + times * switch['bare hop s']):>7} a token")
print(f"NVSwitch, inside an 8-card machine: {units.duration(catalogue.switches()['nvswitch'].latency_s)} a hop")
for kind in ("infiniband-switch", "nvswitch"):
    print(f"where that is from: {catalogue.switches()[kind].source}")
guess.check(100 * switch["bare hop s"] / switch["bare plain s"], "a hop is a small part of α.")

# %% [markdown]
# Not toast. A hop takes less than a microsecond; a software stack takes tens, on the same wire. And inside an 8-card
# machine the cards already talk through a switch, NVSwitch. The two delays are not measured ones, as their sources say;
# with a hop three times as slow the answer stays. What the claim gets right is that latency decides, not bandwidth.
# What no number here holds is queues: a switch hurts where many send to one port at once.
#
# ## Measured: a real run on a slower link
#
# Now for real. `DelayedCommunicator` waits `delay` seconds in every collective and message, as a longer wire would. The
# small model `tiny` writes a few tokens on your ranks, at three delays; the quickest token counts, the one that other
# programs disturbed least. If the model above is right, a token gets longer by delay × sync points.
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
            model, weights, Request((tuple(b"The ring is"),), max_tokens=6))
        for _ in generation:                                   # a token a turn; the first is the prompt's
            now = time.perf_counter()
            took.append(now - begun)
            begun = now
        return min(took[1:]), bytes(generation.tokens[0]).decode()
    return run(on_rank, ranks=4, kind=DelayedCommunicator)


delays = (0.0, 0.002, 0.005)
written = [write(delay) for delay in delays]
each = sync_points(catalogue.model("tiny"))
print(f"sync points: {each} a token, {written[0].sync_points} recorded in {written[0].sync_points // each} passes")
print("the text at each delay:", {found.results[0][1] for found in written})
guess.check(5 * each, "each sync point waits once, and none can start before the last has ended.")

# %% tags=["C17", "measured"]
plain = written[0].results[0][0]
print(f"no delay: measured {units.duration(plain)} a token (the quickest, on rank 0)")
for delay, found in list(zip(delays, written, strict=True))[1:]:
    took = found.results[0][0]
    print(f"delay {units.duration(delay)}: measured {units.duration(took)}, longer by "
          f"{units.duration(max(took - plain, 0))}; modeled, delay · syncs: {units.duration(delay * each)}")

# %% [markdown]
# The delay came back multiplied by the number of sync points, more or less: a sleeping program wakes up late, and ranks
# that share a core compute while others sleep. That is also why the delays here are ten thousand times a switch's and
# more: what was tested is the product. The text is the same at every delay.
#
# Here a whole collective waited once, as if it were one message. Built from messages (lesson 08) it waits once in each
# **round**. On 4 ranks, the same array in three ways:

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
# **14.1** Llama-2-70B decodes many sequences at once, and each adds the `n` bytes above to a sync point. From how many
# sequences on does a message over InfiniBand move longer than it waits?

# %%
exercise("14.1", None)

# %% [markdown]
# **14.2** How many microseconds would one hop have to take for RDMA with that hop to be as slow as TCP on the same
# wire? Take bare links and the token above; TCP's α is that of 10 GbE.

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
