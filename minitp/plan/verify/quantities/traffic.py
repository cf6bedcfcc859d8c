"""What a training step moves, in units of the papers."""
from minitp.plan import schedule
from minitp.plan.verify.case import Case
from minitp.plan.verify.quantities.activations import recomputation
from minitp.plan.verify.quantities.states import stage
from minitp.plan.verify.registry import Planned, quantity
from minitp.plan.verify.shape import Shape


@quantity("count", "dp_comm_volume_per_step")
def dp_comm_volume_per_step(case: Case) -> Planned:
    """In P: what a rank sends in a step (Rajbhandari et al. 2020, section 7); with dp given the ring's exact share of
    them."""
    zero, m = stage(case), case.inputs.whole("micro_batches", default=1)
    volume = {0: 2, 1: 2, 2: m + 1, 3: 3 * m}[zero]
    words = {0: "2P", 1: "2P", 2: "(m + 1)P", 3: "3mP"}[zero]
    if "dp" not in case.inputs:
        return Planned(volume, words, 1e-6)
    ranks = case.inputs.whole("dp")
    return Planned(volume * (ranks - 1) / ranks, f"{words} · (d − 1)/d", 1e-6)


@quantity("count", "mp_comm_volume_per_block")
def mp_comm_volume_per_block(case: Case) -> Planned:
    """In bsh: an all-reduce moves its array twice: 2 forward, 2 backward, and 2 more where the block is computed
    again."""
    again = recomputation(case, "none") == "full"
    number = case.inputs.whole("allreduces", default=6 if again else 4)
    return Planned(2 * number, f"{number} all-reduces · 2", 1e-6)


@quantity("count", "pp_elements_per_boundary_scatter_gather", "pp_elements_per_boundary")
def pp_elements_per_boundary(case: Case) -> Planned:
    """Numbers of one micro-batch and direction (Narayanan et al. 2021, section 4.1); with scatter and gather each tp
    rank sends its part."""
    shape, inputs = Shape(case), case.inputs
    cut = inputs.whole("tp", default=1) if case.quantity.endswith("scatter_gather") else 1
    return Planned(inputs.whole("micro_batch", default=1) * shape.seq * shape.hidden / cut,
                   "bsh/t" if cut > 1 else "bsh", 1e-6)


@quantity("share", "bubble_fraction_of_ideal", "bubble_fraction_of_total")
def bubble_fraction(case: Case) -> Planned:
    """Share of 1 (Narayanan et al. 2021, section 2.2): idle time of a pipeline's stage as a share of its ideal time, or
    of all of it."""
    inputs = case.inputs
    stages, m, chunks = inputs.whole("pp"), inputs.whole("micro_batches"), inputs.whole("chunks", default=1)
    ideal = schedule.bubble("interleaved" if chunks > 1 else "1f1b", stages, m, chunks)
    if case.quantity.endswith("total"):
        return Planned(ideal / (1 + ideal), "(p − 1)/(vm + p − 1)", 1e-6)
    return Planned(ideal, "(p − 1)/(v·m)", 1e-6)
