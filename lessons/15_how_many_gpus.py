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
# # 15 · How many GPUs
#
# *How many cards does a model take to run, to train, and why not one big one?* About 40 minutes. You need lesson 13
# (the bytes of weights, gradients and optimizer) and lesson 14 (TP, PP and DP, and what they send).
#
# Three divisions answer most of it. Bytes over a card's bytes is how many cards must **hold** it. Operations over a
# card's rate is how long they **compute**. Bytes over a card's bandwidth is how long a token **reads**. For each
# question you divide first; then the planner, which counts every term of a real layout, says its finer answer, and you
# see what the division left out. All of it is planned: no time here was measured by us.
#
# A **card** is a GPU, a **machine** has 8 of them. Letters: `P` parameters, `T` tokens trained on.

# %%
from math import ceil

from minitp.checkpoint import open_checkpoint
from minitp.lesson import begin, exercise, pictures, predict, run
from minitp.models import Bundled
from minitp.placement import Placement
from minitp.plan import catalogue, memory, search
from minitp.plan.job import MIXED, Inference
from minitp.plan.layout import Layout, Place
from minitp.plan.memory.capacity import Capacity, verdict
from minitp.plan.questions import QUESTIONS
from minitp.plan.questions.base import named
from minitp.plan.rows import by_kind
from minitp.saved import memory_of
from minitp.trace.wording import count
from minitp.weights import load_weights

begin("15")


def ask(question):
    """The numbers of an answer of `minitp plan ask`."""
    return named(QUESTIONS, question).ask().numbers


a100 = catalogue.device("a100-80")
print(f"{a100.name}: {a100.memory / 1e9:g} GB by its name, {a100.memory_real / 1e9:.1f} GB as it reports")
for name in ("llama-65b", "llama-3.1-405b"):
    print(f"{name}: P = {catalogue.model(name).parameters:,}")

# %% [markdown]
# ## The biggest LLaMA, to run
#
# Of the two above one was the largest of the first LLaMA, the other is the largest of its successors. Their authors
# store weights in half precision, 2 bytes each; fp8 is 1.
#
# **Predict.** How many cards of 80e9 bytes (the size in their name) hold the larger one's weights in bf16?

# %%
guess = predict("cards for the biggest LLaMA in bf16, by bytes", None)

# %% tags=["C07"]
asked = ask("biggest-llama")
for name in ("llama-65b", "llama-3.1-405b"):
    for dtype, each in (("bf16", 2), ("fp8", 1)):
        size = catalogue.model(name).parameters * each
        print(f"{name:14} {dtype}: {size / 1e9:6.1f} GB, cards {ceil(size / a100.memory):2} by name, "
              f"{ceil(size / a100.memory_real):2} real | planner: a layout fits on "
              f"{asked[f'{name} {dtype} cards with a layout']:.0f}, whole machines "
              f"{asked[f'{name} {dtype} cards as machines']:.0f}")
big = catalogue.model("llama-3.1-405b")
for layout in (Layout(pp=11), Layout(tp=6, pp=2)):
    found = verdict(big, layout, Inference(), Capacity.of(a100))
    print(f"{layout.devices} cards as {layout}: the fullest holds {found.needed / 1e9:.1f} GB of "
          f"{found.capacity.usable / 1e9:.1f} beside the reserve")
print(f"files of llama-65b are cut for {catalogue.model('llama-65b').model_parallel} ranks")
guess.check(ceil(2 * catalogue.model("llama-3.1-405b").parameters / a100.memory), "2 P / 80e9, rounded up.")

# %% [markdown]
# So "how many GPUs does the biggest LLaMA take" has several right answers. The older one fits 2 cards by its bytes and
# is used on 8, since its files are cut for so many ranks. The newer one needs 11 (10 by the real size) by bytes. But as
# a pipeline of 11 (PP11) it doesn't fit: stages have whole layers, and the fullest one decides. It must hold the text's
# keys and values besides, and a reserve is left free for what no plan counts. 12 do: TP6 shares each matrix among 6
# cards, and two such groups have half of the layers each (PP2). As whole machines that is 16. In fp8 one machine does.
#
# These are the 12. Its heads don't divide by 6, so some ranks hold a little more.

