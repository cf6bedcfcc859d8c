"""Weak and strong scaling of Megatron's first tables: the planner's step on their machine."""
from minitp.plan.verify.case import Case
from minitp.plan.verify.registry import Planned, quantity
from minitp.plan.verify.shape import Shape


@quantity("share", "weak_scaling_efficiency", "speedup")
def weak_scaling_efficiency(case: Case) -> Planned:
    return Planned(Shape(case).parameters, "")
