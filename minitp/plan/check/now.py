"""Is the calibration true now? Collectives run at payloads that it didn't take, beside what it says of them."""
from minitp.comm import Communicator
from minitp.errors import ConfigError
from minitp.plan.calibrate.messages import OPS, SIZES, collectives
from minitp.plan.check import Comparison, notes, row
from minitp.plan.machine import Machine

PAYLOADS = (SIZES[0], *(5 * size for size in SIZES[:-2]), SIZES[-1])
"""Both ends of a table, and between them five times the powers of 4: 20 B … 5 MiB."""


def now(group: Communicator, machine: Machine, *, seconds: float = 10.0) -> Comparison | None:
    """A row for each op and payload on rank 0, with no counts; None on the others. ConfigError for a group of one rank.

    All ops take turns as in a calibration: one op alone has its code in the caches, and is a third quicker.
    """
    if group.size < 2:
        raise ConfigError("one rank has nobody to meet: take --ranks 2 or more")
    measured = collectives(group, dict.fromkeys(OPS, PAYLOADS), seconds=seconds)
    if measured is None:
        return None
    times = measured.times()
    rows = [row(kind, 0, 0, times[kind], machine)
            for kind in sorted(times, key=lambda kind: (OPS.index(kind.op), kind.payload))]
    return Comparison(tuple(rows), (), (), (), tuple(notes(measured.trace, machine, rows)))