# %%
pictures.memory(model="llama-3.1-405b", machine="8xa100-80", devices=12, tp=6, pp=2)

# %% [markdown]
# Why believe the planner's bytes? Because they are those of a real run. Here ranks load the small model `tiny` and
# count the bytes of the arrays they hold, beside the weights that are planned for the same ranks.

# %%
tiny, source = catalogue.model("tiny"), open_checkpoint(Bundled("tiny").folder)


def held(tp):
    return memory_of(load_weights(source, Placement(source.config, tp.size), tp))


real = run(held, ranks=3).results
job = Inference(weights="float32")
planned = [by_kind(memory.rows(tiny, Layout(tp=len(real)), job, Place(rank, 0, 0, 0)))["weights"]
           for rank in range(len(real))]
for rank, (here, there) in enumerate(zip(real, planned, strict=True)):
    print(f"rank {rank} holds {here:,} bytes, planned {there:,}")

# %% [markdown]
# ## What fits one machine of 8 × 80 GB
#
# Lesson 13 went through the catalogue's models. As a division: running takes 2 bytes a parameter, training 16.
#
# **Predict.** How many billions of parameters can one machine train, by bytes alone?

# %%
machine = catalogue.machine("8xa100-80")
total = machine.devices * a100.memory
print(f"{total / 1e9:g} GB; {MIXED.states:g} bytes a parameter to train")
guess = predict("billions of parameters, trained on one machine", None)

# %% tags=["C08"]
print(f"by bytes: runs up to {total / 2 / 1e9:g} billion, trains up to {total / MIXED.states / 1e9:g} billion")
one = ask("one-machine")
for what in ("runs", "trains"):
    sizes = {name.removesuffix(f" {what}"): can for name, can in one.items() if name.endswith(f" {what}")}
    fit = {name: catalogue.model(name).parameters for name, can in sizes.items() if can}
    largest = max(fit, key=fit.get)
    print(f"planner: the largest of the catalogue that it {what} is {largest}, {fit[largest] / 1e9:.1f} billion")
guess.check(total / MIXED.states / 1e9, "640 GB over 16 bytes.")

# %% [markdown]
# The planner stays below both divisions: beside the states it counts activations, and leaves a reserve. Fine-tuning all
# weights takes the same bytes as training; only its tokens are fewer.
#
# ## Training the middle sizes on one machine: bytes and days
#
# The statement: `70–175B can't be trained on one such machine, and it would be awfully slow`. A training of P
# parameters on T tokens takes about 6·P·T operations: 2 for each parameter and token forward, twice as many backward.
# Divide by what 8 cards reach.
#
# **Predict.** How many years would GPT-3 compute on one machine? Its T and a card's rate are printed.

# %%
gpt3, rate = catalogue.model("gpt-3-175b"), a100.peak("bf16") * a100.flops_reached
T = catalogue.run("gpt-3-175b").training.tokens
print(f"P = {gpt3.parameters:,}, T = {T:,.0f}; a card reaches {rate / 1e12:.0f}e12 operations/s, "
      f"{100 * a100.flops_reached:.0f} % of its peak")
guess = predict("years on one machine", None)

# %% tags=["C11"]
DAY = 24 * 3600
for model in (catalogue.model("llama-65b"), gpt3):
    tokens = model.trained_on or T
    days = 6 * model.parameters * tokens / (8 * rate) / DAY
    states = MIXED.states * model.parameters
    planned = ask("train-on-one-machine")[f"{model.name} days"]
    print(f"{model.name:10} states {states / 1e12:.2f} TB = {states / (8 * a100.memory_real):.1f} times the machine; "
          f"{days:,.0f} days = {days / 365:.1f} years for {tokens / 1e12:g} trillion tokens; planner {planned:,.0f}")
guess.check(days / 365, "6 P T / (8 cards · rate).")

