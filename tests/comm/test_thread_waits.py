"""What the world of threads does while a rank waits, and what it lets go of afterwards."""
import gc
import weakref
from contextlib import contextmanager

import numpy as np

import minitp
from minitp.cut import Cut
from minitp.launcher import launch


def counted(work, ranks=3):
    """How often each rank was idle during work(tp)."""
    def on_rank(tp):
        times = []

        @contextmanager
        def idle():
            times.append(len(times))
            yield

        tp.transport.idle = idle
        work(tp)
        return len(times)

    return launch(on_rank, ranks=ranks, world="threads")


def test_a_rank_is_idle_twice_in_a_collective_and_once_in_each_half_of_a_message():
    assert counted(lambda tp: tp.barrier(site="a", reason="b")) == [2, 2, 2]
    assert counted(lambda tp: tp.all_reduce(minitp.Partial(np.ones(3), tp), site="a", reason="b")) == [2, 2, 2]
    assert counted(lambda tp: tp.all_to_all(np.ones((1, 3)), axis=0, cut=Cut(3, 3), to_axis=1, to_cut=Cut(3, 3),
                                            site="a", reason="b")) == [2, 2, 2]
    assert counted(lambda tp: tp.exchange(np.ones(1), to=(tp.rank + 1) % 3, shape=(1,), dtype=float,
                                          source=(tp.rank - 1) % 3, site="a", reason="b")) == [2, 2, 2]
    assert counted(lambda tp: tp.barrier(site="a", reason="b"), ranks=1) == [0]

    def one_way(tp):
        if tp.rank == 0:
            tp.send(np.ones(1), to=1, site="a", reason="b")
        elif tp.rank == 1:
            tp.receive(shape=(1,), dtype=float, source=0, site="a", reason="b")

    assert counted(one_way) == [1, 1, 0]


def test_what_was_laid_down_is_let_go_of_after_the_collective():
    def alive(tp):
        terms = np.ones(100)
        reference = weakref.ref(terms)
        tp.all_gather(terms, axis=0, cut=Cut(200, 2), site="a", reason="b")
        del terms
        gc.collect()
        return reference() is not None

    assert launch(alive, ranks=2, world="threads") == [False, False]
