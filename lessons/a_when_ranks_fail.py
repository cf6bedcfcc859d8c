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
# # A · When ranks fail
#
# *What does a job of many ranks do when one of them is late, wrong or gone?* About 30 minutes. You need
# lessons 01 and 02 (ranks and collectives; partial sums, and the all-reduce that adds them).
#
# A collective is a meeting: it ends when every rank has come. So most of what goes wrong on one rank the others notice
# as one thing: they wait. MPI itself waits forever and says nothing. Here you provoke six troubles for real, and learn
# what each looks like from outside: what is printed, the exit code, the trace (the record of every collective of a
# run). `attempt(fn, ranks=3)` is `run`, but an error ends up in its `.error`; its `.trace` is there in either case:
# that of a run that failed ends where the run did. Its `deadline` is the seconds that all of it may take.

# %%
import re
import time

import numpy as np

import minitp
from minitp.lesson import begin, exercise, jobs, pictures, predict, run
from minitp.lesson.attempt import attempt

begin("A")


def sum_up(tp, x, site="mlp.down"):
    return tp.all_reduce(minitp.Partial(x, tp), site=site, reason="add the ranks' partial sums")


def stuck(trace):
    for call in trace.unfinished_rows():
        print(f"trace: rank {call.rank} was in call {call.sequence}, {call.op} at {call.site}, which never ended")


# %% [markdown]
# ## The rank that doesn't come: a hang
#
# The commonest mistake is an `if` around a collective: here rank 1 has run out of data one step before the others, and
# returns. Nothing has failed anywhere, so no rank has an error to raise.
#
# **Predict.** How many of the 3 ranks wait?

# %%
guess = predict("ranks that wait", None)


# %%
def runs_out_of_data(tp):
    for step in range(2):
        if tp.rank == 1 and step == 1:
            return
        time.sleep(0.01)                                                          # computes
        sum_up(tp, np.ones(4))


hang = attempt(runs_out_of_data, ranks=3, deadline=0.6)
print(hang.error)
waiting = next(line for line in hang.error.splitlines() if "waiting" in line)
guess.check(len(re.findall(r"\d+", waiting.partition(":")[0])), "all but the one whose fault it is.")

# %% [markdown]
# That is the account of minitp's **watchdog**, which looks at the clock. A hang is read like this: **who waits, where,
# and who doesn't**. The ranks that wait are the healthy ones. The culprit is the rank with another line. Calls are
# counted from 0, so `call 1` is the second sum.
#
# Is it the same on real processes? Two jobs of 2 processes each, by `minitp run`, are to tell: one hangs like this, one
# fails in another way. They take a second, so they begin here; what became of them is told further below. (Where this
# lesson itself runs under mpirun the jobs are left out; without an MPI `minitp run` says so and makes the ranks
# threads.)

# %%
SCRIPT = """
import sys
import numpy as np
import minitp

def main(tp):
    for step in range(2):
        if tp.rank == 1 and step == 1:
            if sys.argv[1] == "fail":
                raise ValueError("line 7 of the data is not a number")
            return
        tp.all_reduce(minitp.Partial(np.ones(4), tp), site="mlp.down", reason="add the ranks' partial sums")

minitp.launch(main, deadline=0.8)
"""
failing, hanging = (jobs.start(SCRIPT, "minitp", "run", "-n", "2", "trouble.py", how) for how in ("fail", "hang"))

# %% [markdown]
# Meanwhile, the same hang in the trace. An event is recorded when a call has ended.
#
# **Predict.** How many events does the trace have, all ranks together?

# %%
guess = predict("events of all ranks", None)

# %%
print(f"trace: {len(hang.trace)} events")
stuck(hang.trace)
guess.check(len(hang.trace), "the first sum, on each rank. The second one has begun, and never ended.")

# %% tags=["measured"]
pictures.timeline(hang)

# %% [markdown]
# One lane for each rank, time from left to right: solid is computing, hatched is waiting. Outlined in red is a call
# that **never ended**: it has no length, so it is drawn to the edge. The lane of rank 1 just stops. **Look for the lane
# without red.**
#
# ## One rank raises an error: all must end
#
# An exception ends one rank. The others know nothing of it and wait, as above. So minitp ends all ranks as soon as one
# fails, and tells the error once, with the rank and the last collective.
#
# **Predict.** Rank 1 meets the bad line in the third step. In which call are the others when they are ended?

