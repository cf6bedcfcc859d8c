"""How long a rank computes between two sync points, by the roofline: operations or bytes, whichever takes longer.

Operations are counted by `minitp.plan.speed.flops`, from the placement; bytes are the weights that are multiplied with
and the cache that is read, each once. Norms, activations and launches aren't in it. A backward pass takes twice.
"""
from dataclasses import dataclass

from minitp.plan.job import Inference, Job, bytes_of
from minitp.plan.layout import Layout, Place
from minitp.plan.machine import Device
from minitp.plan.model import PlannedModel
from minitp.plan.speed import flops, reading
from minitp.plan.speed.step import arithmetic, updated


def computed_in(job: Job) -> str:
    """The number type of products."""
    if isinstance(job, Inference):
        return job.activations
    return arithmetic(job)


@dataclass(frozen=True)
class Work:
    """Seconds of one rank of a tp group: of one layer's attention or MLP, of the head, of the optimizer."""
    model: PlannedModel
    layout: Layout
    job: Job
    device: Device
    rank: int

    @property
    def share(self) -> flops.Matrices:
        return flops.matrices(self.model, self.layout.tp, self.rank, self.layout.cut, self.layout.embedding)

    def roofline(self, operations: float, size: float) -> float:
        """Operations at the rate that large products reach, or bytes at the rate that memory reaches."""
        rate = self.device.peak(computed_in(self.job)) * self.device.flops_reached
        return max(operations / rate, size / (self.device.bandwidth * self.device.bandwidth_reached))

    def attention(self, tokens: int, context: float, cached: float = 0) -> float:
        """`tokens` of all sequences together, each attending to `context` positions; `cached` positions are read."""
        projections = 2.0 * tokens * self.share.projections
        cache = (reading.cache(self.model, self.layout, self.job, self.rank, cached)
                 if isinstance(self.job, Inference) else 0.0)
        return self.roofline(projections, self.share.projections * self.weights) + self.scores(tokens, context, cache)

    def scores(self, tokens: int, context: float, cache: float = 0) -> float:
        """Attention's scores alone, which selective recomputation computes again; `cache` bytes are read for them."""
        one = flops.per_token(self.model, context, layers=1, head=False, share=self.share)
        return self.roofline(tokens * one.scores, cache)

    def mlp(self, tokens: int) -> float:
        """Of experts those are read that `tokens` tokens visit together, and the router."""
        one = flops.per_token(self.model, 0, layers=1, head=False, share=self.share)
        read: float = self.share.mlp
        if self.model.experts > 1:
            router = self.model.config.hidden * self.model.experts
            visited = flops.touched(self.model.experts, self.model.active, tokens)
            read = (read - router) / self.model.active * visited + router
        return self.roofline(tokens * one.mlp, read * self.weights)

    def head(self, tokens: int) -> float:
        return self.roofline(2.0 * tokens * self.share.head, self.share.head * self.weights)

    def update(self, stage: int) -> float:
        """The optimizer reads the gradients, reads and writes its state, and writes the weights; cut by ZeRO."""
        if isinstance(self.job, Inference):
            return 0.0
        return self.roofline(0, updated(self.model, self.layout, self.job, Place(self.rank, 0, 0, stage))[1])

    @property
    def weights(self) -> float:
        """Bytes of a weight."""
        return bytes_of(self.job.weights) if isinstance(self.job, Inference) else self.job.precision.weights
