"""Where a block's whole activations meet its split matrices: the f and g of Shoeybi et al. 2019 as one object.

|         | enter (f)  | leave (g)  |
|---------|------------|------------|
| forward | nothing    | all-reduce |
| backward| all-reduce | nothing    |

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

    def leave_backward(self, dy: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        """dy is whole, and so is the gradient of every rank's term: they were only added."""
        return dy

    def enter_backward(self, partial: Float[Partial, "B T D"], site: str, reason: str) -> Float[Array, "B T D"]:
        """x went into every rank's columns, so its gradient is the sum of what comes back from them."""
        return self.group.all_reduce(partial, site=site, reason=reason)