# %%
guess = predict("the call that the others are in", None)


# %%
def meets_a_bad_line(tp):
    for step in range(3):
        time.sleep(0.01)                                                          # reads a line
        if tp.rank == 1 and step == 2:
            raise ValueError("line 7 of the data is not a number")
        sum_up(tp, np.ones(4))


bad = attempt(meets_a_bad_line, ranks=3)
print(bad.error)
stuck(bad.trace)
guess.check(bad.trace.unfinished_rows()[0].sequence, "they have come to the third sum, which rank 1 never reaches.")

# %% tags=["measured"]
pictures.timeline(bad)

# %% [markdown]
# It is the picture of the hang: a rank that has failed and one that has returned are both in no call. What tells them
# apart is the error, and the trace has that, too, in its header:

# %%
print(bad.trace.run["failed"])

# %% [markdown]
# Threads live in one process. Are processes ended as well, and what does the shell learn of it? The two jobs from above
# know: their script raises such an error, or hangs.
#
# **Predict.** How many tracebacks does the first job print, when one of its 2 ranks raises?

# %%
guess = predict("tracebacks", None)

# %%
failing.tell()
if ended := failing.ended():
    guess.check(ended.err.count("Traceback"), "rank 0 was ended while it waited: it has nothing to say.")

# %%
hanging.tell()

# %% [markdown]
# An exit code other than 0 tells the shell, or the batch system, that the job has failed; 1 stands for an error of the
# program, 2 for one that minitp itself reports. On processes the watchdog is a thread on every rank, which asks the
# others where they are. There are two limits: the `deadline` of `launch` (`--deadline` of `minitp generate`) is how
# long a rank may wait in one collective, its `run_deadline` (`--timeout`), and the `deadline` of `attempt`, how long
# the whole run may take.
#
# At the end of a run the ranks' records are brought together by collectives. After a failure that can't be done, so
# each rank that still answers hands over its own. `minitp generate --trace FILE` and `minitp train --trace FILE` write
# what there is, and say so. `minitp trace show FILE` says who was in which call, and the app opens the file, too. A
# script of your own asks for the trace by `minitp.launch(…, rescued=…)`.
#
# ## The rank that is slow: a straggler
#
# A straggler is a hang that ends. There is no message at all, only time. Here every rank "computes" by sleeping, and
# rank 3 of 4 sleeps ten times as long.
#
# **Predict.** Which rank waits the least?

# %%
guess = predict("the rank that waits the least", None)


# %% tags=["measured"]
from minitp.trace.timeline import Timeline
from minitp.view.timeline import came_last, straggler_line


def steps(tp):
    for _ in range(5):
        time.sleep(0.03 if tp.rank == tp.size - 1 else 0.003)                     # the last one, whatever their number
        sum_up(tp, np.ones(4))


slow = run(steps, ranks=4)
pictures.timeline(slow)
print(straggler_line(came_last(Timeline.of(slow.trace))))

# %% [markdown]
# Nothing is red here: every call has ended. The last sentence below the picture names the rank that came last.

# %%
waited = np.zeros(slow.ranks)
np.add.at(waited, slow.trace.events["rank"], Timeline.of(slow.trace).waiting)
guess.check(int(waited.argmin()), "everybody waits for it, and it for nobody.")

# %% [markdown]
# **The slow rank is the one without waits.** Whoever looks for the rank with the longest waits finds the fast ones. Why
# it is slow, the trace doesn't say: more rows than the others (lesson 07), a hotter card, another user's process.
#
# ## Ranks that call different things: a mismatch
#
# Two sums, and rank 1 takes them in the other order: its code loops over a set, or over the files of a folder. All
# ranks make two calls, of the same shape. The first sum is of ones, the second of hundreds.
#
# **Predict.** Without a check, does the run end in an error (True or False)?

# %%
guess = predict("an error, without a check (True or False)", None)


# %%
def in_its_own_order(tp, checked):
    tp.checked = checked
    terms = {"attention.o": np.full(2, 1.0), "mlp.down": np.full(2, 100.0)}
    order = reversed(terms) if tp.rank == 1 else terms
    sums = {site: sum_up(tp, terms[site], site) for site in order}
    return sums["mlp.down"]