# %% [markdown]
# So both halves of the statement hold. The bytes could be moved to the host's memory; the years could not. They are the
# least: the rate is a well-tuned layer's, and what is computed again or waited for comes on top. LLaMA-65B, with fewer
# parameters, takes longer than GPT-3, because it saw more tokens: the product counts.
#
# ## About 400 GPUs for GPT-3
#
# `GPT-3 (96 layers, 175B) was trained on about 400 GPUs, or 100 machines of the day.` Its paper names V100 cards and no
# number. Take 400 and published rates of trainings like it.
#
# **Predict.** How many days for 400 A100 at 140e12 operations/s each?

# %%
guess = predict("days on 400 A100", None)

# %% tags=["C18"]
work, asked = 6 * gpt3.parameters * T, ask("gpt-3")
print(f"{gpt3.config.layers} layers, {gpt3.parameters / 1e9:.0f} billion parameters, 6PT = {work:.3g} operations")
for card, per_card, factor in (("A100", 140e12, 6), ("A100", 140e12, 8), ("V100", 24.6e12, 6)):
    days = factor * gpt3.parameters * T / (400 * per_card) / DAY
    print(f"400 {card} at {per_card / 1e12:g}e12, {factor}PT: {days:.0f} days")
days = [asked[name] for name in ("A100 days by 6PT", "A100 days", "V100 days")]
print("planner, the same three: " + ", ".join(f"{each:.0f}" for each in days) + " days")
print(f"cards by the bytes of its states: {asked['A100 floor']:.0f} A100, {asked['V100 floor']:.0f} V100 of 32 GB")
print(f"400 cards: {400 // 8} machines of 8; 100 machines with {400 // 100} each")
near = catalogue.run("gpt-3-175b-sc21-384")
print(f"a layout somebody ran, {near.layout} on {near.layout.devices}: planned "
      f"{asked['planned days on 384']:.0f} days, published {near.published['days']:.0f}")
guess.check(work / (400 * 140e12) / DAY, "6PT; with every forward pass done twice, as that rate counts, it is 8PT.")

# %% [markdown]
# Both 65 and 87 days are right; they count different things. Recomputation (lesson 13) does every forward pass twice, 8
# operations instead of 6, and the published rate of 140 counts them. On V100 cards it is a year. So 400 of either would
# hold the states, and time decides. As to "100 machines": 400 cards are 50 machines of 8, or 100 of 4; nobody published
# which.
#
# ## A thousand GPUs and real layouts
#
# 1,000 cards of 80 GB are 80 TB.
#
# **Predict.** The states of how many billions of parameters fit 80 TB, by bytes?

# %%
guess = predict("billions of parameters in 80 TB of states", None)

# %% tags=["C12"]
print(f"1,000 cards: {1000 * a100.memory / 1e12:g} TB")
guess.check(1000 * a100.memory / MIXED.states / 1e9, "80e12 / 16. So memory isn't why clusters are that large.")
asked = ask("thousand-gpus")
for name in ("bloom-176b", "llama-65b", "llama-3.1-405b-16384"):
    found = catalogue.run(name)
    known, job, cards = found.published, found.training, int(asked[f"{name} devices"])
    days = known.get("days") or known["gpu_hours"] / cards / 24
    print(f"{name}: {cards:,} cards, {found.layout or 'no layout published, the fastest that fits'}; a step of "
          f"{job.batch:,} sequences of {job.seq:,}")
    print(f"    states {found.model.parameters * job.precision.states / 1e12:.1f} TB; planned: fullest card "
          f"{asked[f'{name} held'] / 1e9:.1f} GB, step {asked[f'{name} step s']:.1f} s, {asked[f'{name} days']:.0f} "
          f"days; published: {days:.0f} days"
          + (f", step {known['step_seconds']:g} s" if "step_seconds" in known else ""))

# %% [markdown]
# "Up to about 1,000 GPUs" was right of BLOOM's time; it has grown since. The largest of these models would fill a small
# part of 80 TB. Cards are added for *time*, and the batch makes that possible: thousands of sequences a step, so that
# every copy of the model has work. Published days hold restarts and ramp-up, which no planner counts; those of the
# biggest LLaMA are hours of all its training phases together, so it is by chance that they are what is planned for one.
#
# A planner can also search. Give it BLOOM's cards, batch, recomputation and ZeRO-1, and let it try every TP × PP × DP.
#
# **Predict.** By how many percent is the fastest layout found quicker than the one BLOOM was trained with?

