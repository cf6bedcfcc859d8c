"""A small run to record: it moves what a two-layer model would, on threads or MPI, with one rank made slow on purpose.

As a script, one MPI rank:  mpiexec -n 3 python -m mpi4py tests/trace/trace_runs.py TRACE
"""
import sys
import threading
import time

import numpy as np

from minitp.comm import Communicator, Partial
from minitp.comm.threads import RankStoppedError, ThreadTransport, ThreadWorld
from minitp.cut import Cut
from minitp.trace import Recorder, align_clocks, collect, run_info

D, V, LAYERS = 16, 50, 2


def body(comm, tokens=3, slow=1, seconds=0.001):
    """Load by scatter and broadcast, a prompt of 5, then tokens; `slow` comes to its sync points `seconds` after the
    others (0: whenever). On threads that is certain; processes can't be seen to wait, so there it only sleeps."""
    align_clocks(comm)
    info = run_info(comm, argv=[], model={"name": "toy", "hidden": D, "layers": LAYERS, "vocab": V}, text=["<b>hi</b>"])
    load(comm)
    for step in range(tokens + 1):
        with comm.recorder.mark("decode" if step else "prefill", step=step):
            one_pass(comm, 1 if step else 5, seconds if comm.rank == slow else 0)
    return collect(comm, comm.recorder, info)


def load(comm):
    cut = Cut(V, comm.size)
    table = np.arange(V * D, dtype=np.float32).reshape(V, D) if comm.rank == 0 else None
    norm = np.ones(D, np.float32) if comm.rank == 0 else None
    with comm.recorder.mark("load"):
        pieces = [(slice(cut.of(r).start, cut.of(r).stop), slice(0, D)) for r in range(comm.size)]
        comm.scatter(table, pieces=pieces, shape=(V, D), dtype=np.float32, axis=0, site="embedding",
                     reason="give each rank its rows of the table")
        comm.broadcast(norm, shape=(D,), dtype=np.float32, site="norm", reason="every rank needs the whole norm")
        comm.barrier(site="load", reason="all weights are there")


def dawdle(comm, seconds):
    """Until the others wait for this rank, and `seconds` more."""
    if not seconds:
        return
    while comm.transport.world == "threads" and comm.transport.shared.meeting.n_waiting < comm.size - 1:
        time.sleep(0.0005)
    time.sleep(seconds)


def one_pass(comm, T, seconds):
    def add(site, reason):
        dawdle(comm, seconds)
        return comm.all_reduce(Partial(np.full((1, T, D), comm.rank + 0.5, np.float32), comm), site=site, reason=reason)

    add("embedding", "one rank holds each token's row; the others add zeros")
    for layer in range(LAYERS):
        add(f"layers.{layer}.attention.out", "add the ranks' partial sums of the attention output")
        add(f"layers.{layer}.mlp.down", "add the ranks' partial sums of the MLP output")
    dawdle(comm, seconds)
    mine = np.zeros((1, 1, len(Cut(V, comm.size).of(comm.rank))), np.float32)
    comm.all_gather(mine, axis=-1, cut=Cut(V, comm.size), site="logits", reason="every rank needs all logits to draw")


def on_threads(ranks, work, **recorder):
    """work(comm) on ranks that are threads; what each returned."""
    world, results, failures = ThreadWorld(ranks, deadline=20), [None] * ranks, []

    def rank_main(rank):
        try:
            recording = Recorder(rank, **recorder)
            results[rank] = work(Communicator(ThreadTransport(world, rank), recording, checked=True))
        except RankStoppedError:
            pass
        except Exception as error:
            failures.append(error)
            world.stop()

    threads = [threading.Thread(target=rank_main, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    if failures:
        raise failures[0]
    return results


def main():
    from minitp.comm.mpi import MPITransport, open_mpi_world
    comm = Communicator(MPITransport(open_mpi_world()), checked="--checked" in sys.argv)
    trace = body(comm, seconds=0.03)        # more than what a busy machine's scheduler takes
    if trace is not None:
        trace.write(sys.argv[1])


if __name__ == "__main__":
    main()