unchecked = attempt(lambda tp: in_its_own_order(tp, checked=False), ranks=3)
print("mlp.down should be", 3 * np.full(2, 100.0))
for rank, found in enumerate(unchecked.run.results):
    print(f"mlp.down on rank {rank}:", found)
guess.check(unchecked.run is None, "nobody compares what the ranks mean; the first to meet are added.")
for event in unchecked.run.trace:
    print(f"trace: call {event.sequence} of rank {event.rank} is {event.op} at {event.site}")

# %% [markdown]
# No error, and wrong answers that don't even agree: the worst of the six. The trace has it, for whoever looks: calls of
# one number are one meeting, and here they are of two sites. In **checked mode** the ranks compare their calls (number,
# kind, site, shape, type) before each collective. With threads it is on unless you switch it off; with processes it
# costs a message for each collective and is off: `--checked` switches it on.

# %%
checked = attempt(lambda tp: in_its_own_order(tp, checked=True), ranks=3)
print(checked.error)
stuck(checked.trace)
print()
print(attempt(lambda tp: sum_up(tp, np.ones(4 if tp.rank == 1 else 3)), ranks=3).error)

# %% [markdown]
# The message has both sides; which of them is wrong, you know. Where there is one odd rank out, start with that one.
# In the trace no lane is without red now: all ranks are in call 0, but not at one site.
#
# ## The sum that nobody takes
#
# The opposite of a hang: a collective that all ranks leave out. Each takes its own partial sum for the whole and goes
# on. minitp does so when asked to: `minitp generate --break layers.0.mlp.down`, or in Python a `BrokenCommunicator`.
# The model is the small one that comes with minitp; it has learned some English, letter by letter, and repeats itself.
# It has 2 layers, and 4 sums in them for each letter that it writes.
#
# **Predict.** The model writes 20 letters. One of the 4 sums is skipped. How many letters stay as they were, at
# their place?

# %%
guess = predict("letters at their place, of 20", None)

# %%
from minitp.checkpoint import open_checkpoint
from minitp.comm.broken import BrokenCommunicator
from minitp.config import TINY
from minitp.generate import Generation, Request, run as generate
from minitp.model import Transformer
from minitp.models import Bundled
from minitp.placement import Placement
from minitp.tokenizer import ByteTokenizer
from minitp.weights import load_weights

letters = ByteTokenizer()
asked = Request(prompts=(tuple(letters.encode("The ")),), max_tokens=20)


def written(tp, skipped):
    tp.broken = skipped
    placement = Placement(TINY, tp.size)
    source = open_checkpoint(Bundled("tiny").folder)
    weights = load_weights(source, placement, tp, mode="slice", dtype=np.dtype(np.float32))
    return letters.decode(generate(Generation(Transformer(TINY, placement, tp), weights, asked))[0])


sites = [f"layers.{layer}.{site}" for layer in range(TINY.layers) for site in ("attention.o", "mlp.down")]
texts = []
for skipped in ([], ["layers.0.mlp.down"], sites):
    broken = run(lambda tp, skipped=skipped: written(tp, skipped), ranks=3, kind=BrokenCommunicator)
    texts.append(broken.results[0])
    marked = {event.site for event in broken.events if event.broken}
    print(f"{len(marked)} of {len(sites)} sums skipped: {texts[-1]!r}")
same = sum(one == other for one, other in zip(texts[0], texts[1], strict=True))
guess.check(same, "by chance: the two texts have parted at once.")

# %% [markdown]
# No error and no wait. With one sum skipped the output still looks like language, which makes this the hardest to find;
# with all of them it doesn't. Only a comparison with one rank finds it, which is why minitp's tests do that. The trace
# knows it here because the skip was made on purpose: such events carry a mark of their own.
#
# ## The wrong mpirun
#
# A machine often has two MPIs: the system's, and one that was installed beside mpi4py. Each has an `mpirun`, which
# tells the processes it starts who they are, in a language that the other's library doesn't read. The next cell does
# to two processes what a foreign mpirun does: it starts them with the variables of *another* MPI. First a plain mpi4py
# script.
#
# **Predict.** Each of the 2 processes asks its MPI how many ranks there are. What is the answer?

