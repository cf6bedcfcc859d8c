"""One training step as a stage of the pipeline sees it: its passes by the schedule, what is owed, the optimizer.

What the axes other than tp move is counted by `minitp.plan.speed.traffic`; here it is put in order. Nothing overlaps:
gradients are reduced when the last backward pass has ended (with ZeRO-2 and 3 after each), weights are gathered before
each pass (ZeRO-3).
"""
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod

from minitp.plan import schedule
from minitp.plan.job import FLOAT32_BYTES, Recompute, Training
from minitp.plan.schedule import DIRECTIONS, Instruction
from minitp.plan.simulate.stages import Stage, StagePass, Step, part_of
from minitp.plan.speed import flops, traffic
from minitp.plan.speed.traffic import Traffic
from minitp.trace.predict_pass import Pass
from minitp.trace.predict_training import optimizer
from minitp.trace.schema import Expected

STEP = 0                           # the number of the step that is simulated


@dataclass(frozen=True)
class TrainingStep:
    """A step on one stage."""
    stage: Stage
    job: Training

    def passes(self) -> Iterator[StagePass]:
        layout = self.stage.layout
        order = schedule.of_stage(layout.schedule, layout.pp, self.micro_batches, layout.chunks, self.stage.stage)
        last = max(n for n, one in enumerate(order) if one.kind == "backward")
        for n, instruction in enumerate(order):
            one = self._with_messages(instruction.kind, instruction, self._steps(instruction))
            yield one._replace(steps=(*one.steps, *self._once())) if n == last else one
        yield self._optimizer()

    def count(self) -> int:
        """How many events `passes` has: those of one micro-batch, as often as there are."""
        of_one = [Instruction(kind, 0, chunk) for kind in DIRECTIONS for chunk in range(self.stage.layout.chunks)]
        each = sum(len(self._with_messages(one.kind, one, self._steps(one)).steps) for one in of_one)
        return self.micro_batches * each + len(self._once()) + len(self._optimizer().steps)

    @cached_property
    def micro_batches(self) -> int:
        return self.job.micro_batches(self.stage.layout.dp)

    @cached_property
    def tokens(self) -> int:
        """Of a micro-batch on one rank, of one sequence."""
        return -(-self.job.seq // self.stage.layout.cp)

    @cached_property
    def rows(self) -> list[Traffic]:
        stage = self.stage
        return traffic.step(stage.model, stage.layout, self.job, stage.machine, stage.stage)

    # --- passes ---------------------------------------------------------------------------------------------------

    def _pass(self, phase: str, micro_batch: int) -> Pass:
        layout = self.stage.layout
        placement = self.stage.model.placement(layout.tp, layout.embedding, layout.cut)
        return Pass(placement, "float32", self.job.micro_batch, self.tokens, phase, STEP, micro_batch)

    def _steps(self, instruction: Instruction) -> list[Step]:
        """The sync points of a chunk: worked out for one micro-batch, and alike for all."""
        key = instruction.kind, instruction.chunk
        if key not in self._alike:
            self._alike[key] = (self._forward if instruction.kind == "forward" else self._backward)(instruction.chunk)
        return [step._replace(event=step.event._replace(micro_batch=instruction.micro_batch))
                for step in self._alike[key]]

    @cached_property
    def _alike(self) -> dict[tuple[str, int], list[Step]]:
        return {}

    def _forward(self, chunk: int) -> list[Step]:
        one = self._pass("forward", 0)
        first_parts, head = self._work
        events = _events(one, self.job.recompute)
        head_at = "head" if any(event.site == "head" for event in events) else "loss.max"
        work = first_parts | {head_at: head}
        return self._cut_along_sequence(self.stage.steps(events, work, chunk))

    def _backward(self, chunk: int) -> list[Step]:
        one = self._pass("backward", 0)
        events = _events(one, self.job.recompute)
        forward, head = self._work
        scores = self.again if self.job.recompute == "selective" else 0.0
        attention, mlp = 2 * forward.get("attention.o", 0.0) + scores, 2 * forward["mlp.down"]
        if self.stage.model.config.parallel_block:
            mlp += scores
        head_at = "head.input" if any(event.site == "head.input" for event in events) else "head"
        work = forward | {self._up: mlp, "attention.qkv": attention, head_at: 2 * head}
        return self._cut_along_sequence(self.stage.steps(events, work, chunk))

    @cached_property
    def _work(self) -> tuple[dict[str, float], float]:
        """Seconds of a micro-batch's forward pass before the sync points of a layer; and of the head."""
        work, tokens = self.stage.work, self.job.micro_batch * self.tokens
        attention, mlp = work.attention(tokens, flops.attended(self.job.seq)), work.mlp(tokens)
        if self.stage.model.config.parallel_block:
            return {"mlp.down": attention + mlp}, work.head(tokens)
        return {"attention.o": attention, "mlp.down": mlp}, work.head(tokens)

    @cached_property
    def again(self) -> float:
        """Seconds of attention's scores, computed a second time."""
        return self.stage.work.scores(self.job.micro_batch * self.tokens, flops.attended(self.job.seq))

    @property
    def _up(self) -> str:
        return "mlp.gate_up" if self.stage.model.config.gated else "mlp.up"

    @property
    def _partners(self) -> dict[str, str]:
        """The other end of a block: where what a sync point sums was whole before."""
        pairs = {"mlp.down": self._up} | ({} if self.stage.model.config.parallel_block
                                          else {"attention.o": "attention.qkv"})
        return pairs | {other: one for one, other in pairs.items()}

    def _cut_along_sequence(self, steps: list[Step]) -> list[Step]:
        """With sequence parallelism a sum over the ranks is reduced to pieces of the sequence, which are gathered where
        the next block (backward: the one before) needs them whole (Korthikanti et al. 2022, section 4.2.2)."""
        if not self.stage.layout.sequence:
            return steps
        made: list[Step] = []
        for step in steps:
            event, part = step.event, part_of(step.event.site)
            if event.site == "loss.max":
                made.append(Step(0.0, "tp", self._gathered(event.phase, event.micro_batch, "head")))
            if part in self._partners:
                site = event.site.removesuffix(part) + self._partners[part]
                made.append(Step(0.0, "tp", self._gathered(event.phase, event.micro_batch, site)))
            summed = event.op == "all_reduce" and (part in self._partners or part in ("embedding", "head"))
            made.append(step._replace(event=event._replace(op="reduce_scatter", after="shard(-2)")) if summed else step)
            if event.phase == "backward" and event.site.startswith("layers.0.") and step is steps[-1]:
                made.append(Step(0.0, "tp", self._gathered(event.phase, event.micro_batch, "embedding")))
        return made

    def _gathered(self, phase: str, micro_batch: int | None, site: str) -> Expected:
        """The stream, gathered along the sequence."""
        shape = (self.job.micro_batch, self.tokens, self.stage.model.config.hidden)
        event = self._like("all_gather", phase, micro_batch, shape, prod(shape) * self.job.precision.activations)
        return event._replace(site=site, before="shard(-2)")

    # --- messages between stages ------------------------------------------------------------------------------------

    def _with_messages(self, direction: str, instruction: Instruction, steps: list[Step]) -> StagePass:
        """What comes from the part of the model before (backward: behind), and what goes to the next."""
        layout, stage = self.stage.layout, self.stage.stage
        part, parts = instruction.chunk * layout.pp + stage, layout.pp * layout.chunks
        to = 1 if direction == "forward" else -1
        before = self._weights(direction, instruction)
        after = self._each(instruction) if direction == "backward" else []
        if 0 <= part - to < parts:
            before += self._message(direction, instruction, part - to, part)
        sent = self._message(direction, instruction, part, part + to) if 0 <= part + to < parts else []
        return StagePass(direction, STEP, instruction.micro_batch, (*before, *steps, *sent, *after))

    def _message(self, direction: str, instruction: Instruction, source: int, to: int) -> list[Step]:
        """One message between parts of the model; a piece of it for each tp rank, which the receivers gather."""
        stage, pp = self.stage, self.stage.layout.pp
        row = next(row for row in self.rows if row.axis == "pp" and row.op == "send")
        whole = (self.job.micro_batch, self.tokens, stage.model.config.hidden)
        like = self._like("send", direction, instruction.micro_batch, whole, row.payload)
        cut = round(prod(whole) * self.job.precision.activations / row.payload)
        shape = (whole[0], -(-whole[1] // cut), whole[2])
        made = [stage.message(direction, source % pp, to % pp, like, shape, row.payload, source // pp)]
        gather = next((row for row in self.rows if row.term == "gather of what comes from a stage"), None)
        if gather is not None and to % pp == stage.stage:
            made.append(Step(0.0, "tp", like._replace(op="all_gather", site=made[0].event.site, shape=whole,
                                                      payload=round(gather.payload), before="shard(-2)")))
        return made

    def _like(self, op: str, phase: str, micro_batch: int | None, shape: tuple[int, ...], payload: float) -> Expected:
        return Expected(op, "", "data", phase, STEP, micro_batch, self.stage.dtype, shape, round(payload), "whole",
                        "whole")

    # --- data parallelism -------------------------------------------------------------------------------------------

    def _data(self, phase: str, each: bool) -> Iterable[Traffic]:
        """Rows of the dp axis: those of each micro-batch, or those of the whole step."""
        return (row for row in self.rows if row.axis == "dp" and row.phase == phase
                and (row.part is not None) == each)

    def _dp(self, row: Traffic, micro_batch: int | None, own: float = 0.0) -> Step:
        states = {"all_reduce": ("partial", "whole"), "reduce_scatter": ("partial", "shard(0)"),
                  "all_gather": ("shard(0)", "whole")}[row.op]
        numbers = self.job.precision.weights if row.op == "all_gather" else self.job.precision.gradients
        event = self._like(row.op, row.phase, micro_batch, (round(row.payload / numbers),), row.payload)
        site = "weights" if row.op == "all_gather" else "gradients"
        return Step(own, "dp", event._replace(site=f"{site}.replicas", before=states[0], after=states[1]))

    def _times(self, row: Traffic, instruction: Instruction) -> int:
        """How often a chunk has the part of the model that one such collective is of."""
        stage, chunk = self.stage, instruction.chunk
        if row.part == "layer":
            return len(stage.layers(chunk))
        return int(chunk == 0 if row.part == "embedding" else chunk == stage.layout.chunks - 1)

    def _weights(self, direction: str, instruction: Instruction) -> list[Step]:
        return [self._dp(row, instruction.micro_batch) for row in self._data(direction, True)
                if row.op == "all_gather" for _ in range(self._times(row, instruction))]

    def _each(self, instruction: Instruction) -> list[Step]:
        return [self._dp(row, instruction.micro_batch) for row in self._data("backward", True)
                if row.op != "all_gather" for _ in range(self._times(row, instruction))]

    def _once(self) -> list[Step]:
        """When the last backward pass has ended."""
        return [self._dp(row, None) for row in self._data("backward", False)]

    # --- the optimizer ----------------------------------------------------------------------------------------------

    def _optimizer(self) -> StagePass:
        """What the tp group owes, the norm of all gradients, the update, and with ZeRO the updated weights."""
        stage, layout = self.stage, self.stage.layout
        placement = stage.model.placement(layout.tp, layout.embedding, layout.cut)
        layers, mine = stage.model.config.layers, layout.layers_on(stage.model.config.layers, stage.stage)
        steps = []
        for row in self.rows:
            if row.phase == "optimizer" and row.axis == "sp":
                steps.append(self._owed("tp", "gradients.norms", row.payload))
            if row.phase == "optimizer" and row.axis == "pp":
                steps.append(self._owed("ends", "gradients.table", row.payload))
        for event in optimizer(placement, "float32", STEP):
            if event.site == "gradients.copies":
                numbers = event.shape[0] * mine // layers
                event = replace_payload(event, numbers)
            steps.append(Step(0.0, "tp", stage.typed(event, self.job.precision.gradients)))
            if event.site == "gradients.norm" and layout.pp > 1:
                steps.append(steps[-1]._replace(axis="pp"))
        update = stage.work.update(stage.stage)
        gathers = [self._dp(row, None, own=0.0 if n else update)
                   for n, row in enumerate(self._data("optimizer", False))]
        return StagePass("optimizer", STEP, None, (*steps, *gathers), 0.0 if gathers else update)

    def _owed(self, axis: str, site: str, payload: float) -> Step:
        event = self._like("all_reduce", "optimizer", None, (round(payload / self.job.precision.gradients),), payload)
        return Step(0.0, axis, event._replace(site=site, before="partial"))


@lru_cache(maxsize=8)
def _events(one: Pass, recompute: Recompute) -> tuple[Expected, ...]:
    """Of a whole pass; every stage picks its own."""
    return tuple(one.backward(recompute) if one.phase == "backward" else [*one.forward(gathered=False), *one.loss()])


def replace_payload(event: Expected, numbers: int) -> Expected:
    """The same float32 event of so many numbers."""
    return event._replace(shape=(numbers,), payload=numbers * FLOAT32_BYTES)
