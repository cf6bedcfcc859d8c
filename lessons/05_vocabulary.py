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
# # 05 · The vocabulary: a table cut in two ways, and logits that need not be whole
#
# *The first and the last matrix of a model are among its largest. How are they cut, and must every rank see every
# logit?* About 35 minutes. You need lesson 02 (column and row cuts) and lesson 03 (passes, the model `tiny`).
#
# A model's text is a list of **tokens**: numbers from 0 to V − 1, V being the size of the **vocabulary**. The
# **embedding** is a table with a row of D numbers for each token: what goes in is the row of the token. The **head**
# (not to be confused with attention's heads) is a matrix of the same shape, (V, D). Its product with the vector that
# the last layer gives has one number for each token of the vocabulary, the **logits**: the larger, the likelier that
# token comes next.
#
# Letters: `V` vocabulary, `D` hidden size, `p` ranks, `L` layers.

# %%
import numpy as np

import minitp
from minitp.context import Context
from minitp.layers import Logits, ParallelEmbedding, VocabParallelEmbedding
from minitp.lesson import begin, exercise, pictures, predict, run

begin("05")
V, D = 23, 6
table = np.arange(V)[:, None] + np.arange(D) / 10           # row 12 is 12.0, 12.1, …: each number says where it is from
ids = np.array([[12, 3, 22]])                                # (batch, tokens): one text of three tokens
print(table[ids[0]])

# %% [markdown]
# ## Cut along hidden: every rank knows a piece of every row
#
# The official code of LLaMA 1 and 2 calls this layer `ParallelEmbedding`. A rank holds some columns of the table, for
# all tokens. It looks up its columns of the row.
#
# **Predict.** Which collective makes the row whole: `"all_reduce"` or `"all_gather"`?

# %%
guess = predict("the collective of a table cut along hidden", None)


# %%
def along_hidden(tp):
    hidden = minitp.Cut(D, tp.size)
    mine = hidden.of(tp.rank)
    weights = {"embedding.weight": table[:, mine.start:mine.stop]}                # (V, D_p)
    x = ParallelEmbedding("embedding", tp, hidden).forward(ids, weights, Context())
    return weights["embedding.weight"][ids[0]], x


gathered = run(along_hidden, ranks=4)
for rank, (columns, _) in enumerate(gathered.results):
    print(f"rank {rank} looks up {columns[0]} of the first token")
gathered.tell()
guess.check(gathered.events[0].op, "each rank's numbers are complete and belong to it alone: a shard.")

# %% [markdown]
# ## Cut along the vocabulary: one rank knows, the others add zeros
#
# Llama 3 calls it `VocabParallelEmbedding`. A rank holds all columns of some rows. For a token whose row it has, it
# answers; for another rank's token it answers with zeros. The sum of the answers is the row.
#
# You can see it as lesson 02's row cut: a lookup is the product of a one-hot vector (V numbers, a 1 at the token) with
# the table; the ranks cut the V terms of that sum, and so what each has is **partial**.
#
# **Predict.** How many numbers of rank 0's answer to these three tokens are not zero? (The 23 rows are dealt out to 4
# ranks, rank 0 has the first ones; a row is 6 numbers.)

# %%
guess = predict("numbers of rank 0's answer that are not zero", None)


# %%
def along_vocabulary(tp):
    mine = minitp.Cut(V, tp.size).of(tp.rank)
    weights = {"embedding.weight": table[mine.start:mine.stop]}                   # (V_p, D)
    layer = VocabParallelEmbedding("embedding", tp, mine)
    term = np.where([[token in mine] for token in ids[0]], table[ids[0]], 0)      # what this rank adds, to be shown
    return term, layer.forward(ids, weights, Context())


summed = run(along_vocabulary, ranks=4)
for rank, (term, _) in enumerate(summed.results):
    print(f"rank {rank} holds rows {minitp.Cut(V, summed.ranks).of(rank)} and adds {term[:, 1]} in column 1")
summed.tell()
guess.check(int((summed.results[0][0] != 0).sum()), f"of {ids[0]} only token 3 lies in rank 0's rows.")

# %% [markdown]
# ## Side by side
#
# **Predict.** Which of the two has the larger payload (the bytes of the whole array): the cut along `"hidden"`, along
# the `"vocabulary"`, or is it the `"same"`?

# %%
guess = predict("the larger payload", None)

# %% tags=["C03"]
same = all(np.array_equal(x, table[ids]) for x in (gathered.results[0][1], summed.results[0][1]))
print(f"ParallelEmbedding:      {gathered.sync_points} sync point, {gathered.payload} bytes of payload")
print(f"VocabParallelEmbedding: {summed.sync_points} sync point, {summed.payload} bytes of payload")
print("both are the rows of the table, to the last bit:", same)
guess.check("same" if gathered.payload == summed.payload else "different",
            f"what is made whole is {ids.size} tokens × {D} numbers of 8 bytes, either way.")