# %%
guess = predict("ranks, as each of the 2 processes is told", None)

# %% tags=["measured"]
PLAIN = "from mpi4py import MPI\nprint(f'I am rank {MPI.COMM_WORLD.rank} of {MPI.COMM_WORLD.size}')\n"
both = [jobs.start(PLAIN, "python", "-W", "ignore", "trouble.py", environment=jobs.foreign_launcher(rank, 2),
                   needs_mpi=True) for rank in range(2)]
refused = jobs.start(SCRIPT, "python", "trouble.py", "fail", environment=jobs.foreign_launcher(0, 2), needs_mpi=True)
for job in both:
    job.tell()
if (ended := both[0].ended()) and ended.out:
    guess.check(int(ended.out.split()[-1]), "without its own launcher's words, an MPI takes itself for alone.")

# %% [markdown]
# (Where there is no MPI at all, these jobs are left out: the notebook on minitp's pages shows what they print.) Two
# processes, no error, exit code 0; each has done the whole work alone and believes that it is the only one. A sum
# over one rank is the partial sum itself. minitp compares what the launcher announces with what the library says, and
# refuses:

# %% tags=["measured"]
refused.tell()

# %% [markdown]
# `minitp run -n N` takes the mpiexec beside its own Python, so it can't be caught by this. `minitp doctor` looks over
# an installation before anything has gone wrong.
#
# ## What to look for
#
# | trouble | what you see | who tells | in the trace |
# |---|---|---|---|
# | hang | nothing, until the deadline | the watchdog: who waits where | calls that never ended; one rank has none |
# | error on one rank | one traceback with its rank | that rank; all are ended | the same, and the error in the header |
# | straggler | time | nobody; the timeline | waits on all ranks but one |
# | mismatch | wrong numbers, or a hang | checked mode: both sides | two sites at one number |
# | skipped sum | wrong numbers | a comparison with one rank | a sum too few, unless marked |
# | wrong mpirun | everything several times | minitp refuses; `minitp doctor` | of one rank |
#
# ## The same on real processes
#
# `minitp run -n 4 a_when_ranks_fail.py` runs the same cells, without the jobs. What `run` starts then has 4 processes
# for ranks; what `attempt` starts has threads there, too, for a rank that fails would end the whole lesson. To provoke
# a hang of your own, save `SCRIPT` as `trouble.py` and run it, first with `minitp run -n 2 trouble.py hang`, then with
# `mpirun -n 2 python trouble.py hang` and without `deadline` (the limit is some minutes then), and have Ctrl-C at hand.
#
# ## Exercises
#
# **A.1** Some ranks take a number of steps, and meet at the end of each. One of them is slow; the figures are printed
# below. How many seconds do all ranks together spend waiting? (A meeting itself takes no time here.)

# %%
from minitp.lesson.exercises.lesson_a import PACE

print(PACE)
exercise("A.1", None)


# %% [markdown]
# **A.2** Mend the first hang. Every rank has a list of arrays of `size` numbers; the lists are of different lengths.
# The answer, on every rank, is the list of the sums: all first arrays added up, all second ones, and so on; a rank that
# has no more adds zeros. Nobody knows the others' lengths, so agree by one collective:
# `tp.all_reduce_max(np.array([…]), site=…, reason=…)` gives every rank the largest, as an array of one number.

# %%
def sums_of_uneven(tp, arrays, size):
    ...


exercise("A.2", sums_of_uneven)


# %% [markdown]
# **A.3** A hang without a collective. Every rank sends `x` to the next one and receives from the one before, in a ring;
# `tp.send` may wait until the message is received, so where all send first, all wait. Mend it, for any number of
# ranks from 2 on, and return what has come in.

# %%
def pass_on(tp, x):
    after, before = (tp.rank + 1) % tp.size, (tp.rank - 1) % tp.size
    tp.send(x, to=after, site="ring", reason="pass x on")
    return tp.receive(shape=x.shape, dtype=x.dtype, source=before, site="ring", reason="take the other's x")


exercise("A.3", None)     # pass_on in place of None

# %% [markdown]
# **Next:** [Puzzles](puzzles.ipynb). Figures of these lessons are free to reuse.
