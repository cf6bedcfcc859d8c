"""What the catalogue lists."""
from minitp.plan.verify.case import Case, CaseError
from minitp.plan.verify.registry import Planned, quantity
from minitp.plan.verify.shape import Shape
from minitp.trace.wording import plain


@quantity("count", "model_parallel_size")
def model_parallel_size(case: Case) -> Planned:
    """Ranks that a model's published files are cut for."""
    model = Shape(case).named
    if model is None:
        raise CaseError(f"{plain(case.model, 40)!r} is no model of the catalogue")
    if not model.model_parallel:
        raise CaseError(f"for how many ranks the files of {model.name} are cut isn't known")
    return Planned(model.model_parallel, f"the catalogue: {model.source}", 1e-6)
