"""One stage of a pipeline, pass by pass: the events that it meets at, and its own work before each.

The events of tensor parallelism are the closed form that real traces are checked against (`minitp.trace.predict`), of
the layers that the stage holds, in the number type of the job. Which passes there are, and in which order, say
`training` and `generation`.
"""
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from minitp.plan.job import FLOAT32_BYTES, Job, bytes_of
from minitp.plan.layout import Layout
from minitp.plan.machine import Machine
from minitp.plan.model import PlannedModel
from minitp.plan.simulate.work import Work, computed_in
from minitp.trace.schema import Expected

_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "tf32": "float32"}        # as a trace spells them
_SITES = {"forward": "pipeline.activation", "backward": "pipeline.gradient", "sample": "pipeline.token"}


class Step(NamedTuple):
    """One event of a stage: seconds of own work before it, on which axis it meets, and what it moves.

    peer   of a message: the stage at the other end      message   of a message: what tells it from all others
    """
    own: float
    axis: str
    event: Expected
    peer: int = -1
    message: tuple = ()


class StagePass(NamedTuple):
    """What lies under one mark of a trace; `tail`: seconds of own work after the last event."""
    phase: str
    step: int
    micro_batch: int | None
    steps: tuple[Step, ...]
    tail: float = 0.0


@dataclass(frozen=True)
class Stage:
    """One stage, as the rank `work.rank` of its tp group sees it."""
    model: PlannedModel
    layout: Layout
    job: Job
    machine: Machine
    work: Work
    stage: int

    @property
    def last(self) -> bool:
        return self.stage == self.layout.pp - 1

    def layers(self, chunk: int = 0) -> range:
        return self.layout.layers_of(self.model.config.layers, self.stage)[chunk]

    def mine(self, events: Iterable[Expected], chunk: int = 0) -> list[Expected]:
        """Those of the parts of the model that the stage's chunk holds."""
        part, parts = chunk * self.layout.pp + self.stage, self.layout.pp * self.layout.chunks
        layers = self.layers(chunk)
        return [event for event in events if (
            int(event.site.split(".")[1]) in layers if event.site.startswith("layers.") else
            part == 0 if event.site == "embedding" else part == parts - 1)]

    def steps(self, events: Iterable[Expected], work: Mapping[str, float], chunk: int = 0,
              size: float | None = None) -> list[Step]:
        """The chunk's events as steps; `work`: seconds before an event, by its site with the layer left out.

        size    bytes of a number (None: the job's activations); logits, the loss's numbers and the norm keep their own
        """
        return [Step(work.get(part_of(event.site), 0.0), "tp", self.typed(event, size))
                for event in self.mine(events, chunk)]

    def typed(self, event: Expected, size: float | None = None) -> Expected:
        """A float32 event in the number type of the job."""
        own_type = event.dtype != "float32" or event.site.startswith("loss.") or event.shape[-1] == self.vocab
        if own_type or computed_in(self.job) == "float32":
            return event
        each = bytes_of(computed_in(self.job)) if size is None else size
        return event._replace(dtype=self.dtype, payload=round(event.payload / FLOAT32_BYTES * each))

    @property
    def dtype(self) -> str:
        """Of what is computed, as a trace spells it."""
        return _DTYPES.get(computed_in(self.job), computed_in(self.job))

    @property
    def vocab(self) -> int:
        return self.model.config.vocab

    def message(self, direction: str, source: int, to: int, like: Expected, shape: tuple[int, ...], payload: float,
                chunk: int = 0) -> Step:
        """This stage's end of a message: the sending one where it is the source. `like`: an event of the same pass."""
        op, peer = ("send", to) if source == self.stage else ("receive", source)
        event = like._replace(op=op, site=_SITES[direction], plane="sample" if direction == "sample" else "data",
                              shape=shape, payload=round(payload), before="whole", after="whole")
        return Step(0.0, "pp", event, peer, (direction, source, to, chunk, like.step, like.micro_batch))


def part_of(site: str) -> str:
    """attention.o of layers.3.attention.o; what isn't in a layer stays as it is."""
    return site.split(".", 2)[2] if site.startswith("layers.") else site
