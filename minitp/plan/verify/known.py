"""The published run that a row is about, for what its inputs leave out: batch, layout, tokens, FLOP/s reached."""
import re

from minitp.plan.catalogue import PublishedRun, runs
from minitp.plan.layout import Layout
from minitp.plan.verify.case import Case, CaseError, Inputs
from minitp.plan.verify.shape import Shape

AXES = ("tp", "pp", "dp", "cp")
BOX = re.compile(r"\b([0-9]+) ?(?:x|nodes x) ?([0-9]+)\b")


def known_run(case: Case) -> PublishedRun | None:
    """The only run of the catalogue with this model, this paper's first author and the row's degrees; None else."""
    model = Shape(case).named
    found = [run for run in runs().values() if model is not None and run.model == model]
    author = case.source.lower().split(" ")[0]
    found = [run for run in found if author and author in run.source.lower()] or found
    found = [run for run in found if fits(case, run.layout, run.training.seq)]
    return found[0] if len(found) == 1 else None


def fits(case: Case, layout: Layout | None, seq: int) -> bool:
    """Whether nothing in the row contradicts a run's layout and sequence."""
    inputs = case.inputs
    if "seq" in inputs and inputs.whole("seq") != seq:
        return False
    if layout is None:
        return not any(axis in inputs for axis in (*AXES, "gpus"))
    told = {axis: inputs.number(axis) for axis in AXES if axis in inputs}
    if seconds_named_tp(inputs):
        del told["tp"]
    return all(getattr(layout, axis) == value for axis, value in told.items()) and (
        "gpus" not in inputs or inputs.number("gpus") == layout.devices)


def seconds_named_tp(inputs: Inputs) -> float | None:
    """One table's seconds are in the files under the name tp: a tp that is no whole number is a time. None else."""
    value = inputs.number("tp", default=1)
    return value if value != int(value) else None


def sequences(case: Case, dp: int = 1) -> int:
    """Of a step, on all replicas."""
    inputs = case.inputs
    if "batch" in inputs:
        return inputs.whole("batch")
    if "batch_per_dp" in inputs or "micro_batches" in inputs:
        each = (inputs.whole("batch_per_dp") if "batch_per_dp" in inputs
                else inputs.whole("micro_batch", default=1) * inputs.whole("micro_batches"))
        return dp * each
    if run := known_run(case):
        return run.training.batch
    raise CaseError("the batch is missing: batch, batch_per_dp, or micro_batch and micro_batches")


def tokens_of_sequence(case: Case) -> int:
    """`seq`, or that of the known run, or the learned positions of its model."""
    run = None if "seq" in case.inputs else known_run(case)
    return run.training.seq if run else Shape(case).seq


def nodes(case: Case) -> int:
    """`nodes`, or the first number of "4x8 B200", "4 nodes x 8"; 1 else."""
    found = BOX.search(case.model)
    return case.inputs.whole("nodes", default=int(found[1]) if found else 1)
