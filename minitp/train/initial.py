"""What training starts from: weights drawn by global index, the same on any number of ranks; and what learns them."""
from math import inf

import numpy as np

from minitp.gradients import Gradients
from minitp.layers import VocabParallelCrossEntropy
from minitp.model import Transformer
from minitp.placement import Parameter
from minitp.train.config import TrainConfig
from minitp.train.loop import Learner
from minitp.train.optimizer import AdamW
from minitp.train.schedule import Schedule
from minitp.train.step import Passes
from minitp.weights import RandomSource, Weights

SPREAD = 0.02
RESIDUAL = ("attention.o.weight", "mlp.down.weight")


class InitialWeights(RandomSource):
    """GPT-2's: norms 1, biases 0, matrices normal with a deviation of 0.02, and those that write into the residual
    stream by √(2L) smaller, as 2L of them add up in it. Radford et al. 2019, section 2.3."""

    def scale(self, parameter: Parameter) -> float:
        return SPREAD * (2 * self.config.layers) ** -0.5 if parameter.name.endswith(RESIDUAL) else SPREAD


def working_dtype(config: TrainConfig) -> np.dtype:
    """What arrays are made of: in bf16 mode float32 arrays of rounded numbers."""
    return np.dtype(np.float64 if config.train.dtype == "float64" else np.float32)


def schedule_of(config: TrainConfig) -> Schedule:
    """The rate of each step of the whole run; a warm-up that was left out is a part of its steps."""
    return Schedule(config.optimizer.rate, config.train.steps, config.warmup, config.optimizer.min_rate)


def make_learner(config: TrainConfig, model: Transformer, weights: Weights) -> Learner:
    """The optimizer and all that a step needs, by the run's settings."""
    learn, settings, group = config.optimizer, config.train, model.group
    optimizer = AdamW(weights, arrays=group.arrays, betas=(learn.beta1, learn.beta2), eps=learn.eps, decay=learn.decay,
                      bf16=settings.dtype == "bf16")
    passes = Passes(working_dtype(config), settings.recompute, settings.dropout, settings.seed,  # type: ignore[arg-type]
                    group.arrays)
    return Learner(model, weights, Gradients(weights, group.arrays), optimizer, schedule_of(config),
                   VocabParallelCrossEntropy(group, model.placement.vocab, settings.label_smoothing), passes,
                   settings.micro_batches, learn.clip or inf)
