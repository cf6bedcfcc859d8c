"""DeepSpeed's estimators of memory for model states (its docs/code-docs/source/memory.rst).

Parameters, gradients and optimizer alone: no activations, no buckets, no live or prefetched parameters, no context. In
issue 4527 a card shows 14,678 MiB where the estimator says 0.49 GiB. There is no estimator of stage 1.
"""
from dataclasses import dataclass

from minitp.errors import ConfigError

SOURCE = "DeepSpeed, memory.rst"
BUFFERS = 1.5
"""On the host everything is counted one and a half times."""


@dataclass(frozen=True)
class Setup:
    """What the estimators are asked for.

    optimizer, weights  whether they are kept in the host's memory (weights: stage 3 alone)
    init                whether the model is built in pieces from the start (zero.Init), not whole on every process
    """
    params: float
    gpus_per_node: int = 1
    nodes: int = 1
    largest_layer: float = 0
    optimizer: bool = True
    weights: bool = True
    init: bool = True
    buffers: float = BUFFERS

    @property
    def gpus(self) -> int:
        return self.gpus_per_node * self.nodes

    def __post_init__(self):
        if self.weights and not self.optimizer:
            raise ConfigError("DeepSpeed keeps weights in the host's memory only where the optimizer is there too")


def zero2_gpu(setup: Setup) -> tuple[float, str]:
    """Bytes on a GPU in stage 2: 2P, or 4P + 16P/N: here gradients aren't divided, against the ZeRO paper."""
    if setup.optimizer:
        return 2 * setup.params, "2P"
    return 4 * setup.params + 16 * setup.params / setup.gpus, "4P + 16P/N"


def zero2_cpu(setup: Setup) -> tuple[float, str]:
    """Bytes in a host's memory in stage 2."""
    if setup.optimizer:
        return setup.buffers * setup.params * max(4 * setup.gpus, 16), "1.5·P·max(4N, 16)"
    return setup.buffers * setup.params * 4 * setup.gpus_per_node, "1.5·P·4n"


def zero3_gpu(setup: Setup) -> tuple[float, str]:
    """Bytes on a GPU in stage 3: the largest layer gathered with its gradient, and a share of what isn't offloaded."""
    layer = 4 * setup.largest_layer
    if setup.weights:
        return layer, "4·largest"
    if setup.optimizer:
        return layer + 2 * setup.params / setup.gpus, "4·largest + 2P/N"
    return layer + 18 * setup.params / setup.gpus, "4·largest + 18P/N"


def zero3_cpu(setup: Setup) -> tuple[float, str]:
    """Bytes in a host's memory in stage 3; without `init` each process holds the whole model first."""
    whole = 4 * setup.gpus_per_node
    if not setup.optimizer:
        if setup.init:
            return setup.buffers * setup.largest_layer * whole, "1.5·largest·4n"
        return setup.buffers * setup.params * whole, "1.5·P·4n"
    kept = 18 if setup.weights else 16
    if setup.init:
        return setup.buffers * setup.params * kept / setup.nodes, f"1.5·P·{kept}/nodes"
    return setup.buffers * setup.params * max(whole, kept / setup.nodes), f"1.5·P·max(4n, {kept}/nodes)"
