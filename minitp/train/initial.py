"""The weights that training starts from: drawn by global index, so the same at any number of ranks."""
from minitp.placement import Parameter
from minitp.weights import RandomSource

SPREAD = 0.02
RESIDUAL = ("attention.o.weight", "mlp.down.weight")


class InitialWeights(RandomSource):
    """GPT-2's: norms 1, biases 0, matrices normal with a deviation of 0.02, and those that write into the residual
    stream by √(2L) smaller, as 2L of them add up in it. Radford et al. 2019, section 2.3."""

    def scale(self, parameter: Parameter) -> float:
        return SPREAD * (2 * self.config.layers) ** -0.5 if parameter.name.endswith(RESIDUAL) else SPREAD
