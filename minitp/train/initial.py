"""What training starts from: weights drawn by global index, the same on any number of ranks; the step around them."""
import numpy as np

from minitp.model import Transformer
from minitp.placement import Parameter
from minitp.train.config import TrainConfig
from minitp.train.optimizer import AdamW
from minitp.train.schedule import Schedule
from minitp.train.step import TrainStep
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


def make_step(config: TrainConfig, model: Transformer, weights: Weights) -> TrainStep:
    """The optimizer and all that a step needs, by the run's settings."""
    learn, settings = config.optimizer, config.train
    optimizer = AdamW(weights, arrays=model.group.arrays, betas=(learn.beta1, learn.beta2), eps=learn.eps,
                      decay=learn.decay, bf16=settings.dtype == "bf16")
    schedule = Schedule(learn.rate, settings.steps, config.warmup, learn.min_rate)
    return TrainStep(model, weights, optimizer, schedule, dtype=working_dtype(config),
                     micro_batches=settings.micro_batches, recompute=settings.recompute,           # type: ignore
                     dropout=settings.dropout, seed=settings.seed, smoothing=settings.label_smoothing,
                     limit=learn.clip or float("inf"))
