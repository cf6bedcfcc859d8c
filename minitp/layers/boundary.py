"""Where a block's whole activations meet its split matrices: the f and g of Shoeybi et al. 2019 as one object.

| forward | enter (f) | leave (g)  |
|---------|-----------|------------|
| tensor  | nothing   | all-reduce |

Blocks own a boundary and call it; the layers inside compute products and know nothing of it.
"""
from dataclasses import dataclass

from jaxtyping import Float

from minitp.arrays import Array
from minitp.comm import Communicator, Partial


@dataclass(frozen=True)
class TensorBoundary:
    """Activations between blocks are whole on every rank."""
    group: Communicator

    def enter(self, x: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        return x

    def leave(self, partial: Float[Partial, "B T D"], site: str, reason: str) -> Float[Array, "B T D"]:
        return self.group.all_reduce(partial, site=site, reason=reason)
