"""The closed form: every collective of a run, foretold from the model's sizes and the placement alone.

`minitp trace check` compares it with what was recorded: count, order, states, shapes, dtype and payload, exactly. For a
pass over B sequences of T tokens of a model with L layers it comes to 2L + 2 sync points, and to about twice as many of
a micro-batch that a model is trained on; B and T change bytes only.
"""
from typing import Any

from minitp.trace.predict_generation import GenerationPlan, forward_pass
from minitp.trace.predict_header import DTYPES
from minitp.trace.predict_training import Evaluation, Sample, Steps, TrainingPlan
from minitp.trace.schema import Expected
from minitp.trace.simulated import is_simulated, simulated_part
from minitp.trace.wording import plain

__all__ = ["DTYPES", "Evaluation", "GenerationPlan", "Plan", "Sample", "Steps", "TrainingPlan", "forward_pass",
           "plan_from_run", "predict", "unforetold"]

Plan = GenerationPlan | TrainingPlan


def unforetold(run: dict[str, Any]) -> str:
    """Why a simulated trace can't be held against a closed form, in words; "" where it can, or for a real run."""
    if not is_simulated(run) or "training" in run or "generation" in run:
        return ""
    told = simulated_part(run)
    return (f"this trace is a simulated one of {plain(told.get('layout', 'a layout'), 60)}: there is nothing to hold "
            "it against. The closed form is that of tensor parallelism alone, in float32 (`minitp plan simulate … --tp "
            "N --pp 1 --dp 1` with --precision float32, or --weights, --cache and --activations float32)")


def plan_from_run(run: dict[str, Any]) -> Plan:
    """What the header of a trace says was run; FileFormatError where it says neither, or what can't be."""
    return TrainingPlan.from_run(run) if "training" in run else GenerationPlan.from_run(run)


def predict(plan: Plan) -> list[Expected]:
    """Every event of the planes data and sample, in order."""
    return list(plan.events())