# %%
guess = predict("percent that the best layout found saves", None)

# %% tags=["C12"]
bloom = catalogue.run("bloom-176b")
cluster = bloom.machine.with_devices(bloom.layout.devices)
limits = search.Limits(zero=1, chunks=1, sequence=False, micro_batch=bloom.training.micro_batch,
                       recompute=bloom.training.recompute)
best = search.search(bloom.model, cluster, bloom.training, limits).best[:3]
for one in best:
    print(f"searched:  {one.layout}: {one.seconds:.1f} s a step, {one.held / 1e9:.0f} GB")
published = search.judge(bloom.model, bloom.layout, bloom.training, cluster)
print(f"published: {bloom.layout}: {published.seconds:.1f} s a step, {published.held / 1e9:.0f} GB")
guess.check(round(100 * (1 - best[0].seconds / published.seconds), 1),
            "several layouts are nearly as fast as the best, and people had found one of them.")

# %% [markdown]
# The published layout is as fast as the best one found, as far as a model of a machine can tell such times apart, and
# its fullest card holds less than the two fastest. What a stage of it holds, for a layout of GPT-3 on as many cards:

# %%
pictures.memory(task="train", model="gpt-3-175b", machine="8xa100-80", devices=near.layout.devices, tp=near.layout.tp,
                pp=near.layout.pp, dp=near.layout.dp, step=near.training.batch, micro=near.training.micro_batch,
                recompute=near.training.recompute)

# %% [markdown]
# Most of it are states, as the division said. The first and the last stage also have the embedding and the head, and a
# stage keeps the activations of the micro-batches that have passed it and not yet come back: the earlier, the more.
#
# ## The biggest LLaMA, to train
#
# **Predict.** From 1,024 to 16,384 cards is a factor of 16. By which factor do its days shrink, with the same batch?

# %%
guess = predict("times as fast on 16,384 as on 1,024 cards", None)

# %% tags=["C07"]
found = named(QUESTIONS, "train-biggest").ask()
asked, (table,) = found.numbers, found.tables
print(f"by the bytes of its states, gradients in float32: {asked['floor']:.0f} cards")
for row in table.rows[::2]:
    cells = dict(zip(table.heads, row, strict=True))
    cards = int(cells["cards"].replace(",", ""))
    print(f"{cards:6,} cards: {asked[f'{cards} days']:5,.0f} days, {cells['MFU']} of the peak; computed again: "
          f"{cells['computed again']}\n{'':14} {cells['best layout that fits'].removesuffix(' *')}")
guess.check(asked["1024 days"] / asked["16384 days"], "more cards leave room: nothing need be computed again.")

# %% [markdown]
# A little more than the factor of the cards: on the most cards there is room to keep all activations, on the fewest the
# forward pass is computed again. (SP, sequence parallelism, cuts the activations between TP's sums as well; chunks are
# pieces of a stage, taken in turn, so that it idles less.) Ninety-odd cards would hold its states; nobody would wait.
#
# ## Why does nobody build a GPU with 1 TB?
#
# A token reads every weight once. Take an A100, leave its bandwidth as it is, and give it 1 TB of memory.
#
# **Predict.** How many tokens a second does a model write that fills it, one text at a time?

# %%
bandwidth = a100.bandwidth * a100.bandwidth_reached
print(f"bandwidth {a100.bandwidth / 1e12:.3f} TB/s, of which {100 * a100.bandwidth_reached:.0f} % are reached")
guess = predict("tokens/s of a model of 1 TB on one such card", None)

# %% tags=["C19"]
asked = ask("terabyte-gpu")
print(f"by hand: 1e12 / {bandwidth / 1e12:.2f}e12 = {1e12 / bandwidth * 1000:.0f} ms a token; "
      f"planner {asked['reading all s'] * 1000:.0f} ms; the usual 80 GB take "
      f"{asked['usual reading all s'] * 1000:.0f} ms")
print(f"the biggest LLaMA in bf16: {asked['model s'] * 1000:.0f} ms on the one card, "
      f"{asked['many s'] * 1000:.0f} ms on {asked['many']:.0f} usual ones, sync points included")
