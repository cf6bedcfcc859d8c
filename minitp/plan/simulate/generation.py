"""A generation as a stage of the pipeline sees it: a pass over the prompts, then one for every new token.

With stages the sequences of a prompt follow one another, each a pass of its own (as micro-batches do); a decode pass
takes all sequences at once, and the first stage waits for the tokens that the last one has chosen.
"""
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from minitp.plan.job import TOKEN_BYTES, Inference, bytes_of
from minitp.plan.layout import Layout
from minitp.plan.model import PlannedModel
from minitp.plan.simulate.stages import Stage, StagePass, Step
from minitp.plan.simulate.work import computed_in
from minitp.plan.speed import flops
from minitp.trace.predict import GenerationPlan, forward_pass
from minitp.trace.schema import Expected


def plan_of(model: PlannedModel, layout: Layout, job: Inference, batch: int) -> GenerationPlan:
    """The closed form of the generation of `batch` sequences on one tp group."""
    placement = model.placement(layout.tp, layout.embedding, layout.cut)
    passes = [("prefill", job.prompt), *(("decode", 1) for _ in range(job.new - 1))]
    return GenerationPlan(placement, "slice", "float32", batch, passes, job.new, every_row=job.every_row)


@dataclass(frozen=True)
class GenerationSteps:
    """All passes on one stage."""
    stage: Stage
    job: Inference

    def passes(self) -> Iterator[StagePass]:
        alone = self.stage.layout.pp == 1
        for step, (phase, tokens) in enumerate(self.plan(self.sequences).passes):
            if phase == "prefill" and not alone and self.sequences > 1:
                for n in range(self.sequences):
                    yield self._pass(phase, step, tokens, 1, n)
            else:
                yield self._pass(phase, step, tokens, self.sequences, None)

    def count(self) -> int:
        """How many events `passes` has: of a prompt's, and one new token's as often as there are more."""
        few = replace(self, job=replace(self.job, new=min(self.job.new, 3)))
        each = [(one.step, len(one.steps)) for one in few.passes()]
        again = sum(events for step, events in each if step == 1) * (self.job.new - few.job.new)
        return sum(events for _, events in each) + again

    @cached_property
    def sequences(self) -> int:
        """On one replica."""
        return -(-self.job.batch // self.stage.layout.dp)

    def plan(self, batch: int) -> GenerationPlan:
        return plan_of(self.stage.model, self.stage.layout, self.job, batch)

    def _pass(self, phase: str, step: int, tokens: int, batch: int, micro_batch: int | None) -> StagePass:
        stage, pp = self.stage, self.stage.layout.pp
        plan = self.plan(batch)
        events = [event._replace(micro_batch=micro_batch) for event in forward_pass(plan, phase, step, tokens)]
        steps = stage.steps(events, self._work(step, tokens, batch))
        like, shape = stage.typed(events[0]), (batch, tokens, stage.model.config.hidden)
        size = batch * tokens * stage.model.config.hidden * bytes_of(computed_in(self.job))
        before: list[Step] = []
        if pp > 1 and stage.stage == 0 and step:
            before = self._tokens(like._replace(step=step - 1), batch)
        if stage.stage:
            before.append(stage.message("forward", stage.stage - 1, stage.stage, like, shape, size))
        after = [stage.message("forward", stage.stage, stage.stage + 1, like, shape, size)] if not stage.last else []
        if pp > 1 and stage.last and step + 1 < len(plan.passes) and micro_batch in (None, self.sequences - 1):
            after += self._tokens(like, self.sequences)
        return StagePass(phase, step, micro_batch, (*before, *steps, *after))

    def _tokens(self, like: Expected, batch: int) -> list[Step]:
        """What the last stage has chosen, on its way to the first."""
        like = like._replace(micro_batch=None, dtype="int32")
        return [self.stage.message("sample", self.stage.layout.pp - 1, 0, like, (batch, 1), TOKEN_BYTES * batch)]

    def _work(self, step: int, tokens: int, batch: int) -> dict[str, float]:
        """Seconds before the sync points of a layer and of the logits."""
        work, prompt = self.stage.work, self.job.prompt
        context = flops.attended(prompt, causal=True) if step == 0 else prompt + step
        cached = batch * (prompt + step)
        attention = work.attention(batch * tokens, context, cached)
        mlp = work.mlp(batch * tokens)
        head = work.head(batch * (tokens if self.job.every_row else 1))
        if self.stage.model.config.parallel_block:
            return {"mlp.down": attention + mlp, "head": head}
        return {"attention.o": attention, "mlp.down": mlp, "head": head}
