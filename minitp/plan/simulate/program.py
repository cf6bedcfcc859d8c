"""All lanes of a predicted run as one program for the engine: what each does, who meets whom, and what that takes."""
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from minitp.errors import ConfigError
from minitp.plan.job import Job, Training
from minitp.plan.layout import AXES, Layout
from minitp.plan.machine import Machine
from minitp.plan.model import PlannedModel
from minitp.plan.simulate.classes import Lane, Straggler
from minitp.plan.simulate.engine import Program
from minitp.plan.simulate.generation import GenerationSteps
from minitp.plan.simulate.prices import of_sync
from minitp.plan.simulate.queue import Queues
from minitp.plan.simulate.stages import Stage, StagePass, Step
from minitp.plan.simulate.training import TrainingStep
from minitp.plan.simulate.work import Work
from minitp.trace.timeline import LAST, NOBODY, SENDER

NS = 1e9
ENDS = "ends"                      # the axis of the first and the last stage, where they share a table


@dataclass(frozen=True)
class Noise:
    """What makes ranks differ. Lognormal jitter of mean 1: `jitter` is σ of a span's logarithm."""
    stragglers: tuple[Straggler, ...] = ()
    jitter: float = 0.0
    seed: int = 0

    def __post_init__(self):
        if not 0 <= self.jitter <= 2:
            raise ConfigError(f"jitter is the σ of a lognormal factor, from 0 to 2, not {self.jitter:g}")
        if self.seed < 0:
            raise ConfigError(f"a seed is 0 or more, not {self.seed}")

    def factor(self, device: int) -> float:
        """How many times as long as the others the device computes."""
        return next((one.factor for one in self.stragglers if one.device == device), 1.0)

    def spans(self, device: int, own: np.ndarray, mates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Own work with jitter, and by how much the last of so many alike comes after it; by device, not by lane."""
        if not self.jitter:
            return own, np.zeros(len(own))
        random = np.random.default_rng([self.seed, device])
        drawn = np.exp(self.jitter * random.standard_normal(len(own)) - self.jitter ** 2 / 2)
        others = np.zeros(len(own))
        for count in np.unique(mates[mates > 0]).tolist():
            some = mates == count
            largest = random.standard_normal((int(some.sum()), count)).max(axis=1)
            others[some] = np.exp(self.jitter * largest - self.jitter ** 2 / 2)
        return own * drawn, own * np.maximum(others - drawn, 0) * (mates > 0)


@dataclass(frozen=True)
class Run:
    """A predicted run: the lanes, what each does, and the columns that the engine takes; one entry per event.

    lane      which lane's the event is        step   the event itself
    passes    of each lane                     first  number of each lane's first event, and one more
    """
    model: PlannedModel
    layout: Layout
    job: Job
    machine: Machine
    lanes: Sequence[Lane]
    noise: Noise
    queue: bool = False

    @cached_property
    def passes(self) -> list[list[StagePass]]:
        """Of each lane; lanes of one stage and one part of the tp group share them."""
        made: dict[tuple[int, int], list[StagePass]] = {}
        for lane in self.lanes:
            key = lane.place.tp, lane.place.pp
            if key not in made:
                made[key] = self._passes_of(*key)
        return [made[lane.place.tp, lane.place.pp] for lane in self.lanes]

    def _passes_of(self, tp: int, pp: int) -> list[StagePass]:
        return list(self._work_of(tp, pp).passes())

    def _work_of(self, tp: int, pp: int) -> TrainingStep | GenerationSteps:
        if (tp, pp) not in self._works:
            work = Work(self.model, self.layout, self.job, self.machine.device, tp)
            stage = Stage(self.model, self.layout, self.job, self.machine, work, pp)
            self._works[tp, pp] = (TrainingStep(stage, self.job) if isinstance(self.job, Training)
                                   else GenerationSteps(stage, self.job))
        return self._works[tp, pp]

    @cached_property
    def _works(self) -> dict[tuple[int, int], TrainingStep | GenerationSteps]:
        return {}

    def count(self, lanes: Iterable[Lane]) -> int:
        """How many events these lanes have, from the sizes alone: all ranks of a stage have equally many."""
        stages = Counter(lane.place.pp for lane in lanes)
        return sum(lanes * self._work_of(0, stage).count() for stage, lanes in stages.items())

    @cached_property
    def steps(self) -> list[list[Step]]:
        """The events of each lane."""
        flat: dict[int, list[Step]] = {}
        return [flat.setdefault(id(passes), [step for one in passes for step in one.steps]) for passes in self.passes]

    @cached_property
    def first(self) -> list[int]:
        return np.cumsum([0, *map(len, self.steps)]).tolist()

    @cached_property
    def lane(self) -> np.ndarray:
        return np.repeat(np.arange(len(self.lanes)), list(map(len, self.steps)))

    def device(self, lane: int) -> int:
        return self.layout.rank(self.lanes[lane].place)

    # --- for the engine ---------------------------------------------------------------------------------------------

    @cached_property
    def program(self) -> Program:
        """The columns of all lanes, one after the other."""
        own, late, sync, rule = [], [], [], []
        numbers: dict[tuple, int] = {}
        for n, lane in enumerate(self.lanes):
            base, within, rules = self._columns(n)
            mates = np.where(within, lane.mates("tp"), 0)
            drawn, behind = self.noise.spans(self.device(n), base * self.noise.factor(self.device(n)) * NS, mates)
            own.append(drawn)
            late.append(behind)
            sync += [numbers.setdefault(key, len(numbers)) for key in self.keys(n)]
            rule.append(rules)
        waits, queues = np.concatenate(rule), Queues(self.machine)
        took = self._queued(queues, sync) if self.queue else [
            seconds for n, lane in enumerate(self.lanes) for seconds in self._each(lane, self.steps[n])]
        return Program(self.lane, np.concatenate(own), np.array(sync), waits, waits == NOBODY, np.array(took) * NS,
                       np.concatenate(late) if self.noise.jitter else None, queues.held, queues.free)

    def _columns(self, lane: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Per event of a lane seconds of own work, whether it meets along tp, and whom it waits for; the same for
        lanes that share their steps."""
        steps = self.steps[lane]
        if id(steps) not in self._made:
            rules = {"send": NOBODY, "receive": SENDER}
            self._made[id(steps)] = (np.array([step.own for step in steps]) + self.tails(lane)[:-1],
                                     np.array([step.axis == "tp" for step in steps], bool),
                                     np.array([rules.get(step.event.op, LAST) for step in steps], int))
        return self._made[id(steps)]

    @cached_property
    def _made(self) -> dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]]:
        return {}

    def _each(self, lane: Lane, steps: Sequence[Step]) -> list[float]:
        """What the syncs of a lane take, s; those that are alike are priced once."""
        alike: dict[tuple, float] = {}
        found = []
        for step in steps:
            key = step.axis, step.peer, step.event.op, step.event.payload
            if key not in alike:
                alike[key] = self._seconds(lane, step)
            found.append(alike[key])
        return found

    def tails(self, lane: int) -> np.ndarray:
        """Seconds of own work between the last event of a pass and its end, per event that follows; the last entry
        is what follows all events."""
        found = np.zeros(len(self.steps[lane]) + 1)
        at = 0
        for one in self.passes[lane]:
            at += len(one.steps)
            found[at] += one.tail
        return found

    def keys(self, lane: int) -> list[tuple]:
        """Per event of a lane what is equal for all that take part: the group and the number of its meeting."""
        one, met, keys = self.lanes[lane], dict[str, int](), []
        group = {axis: one.group("pp" if axis == ENDS else axis) for axis in {step.axis for step in self.steps[lane]}}
        for step in self.steps[lane]:
            axis = step.axis
            number = met[axis] = met.get(axis, -1) + (not step.message)
            keys.append((axis, group[axis], step.message or number))
        return keys

    def _seconds(self, lane: Lane, step: Step) -> float:
        """What the step's sync takes in the slowest of the groups that the lane stands for."""
        axis, ends = self._where(lane, step)
        key = lane.parts, axis, ends, step.event.op, step.event.payload
        if key not in self._prices:
            self._prices[key] = max(
                of_sync(self.machine, step.event.op, float(step.event.payload), group).seconds
                for group in self._groups(lane, axis, ends))
        return self._prices[key]

    def _where(self, lane: Lane, step: Step) -> tuple[str, tuple[int, int] | None]:
        """The axis of the mesh on which a step meets, and of a message or the pipeline's ends the two stages."""
        if step.message:
            return "pp", (min(lane.place.pp, step.peer), max(lane.place.pp, step.peer))
        return ("pp", (0, self.layout.pp - 1)) if step.axis == ENDS else (step.axis, None)

    def _queued(self, queues: Queues, sync: list[int]) -> list[float]:
        """Seconds of each event where transfers queue for ports."""
        members: dict[int, list[tuple[Lane, Step]]] = {}
        events = [(lane, step) for n, lane in enumerate(self.lanes) for step in self.steps[n]]
        for number, one in zip(sync, events, strict=True):
            members.setdefault(number, []).append(one)
        took = {number: self._alone(queues, number, there) for number, there in members.items()}
        return [took[number] for number in sync]

    def _alone(self, queues: Queues, number: int, there: list[tuple[Lane, Step]]) -> float:
        lane, step = there[0]
        axis, ends = self._where(lane, step)
        talking = [(its.event.op, self.layout.rank(one.place), self._together(one)) for one, its in there]
        group = self._groups(lane, axis, ends)[0]
        return queues.seconds(number, step.event.op, float(step.event.payload), group, talking)

    def _together(self, lane: Lane) -> int:
        """How many devices that a lane stands for are in the box of its first."""
        if lane.parts not in self._boxed:
            devices = self._all_of(lane, "") // self.machine.per_machine
            self._boxed[lane.parts] = int((devices == self.layout.rank(lane.place) // self.machine.per_machine).sum())
        return self._boxed[lane.parts]

    @cached_property
    def _boxed(self) -> dict[tuple, int]:
        return {}

    def _groups(self, lane: Lane, axis: str, ends: tuple[int, int] | None) -> list[tuple[int, ...]]:
        """The devices of the groups of an axis that a lane stands for, one for each way to lie on the machine's boxes:
        moved by whole boxes, a group meets as before. `ends`: of a group only these two."""
        stride, first = self.layout.strides[axis], self._all_of(lane, axis)
        box = prod(level.size for level in self.machine.levels[:-1])
        members = range(getattr(self.layout, axis)) if ends is None else ends
        return [tuple(begin + stride * n for n in members) for begin in np.unique(first % box).tolist()]

    def _all_of(self, lane: Lane, axis: str) -> np.ndarray:
        """The devices that a lane stands for; of an axis only those with coordinate 0."""
        found = np.zeros(1, int)
        for other, part in zip(AXES, lane.parts, strict=True):
            if other != axis:
                found = np.add.outer(found, np.array(part) * self.layout.strides[other]).ravel()
        return found

    @cached_property
    def _prices(self) -> dict[tuple, float]:
        return {}