print(f"bandwidth it would need to be as quick: {asked['bandwidth wanted'] / 1e12:.1f} TB/s")
print(f"sequences at once until computing takes as long as reading: {asked['computing batch']:.0f}")
print(f"mixtral-8x7b, of whose experts a token meets few: {asked['experts s'] * 1000:.0f} ms")
guess.check(bandwidth / 1e12, "each token reads all of it.")

# %% [markdown]
# Capacity without bandwidth is a slow card: many cards bring their bandwidth along with their bytes. It would help all
# the same with many sequences at once (they share the reading), with models of experts (of the MLPs in a layer a token
# goes through two, and reads only these), with long texts' keys and values, and it would spare the sync points.
#
# ## Which memory is it, and what does it set?
#
# The memory of these cards is **HBM**, high-bandwidth memory: stacks of memory chips beside the processor. Somebody
# guessed "a sixth generation". Which is it, and how long does Llama-2-70B take for a token on as few cards as hold it?
#
# **Predict.** How many times as quick as on A100 cards is a token on as many H100?

# %%
cards_of = {name: catalogue.device(name) for name in ("v100-32", "a100-80", "h100-80", "h200", "b200")}
for name, card in cards_of.items():
    print(f"{name:8} {card.memory_kind:6} {card.memory / 1e9:4.0f} GB {card.bandwidth / 1e12:5.2f} TB/s")
guess = predict("times as quick on H100", None)

# %% tags=["C21"]
asked, model = ask("memory-kind"), catalogue.model("llama-2-70b")
for name, card in cards_of.items():
    cards = ceil(2 * model.parameters / card.memory)
    by_hand = 2 * model.parameters / (cards * card.bandwidth * card.bandwidth_reached)
    print(f"{name:8} {count(cards, 'card'):7}: by hand {1000 * by_hand:4.1f} ms a token, planner "
          f"{1000 * asked[f'{name} seconds']:4.1f} ms")
guess.check(asked["a100-80 seconds"] / asked["h100-80 seconds"], "the ratio of their bandwidths.")

# %% [markdown]
# HBM2e on the A100, HBM3 on the H100, HBM3e on the H200. With the first HBM before these, HBM3e is the fifth by name,
# so a sixth is one too many. Capacity sets how many cards; bandwidth sets the milliseconds. The planner's are a trifle
# below yours: of the embedding table a token reads only its own row.
#
# ## The same on real processes
#
# `minitp run -n 3 15_how_many_gpus.py` (or `mpirun -n 3 python 15_how_many_gpus.py`). `minitp plan ask` has all these
# questions, and `minitp plan MODEL` takes your own model and machine.
#
# ## Exercises
#
# **15.1** How many H200 hold MT-NLG's weights in bf16, by bytes and by the size in its name? Both are printed.

# %%
print(f"P = {catalogue.model('mt-nlg-530b').parameters:,}; an H200 has {catalogue.device('h200').memory / 1e9:g} GB")
exercise("15.1", None)

# %% [markdown]
# **15.2** LLaMA-65B trained on 2,048 A100; published are tokens per second and card, printed below. How many days for
# its T?

# %%
llama = catalogue.run("llama-65b")
print(f"{llama.published['tokens_per_s_gpu']:g} tokens/s a card, T = {llama.training.tokens:,.0f}")
exercise("15.2", None)


# %% [markdown]
# **15.3** Write `cards_for(parameters, bytes_each, card)`: how many cards of `card` bytes hold that many parameters.
# The numbers may be huge: no rounding on the way, as a float would do.

# %%
def cards_for(parameters, bytes_each, card):
    ...


exercise("15.3", cards_for)


# %% [markdown]
# **15.4** Does it fit? Each rank holds `held` bytes, every card has `card` bytes. Return True on *every* rank if all of
# them fit, else False on every rank, by one collective: `tp.all_reduce_max(array, site=…, reason=…)` or another.

# %%
def fits(tp, held, card):
    ...


exercise("15.4", fits)

# %% [markdown]
# **Next:** [Appendix A · When ranks fail](a_when_ranks_fail.ipynb). Figures of these lessons are free to reuse.
