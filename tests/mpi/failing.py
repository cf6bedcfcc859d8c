"""The script that test_failures.py runs: `failing.py WAY MARK` fails in one of many ways, in the middle of its work.

With a file's name after it (…json), the trace up to there is written to it.
"""
import os
import sys
import time
from pathlib import Path

import numpy as np

import minitp
from minitp.comm import Partial
from minitp.errors import ConfigError
from minitp.launcher import processes
from minitp.launcher.rescue import written_to
from minitp.trace.merge import align_clocks

WAY = sys.argv[1]
TRACE = next((word for word in sys.argv if word.endswith(".json")), None)


def total(group):
    return group.all_reduce(Partial(np.full(3, float(group.rank)), group), site="layers.0.mlp.down", reason="test")


def one_raises(group):
    if group.rank == 1:
        raise ZeroDivisionError("boo")


def one_user_error(group):
    if group.rank == 1:
        raise ConfigError("rank 1 can't")


def all_raise(group):
    raise ConfigError("52 heads can't be cut over 8")


def each_its_own(group):
    raise ValueError(f"half {group.rank // 2}")


def root_only(group):
    group.on_root(lambda: Path("/nowhere/at/all").read_text(), site="load", reason="test")


def killed(group):
    if group.rank == 1:
        os.kill(os.getpid(), 9)


def leaves(group):
    if group.rank == 1:
        os._exit(7)


def sys_exit(group):
    if group.rank == 1:
        sys.exit(5)


def never_comes(group):
    if group.rank == 1:
        time.sleep(30)


def returns_before_a_barrier(group):
    if group.rank != 1:
        group.barrier(site="layers.0.mlp.down", reason="meet")
    return True


def returns_early(group):
    return group.rank == 1


def goes_on(group):
    if group.rank == 0:
        print("working", flush=True)
    while True:
        total(group)


def main(group):
    group.transport.barrier()                    # none is late for its first call: deadlines are for what comes then
    if TRACE is not None:
        align_clocks(group)
    total(group)
    if not globals()[WAY](group):
        total(group)


if __name__ == "__main__":
    if WAY in ("all_raise", "each_its_own", "root_only"):          # every rank will tell, however slow the machine is
        processes._PATIENCE = dict.fromkeys(processes._PATIENCE, 60.0)
    elif TRACE is not None:                                        # the others are in their call by then
        processes._PATIENCE = dict.fromkeys(processes._PATIENCE, 1.0)
    deadline = 1.0 if WAY in ("never_comes", "returns_early", "returns_before_a_barrier") else 60.0
    minitp.launch(main, deadline=deadline, run_deadline=1.0 if "run_deadline" in sys.argv else None,
                  ranks=4 if "four" in sys.argv else None, rescued=written_to(TRACE))
