"""Real runs that failed, on threads: what they had recorded until then."""
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from minitp import Partial
from minitp.comm import Communicator
from minitp.errors import MinitpError
from minitp.launcher import launch
from minitp.placement import Placement
from minitp.trace import Recorder, Trace, align_clocks
from minitp.trace.predict import GenerationPlan, Steps, TrainingPlan
from tests.families import FAMILIES
from tests.train.training_runs import UNEQUAL, train
from tests.view.view_runs import record


class Failing(Communicator):
    """Rank 1 fails where it would enter the all-reduce at `site` of a phase and step."""
    site, phase, step = "layers.1.mlp.down", "decode", 1

    def all_reduce(self, partial: Partial, *, site: str, reason: str, plane: str = "data") -> Any:
        here = self.recorder._phase, self.recorder._step
        if self.rank == 1 and site == self.site and here == (self.phase, self.step):
            raise OSError("the disk is gone")
        return super().all_reduce(partial, site=site, reason=reason, plane=plane)


def rescued(main: Callable[[Communicator], Any], ranks: int = 3, **options: Any) -> Trace:
    """The trace of a run that fails."""
    kept: list[Trace] = []
    with pytest.raises((MinitpError, OSError)):
        launch(main, ranks, world="threads", recorder=lambda rank: Recorder(rank, keep_values=True),
               rescued=lambda trace: kept.append(trace) or "", **options)
    return kept[0]


@cache
def hang() -> Trace:
    """Rank 1 returns before the second all-reduce; ranks 0 and 2 wait for it until time is up."""
    def main(comm: Communicator) -> None:
        for step in range(2):
            with comm.recorder.mark("decode", step):
                if comm.rank == 1 and step == 1:
                    return
                comm.all_reduce(Partial(np.ones(4), comm), site="layers.0.mlp.down", reason="add")

    return rescued(main, run_deadline=0.5)         # ample for the ranks to come there, also on a busy machine


@cache
def generation(**where: Any) -> Trace:
    """Rank 1 fails in the middle of the second pass."""
    def main(comm: Communicator) -> None:
        align_clocks(comm)
        prompt, placement = (3, 1, 4, 1), Placement(FAMILIES["llama"], comm.size, "vocab")
        passes = [("prefill", len(prompt)), ("decode", 1), ("decode", 1)]
        header = GenerationPlan(placement, "slice", "float32", 1, passes, 3).to_run()
        header["model"]["name"] = "llama"
        comm.recorder.about = lambda: header | {"prompts": [list(prompt)], "tokens": [[5]], "pieces": [[" w5"]],
                                        "prompt_pieces": [[f" p{token}" for token in prompt]]}
        record(comm, "llama", "vocab", "slice", True, (prompt,), 3)

    return rescued(main, kind=type("FailsThere", (Failing,), where))


@cache
def training() -> Trace:
    """Rank 1 fails in the middle of a backward pass."""
    def main(comm: Communicator) -> None:
        plan = TrainingPlan(Placement(FAMILIES["llama"], comm.size, "vocab"), "float64", [Steps(0, 1, UNEQUAL)])
        comm.recorder.about = plan.to_run
        train(comm)

    where = {"site": "layers.1.mlp.gate_up", "phase": "backward", "step": 0}
    return rescued(main, kind=type("FailsInBackward", (Failing,), where))


@cache
def at_two_places() -> Trace:
    """Ranks meet for different things."""
    def main(comm: Communicator) -> None:
        with comm.recorder.mark("decode", 0):
            comm.all_reduce(Partial(np.ones(4), comm), site="head" if comm.rank == 1 else "embedding", reason="add")

    return rescued(main)


@cache
def in_loading() -> Trace:
    """A scatter of the weights that rank 1 never comes to: no pass has begun."""
    def main(comm: Communicator) -> None:
        align_clocks(comm)
        if comm.rank == 1:
            raise OSError("no such file: model.safetensors")
        record(comm, "llama", "vocab", "scatter", True, ((3, 1),), 2)

    return rescued(main)


@cache
def nothing_at_all() -> Trace:
    """It fails before anything moves: a mark is all there is, and rank 1 hasn't even that."""
    def main(comm: Communicator) -> None:
        if comm.rank == 0:
            with comm.recorder.mark("load"):
                raise OSError("it has no weights")

    return rescued(main)


RUNS: dict[str, Callable[[], Trace]] = {
    "hang": hang, "generation": generation, "training": training, "in loading": in_loading,
    "at two places": at_two_places, "nothing at all": nothing_at_all}
