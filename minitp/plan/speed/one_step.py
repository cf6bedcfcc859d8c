"""One training step, of which one stage is asked about: what its bytes and its times are reckoned from."""
from dataclasses import dataclass
from functools import cached_property

from minitp.plan.job import Training
from minitp.plan.layout import Layout
from minitp.plan.machine import Machine
from minitp.plan.model import PlannedModel


@dataclass(frozen=True)
class OneStep:
    """All that the rows of one question have in common."""
    model: PlannedModel
    layout: Layout
    job: Training
    machine: Machine
    stage: int

    @cached_property
    def m(self) -> int:
        """Micro-batches of each replica."""
        return self.job.micro_batches(self.layout.dp)

    @property
    def tokens(self) -> int:
        """Of each sequence on one rank: the longest piece of the sequence."""
        return -(-self.job.seq // self.layout.cp)

    @property
    def layers(self) -> int:
        """On the stage."""
        return self.layout.layers_on(self.model.config.layers, self.stage)
