"""What a search found, in words: for the terminal and for a page alike."""
from minitp.plan.job import Inference, Job
from minitp.plan.machine import Machine
from minitp.plan.search import MOST_DEVICES, Found, Why
from minitp.plan.units import duration
from minitp.trace.wording import count

WHY: dict[Why, str] = {"memory": "too little memory", "batch": "the batch can't be dealt",
                       "shape": "the model can't be cut so"}


def unit(job: Job) -> str:
    """What a layout's time is of."""
    return "token" if isinstance(job, Inference) else "step"


def enough(larger: tuple[Machine, Found] | None, most: int = MOST_DEVICES, devices: int = 1) -> str:
    """The smallest number of machines that would do, as `fewest` found it up to `most` devices; nothing where already
    as many were asked about. `devices`: how many."""
    if larger is None:
        nor = f"Nor does any number of such machines that was tried, up to {most:,} devices."
        return "" if devices >= most else nor
    machine, found = larger
    boxes, best = machine.devices // machine.per_machine, found.best[0]
    return (f"{count(boxes, 'such machine')}, {machine.devices:,} devices, {'does' if boxes == 1 else 'do'}: "
            f"{best.layout}, {duration(best.seconds)} a {unit(best.job)} (a model).")