# %% [markdown]
# It is often said that the official LLaMA code splits the model by `RowParallelLinear`, `ColumnParallelLinear` and
# `ParallelEmbedding`. It does, with one correction: Llama 3 has `VocabParallelEmbedding` in place of the last. The two
# agree: one sync, the same payload, the same rows. Even the bits agree, for adding zeros changes none. (How many bytes
# a network really carries for a sum and for a gather is lesson 08's.)
#
# Why two, then? Look at the other end. The head is a product with a (V, D) matrix; cut along the vocabulary it is
# lesson 02's column cut, and its result a shard, for free. A table that is cut along the vocabulary too is cut into the
# same pieces as the head, by the same rule. And where a model **ties** the two (one matrix is both), one cut serves
# both. That is no law, as you will see at the end.
#
# Here is the table of a real model, SmolLM2-135M, first cut along hidden, then along the vocabulary.

# %%
from minitp.plan import catalogue

smollm2 = catalogue.model("smollm2-135m").config
for embedding in ("hidden", "vocab"):
    pictures.parameter(minitp.Placement(smollm2, 4, embedding=embedding), "embedding.weight")

# %% [markdown]
# V is what the makers of a model's tokens chose, and often it doesn't divide. `Cut` deals out whole rows, and a sum of
# zeros and one row is right whatever the shares are:

# %%
for name, vocab in (("here", V), ("SmolLM2-135M", smollm2.vocab), ("GPT-2", catalogue.model("gpt2").config.vocab)):
    print(f"{name}: {vocab:,} on 3 ranks {minitp.Cut(vocab, 3).sizes}, on 5 {minitp.Cut(vocab, 5).sizes}")

# %% [markdown]
# Many programs can't do that: they add rows that stand for no token until V divides (lesson 07 counts what it costs).
#
# ## Logits: a shard for free
#
# The head, cut along the vocabulary, gives each rank the logits of its own tokens. To choose the next token by the
# largest logit (the **arg-max**), somebody must compare them all. The plain way: gather them, so that every rank has
# all V.
#
# **Predict.** How many bytes is that, for one token of SmolLM2-135M in float32 (4 bytes a number)? Its V is printed
# above.

# %%
guess = predict("bytes of one token's gathered logits", None)

# %%
logits = np.random.default_rng(5).normal(size=smollm2.vocab).astype(np.float32)    # any logits: what moves is the same


def gather_all(tp):
    cut = minitp.Cut(smollm2.vocab, tp.size)
    mine = cut.of(tp.rank)
    whole = tp.all_gather(logits[mine.start:mine.stop], axis=-1, cut=cut, site="head",
                          reason="lay the ranks' logits side by side")
    return int(whole.argmax())


everything = run(gather_all, ranks=4)
everything.tell()
guess.check(everything.payload, "V numbers of 4 bytes, to find a single one.")

# %% [markdown]
# ## Arg-max without gathering
#
# The largest of all is the largest of the ranks' largest. So each rank finds its own winner and sends two numbers: the
# logit, and the token's id in the whole vocabulary. Nobody needs the others.
#
# minitp does so in `choose`, which generation calls. It sends each rank's best **two** pairs, in 8 bytes a number, so
# that it can also say how far the winner was ahead. The ranks do wait for each other here, but the model's mathematics
# is done: the trace calls this a **sample** event and counts it apart from the sync points.
#
# **Predict.** Gathered logits have how many times the bytes of the winners of 4 ranks?

# %%
guess = predict("gathered bytes ÷ bytes of the winners", None)

# %%
from minitp.sampling import Sampling, choose


def winners_only(tp):
    cut = minitp.Cut(smollm2.vocab, tp.size)
    mine = cut.of(tp.rank)
    shard = Logits(logits[mine.start:mine.stop].reshape(1, 1, -1), cut)            # logits that say whose they are
    return int(choose(shard, Sampling(), 0, tp).tokens[0])                         # as it is set: the arg-max


winners = run(winners_only, ranks=4)
winners.tell()
print("sync points:", winners.sync_points, " the same token on all ranks, and the one of the gather:",
      {*winners.results} == {*everything.results})
guess.check(everything.payload / sum(event.payload for event in winners.events),
            f"{winners.ranks} ranks send 2 pairs of 16 bytes each; V doesn't enter.")

# %% [markdown]
# ## The same in a whole model
#
# Now tiny writes a text three times: with its table cut along hidden, with its table cut along the vocabulary, and the
# same with the winners alone instead of gathered logits.
#
# **Predict.** A pass of `L` = 2 layers has 2L + 2 sync points with gathered logits (lesson 03). How many with the
# winners alone?

# %%
guess = predict("sync points of a pass with the winners alone", None)

# %% tags=["C03"]
from minitp.checkpoint import open_checkpoint
from minitp.generate import Generation, Request
from minitp.generate import run as write
from minitp.models import Bundled
from minitp.weights import load_weights

tiny = open_checkpoint(Bundled("tiny").folder)
prompt, new = b"The ", 16


