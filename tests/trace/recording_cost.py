"""What recording costs, printed and not asserted: it depends on the machine.

python tests/trace/recording_cost.py
"""
import time

import numpy as np

from minitp.comm import Communicator, Partial
from minitp.comm.threads import ThreadTransport, ThreadWorld
from minitp.comm.transport import Call
from minitp.trace import Recorder

TIMES = 20_000


def per_call(work):
    """µs per call, the best of five rounds."""
    best = float("inf")
    for _ in range(5):
        begin = time.perf_counter_ns()
        for _ in range(TIMES):
            work()
        best = min(best, time.perf_counter_ns() - begin)
    return best / TIMES / 1000


def main():
    """One rank, so that nothing but the communicator's own work is measured."""
    transport = ThreadTransport(ThreadWorld(1), 0)
    array = np.ones((1, 1, 576), np.float32)
    results = {}
    cases = {"kept": {}, "counted only": {"keep_events": False}, "with values": {"keep_values": True}}
    for name, options in cases.items():
        comm = Communicator(transport, Recorder(0, **options))

        def reduce(comm=comm):
            comm.all_reduce(Partial(array, comm), site="layers.0.mlp.down", reason="add")
            if len(comm.recorder.events) > 50_000:
                comm.recorder.events.clear()
                comm.recorder.values.clear()

        results[name] = per_call(reduce) if name != "with values" else per_call_few(reduce)
    comm = Communicator(transport, Recorder(0))
    call = Call(0, "all_reduce", "layers.0.mlp.down", "float32", (1, 1, 576))
    added = per_call(lambda: comm.recorder.add(comm, call, "all_reduce", "data", "add", ("partial", "whole"),
                                               (1, 1, 576), "float32", 2304, 1, 2, "mlp.py:3"))
    for name, cost in results.items():
        print(f"all-reduce of 576 float32 on one rank, events {name}: {cost:.2f} µs")
    print(f"recorder.add alone: {added:.2f} µs; 62 sync points per token: {62 * added:.0f} µs per token")


def per_call_few(work):
    begin = time.perf_counter_ns()
    for _ in range(200):
        work()
    return (time.perf_counter_ns() - begin) / 200 / 1000


if __name__ == "__main__":
    main()
