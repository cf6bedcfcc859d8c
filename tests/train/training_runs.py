"""A training run to record: steps of several sizes, an evaluation and a sample text."""
import numpy as np

from minitp.generate import Generation, Request, run
from minitp.gradients import Gradients
from minitp.layers import IGNORED, VocabParallelCrossEntropy
from minitp.model import Transformer
from minitp.placement import Placement
from minitp.trace import collect, run_info
from minitp.trace.predict import Evaluation, Sample, Steps, TrainingPlan
from minitp.train.optimizer import AdamW
from minitp.train.step import MicroBatch, Passes, evaluate, train_step
from minitp.weights import load_weights
from tests.families import FAMILIES, source_of

UNEQUAL = ((2, 5), (1, 3), (3, 1))                      # (sequences, tokens) of a step's micro-batches


def train(comm, family="llama", embedding="vocab", load="slice", dtype="float64", recompute="none",
          micro_batches=UNEQUAL, between=False, **passes):
    """A training step; `between`: an evaluation, a sample and two steps after it. Returns what was run."""
    placement, micro_batches = Placement(FAMILIES[family], comm.size, embedding), tuple(map(tuple, micro_batches))
    weights = load_weights(source_of(family), placement, comm, mode=load, dtype=dtype)
    model, loss = Transformer(placement.config, placement, comm), VocabParallelCrossEntropy(comm, placement.vocab)
    gradients, optimizer = Gradients(weights), AdamW(weights)
    how = Passes(dtype, recompute, **passes)

    def step(number, sizes):
        train_step(model, loss, weights, gradients, optimizer, batches(sizes, placement.config.vocab), 0.01,
                   step=number, limit=0.1, passes=how)
        return Steps(number, 1, sizes)

    done = [step(0, micro_batches)]
    if between:
        evaluate(model, loss, weights, iter(batches(((2, 3),), placement.config.vocab)), step=1, passes=how)
        generation = Generation(model, weights, Request(((1, 2, 3),), 2, gathered=False), dtype=dtype)
        run(generation)
        done += [Evaluation(1, ((2, 3),)), Sample(1, tuple(generation.passes), 2, False),
                 *(step(number, micro_batches[:1]) for number in (1, 2))]
    return TrainingPlan(placement, dtype, done, recompute, load)


def batches(sizes, vocab):
    """Drawn ids, some of whose targets don't count."""
    made = []
    for batch, tokens in sizes:
        ids = np.random.default_rng([batch, tokens]).integers(vocab, size=(batch, tokens + 1))
        targets = np.where(ids[:, 1:] == ids[0, 1], IGNORED, ids[:, 1:])
        made.append(MicroBatch(ids[:, :-1], targets, tuple(range(batch))))
    return made


def traced(comm, **options):
    """The trace of such a run on rank 0, None on the others."""
    done = train(comm, **options)
    return collect(comm, comm.recorder, run_info(comm, argv=["train"], **done.to_run()))