def write_text(embedding, gathered):
    def on_rank(tp):
        placement = minitp.Placement(tiny.config, tp.size, embedding=embedding)
        model = minitp.Transformer(tiny.config, placement, tp)
        request = Request((tuple(prompt),), max_tokens=new, gathered=gathered)
        return bytes(write(Generation(model, load_weights(tiny, placement, tp), request))[0]).decode()
    return run(on_rank, ranks=4)


for embedding, whole in (("hidden", True), ("vocab", True), ("vocab", False)):
    made = write_text(embedding, whole)
    sample = sum(event.payload for event in made.events if event.plane == "sample")
    logits_bytes = sum(event.payload for event in made.events if event.site == "head")
    print(f"{embedding:6}, logits {'gathered' if whole else 'sharded '}: {prompt.decode() + made.results[0]!r} "
          f"{made.sync_points / new:g} syncs a pass, {logits_bytes:,} B of logits, {sample:,} B of winners")
guess.check(made.sync_points // new, "the gather of the logits is gone; a sample event stands in its place.")

# %% [markdown]
# Three ways, one text. With tiny's small V the winners are an eighth of the logits' bytes; with SmolLM2's you saw the
# true difference.
#
# ## One table for both: a tied table cut along hidden
#
# Where the head *is* the embedding table, and that is cut along hidden, a rank has some columns of it for all tokens.
# Its product takes the same columns of x (a slice of what is whole: free), and gives all V logits, each a term of a
# sum: the head has become lesson 02's **row cut**. Here is a small model of that kind, with random weights.
#
# **Predict.** Does that take more sync points in a pass than the table cut along the vocabulary (True or False)?

# %%
guess = predict("a tied table cut along hidden needs more sync points", None)

# %%
from minitp.context import plan_pass
from minitp.weights import RandomSource

tied = minitp.ModelConfig(hidden=18, layers=2, heads=3, kv_heads=3, head_size=6, ffn=20, vocab=V, positions=8,
                          tied=True)


def logits_of(embedding, gathered=True):
    def on_rank(tp):
        placement = minitp.Placement(tied, tp.size, embedding=embedding)
        weights = load_weights(RandomSource(tied), placement, tp, dtype=np.float64)
        ctx = plan_pass(tied, np.array([[0, 1, 2]]), dtype=np.float64)
        model = minitp.Transformer(tied, placement, tp)
        return model.forward(ids, weights, ctx, gathered=gathered).array
    return run(on_rank, ranks=4)


by_rows, by_columns, scattered = logits_of("vocab"), logits_of("hidden"), logits_of("hidden", gathered=False)
for name, made in (("vocabulary", by_rows), ("hidden", by_columns), ("hidden, shards wanted", scattered)):
    print(f"cut along {name}: {made.sync_points} sync points, of the embedding {made.events[0].op}, "
          f"of the head {made.events[-1].op}")
print("equal to 12 digits:", np.allclose(by_rows.results[0], by_columns.results[0], rtol=1e-12))
guess.check(by_columns.sync_points > by_rows.sync_points, "one at each end, whichever way the table is cut.")

# %% [markdown]
# The same count, with the two collectives swapped, and no second copy of the table. But partial logits can't be
# compared rank by rank: the largest term is not the largest sum. Where the winners alone are wanted, a reduce-scatter
# comes first (each rank gets the sums of its own part of the vocabulary: the third line above). So this cut can't save
# the sync that the cut along the vocabulary saves.
#
# ## The same on real processes
#
# With MPI installed, `minitp run -n 4 05_vocabulary.py` (or `mpirun -n 4 python 05_vocabulary.py`) runs these cells on
# 4 processes.
#
# ## Exercises
#
# **5.1** Llama 3 8B decodes 8 texts at once. How many bytes of logits does each pass gather, in float32?

# %%
print("vocabulary of Llama 3 8B:", catalogue.model("llama-3-8b").config.vocab)
exercise("5.1", None)


# %% [markdown]
# **5.2** Write the lookup in a table cut along the vocabulary. You get the tokens (a list of ids), your part of the
# table as `held` (V_p, D), and in `rows`, a `range`, which rows of the whole table these are. Return the whole rows of
# all tokens, (tokens, D), on every rank, with one sync.

# %%
def lookup(tp, ids, held, rows):
    ...


exercise("5.2", lookup)


# %% [markdown]
# **5.3** Write the arg-max over sharded logits. You get your own shard and the `Cut` it comes from; a rank's shard may
# be empty. Return the id of the largest logit (the lowest id of several) on every rank; gather two numbers a rank. (An
# array of one row a rank is gathered with `axis=0` and `cut=minitp.Cut(tp.size, tp.size)`.)

# %%
def winner(tp, own_logits, cut):
    ...


exercise("5.3", winner)

# %% [markdown]
# **Next:** [06 · Count and price the sync points](06_count_and_price.ipynb). Figures of these lessons are free to
# reuse.
