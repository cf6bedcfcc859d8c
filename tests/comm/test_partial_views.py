"""Views of one partial sum, reduced in any order: a reduce is admitted if no element of the view was taken before.

The model here knows nothing of buffers and flags: each view is the set of the elements it shows. Scripts of slices,
reshapes and reduces are played on every rank; what is refused, and every sum, must be as the model says.
"""
from math import prod
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minitp.comm import Communicator, Partial
from minitp.cut import Cut
from minitp.errors import StateError
from tests.comm.findings import Findings, numbers
from tests.mpi_world import World, run_threads, worlds

WHY = {"site": "here", "reason": "to see whether a view may be reduced"}
KINDS = ("all_reduce", "all_reduce", "reduce", "reduce_scatter")


class Node:
    """A partial sum and, as the model has it, which elements of the buffer it shows (a view of 0, 1, 2, …)."""

    def __init__(self, partial: Partial, shows: np.ndarray):
        self.partial, self.shows, self.reduced = partial, shows, False

    def alive(self, taken: set[int]) -> bool:
        return not self.reduced and taken.isdisjoint(self.shows.reshape(-1).tolist())


def shapes_of(size: int) -> list[tuple[int, ...]]:
    """Some shapes of `size` elements."""
    factors = [n for n in (2, 3, 4) if size and size % n == 0]
    return [(size,), (1, size), *((n, size // n) for n in factors), *((size // n, n, 1) for n in factors)]


def index_of(shape: tuple[int, ...], parts: list) -> tuple:
    """A script's numbers as slices, and as whole numbers where the axis has any."""
    index = []
    for n, part in zip(shape, parts, strict=False):
        if isinstance(part, int):
            index.append(part % (2 * n) - n if n else slice(None))
        else:
            start, stop, step = part
            index.append(slice(start, stop, step or None))
    return tuple(index)


def play(comm: Communicator, shape: list[int], script: list) -> list[str]:
    """What went another way than the model says. Rank r's term is (r + 1) times the number of each element."""
    see, places = Findings(), np.arange(prod(shape)).reshape(shape)
    nodes, taken = [Node(Partial(places * (comm.rank + 1.0), comm), places)], set()
    for step, (verb, which, detail) in enumerate(script):
        node = nodes[which % len(nodes)]
        wanted = node.alive(taken)
        try:
            if verb == "slice":
                index = index_of(node.shows.shape, detail)
                nodes.append(Node(node.partial[index], node.shows[*index, ...]))
            elif verb == "reshape":
                choices = shapes_of(node.shows.size)
                new = choices[detail % len(choices)]
                wanted = wanted and node.shows.flags.c_contiguous
                nodes.append(Node(node.partial.reshape(new), node.shows.reshape(new)))
            else:
                reduce(comm, node, KINDS[detail % len(KINDS)], see, step)
                node.reduced = True
                taken.update(node.shows.reshape(-1).tolist())
            admitted = True
        except StateError:
            admitted = False
        see.same(f"step {step}, {verb} of a view of {node.shows.shape}: admitted", admitted, wanted)
    return list(see)


def reduce(comm: Communicator, node: Node, kind: str, see: Findings, step: int) -> None:
    total = np.array(node.shows * sum(r + 1.0 for r in range(comm.size)), order="C")
    if kind == "reduce_scatter" and total.ndim:
        cut = Cut(total.shape[0], comm.size)
        held = cut.of(comm.rank)
        see.same(step, comm.reduce_scatter(node.partial, axis=0, cut=cut, **WHY), total[held.start:held.stop])
    elif kind == "reduce":
        see.same(step, comm.reduce(node.partial, **WHY), total if comm.rank == 0 else None)
    else:
        see.same(step, comm.all_reduce(node.partial, **WHY), total)


bounds = st.none() | st.integers(-4, 4)
slices = st.tuples(bounds, bounds, st.sampled_from([None, 1, 1, 2, -1]))
steps = st.one_of(
    st.tuples(st.just("slice"), st.integers(0, 20), st.lists(slices | st.integers(0, 7), max_size=3)),
    st.tuples(st.just("reshape"), st.integers(0, 20), st.integers(0, 7)),
    st.tuples(st.just("reduce"), st.integers(0, 20), st.integers(0, 3)))
scripts = st.tuples(st.sampled_from([(4, 3, 2), (6,), (2, 6), (0, 3), ()]), st.lists(steps, min_size=2, max_size=14))


@settings(max_examples=250)
@given(scripts)
def test_any_order_on_one_rank(script):
    assert run_threads(play, 1, shape=script[0], script=script[1]) == [[]]


@settings(max_examples=80)
@given(scripts)
def test_any_order_on_threads(script):
    assert run_threads(play, 3, shape=script[0], script=script[1]) == [[]] * 3


def random_script(random: Random) -> list:
    """First some views, then reduces of all of them in any order, as JSON has it."""
    views = [["slice", random.randrange(20), [random.choice([[None, None, None], [a, a + 2, None], [None, None, 2], a])
                                              for a in random.choices(range(3), k=random.randrange(1, 4))]]
             if random.random() < 0.7 else ["reshape", random.randrange(20), random.randrange(8)] for _ in range(6)]
    return views + [["reduce", node, random.randrange(4)] for node in random.sample(range(7), 7)]


def play_all(comm: Communicator, seeds: int) -> list[str]:
    return [f"script {seed}: {finding}" for seed in range(seeds)
            for finding in play(comm, [4, 3, 2], random_script(Random(seed)))]


def reduced_in_pieces(comm: Communicator) -> list[str]:
    """The same by hand: disjoint views once each, in three ways, while products of the partial live on."""
    see, terms = Findings(), [numbers((3, 4), "float32", rank) for rank in range(comm.size)]
    total, partial = sum(terms), Partial(terms[comm.rank], comm)
    doubled = partial * 2                                              # a new partial with a buffer of its own
    rows = [partial[0], partial[1:2], partial.reshape(12)[8:], partial[0:0]]
    see.same("last", comm.all_reduce(rows[2], **WHY), total[2])
    see.same("first", comm.all_reduce(rows[0], **WHY), total[0])
    see.same("middle", comm.reduce(rows[1], **WHY), total[1:2] if comm.rank == 0 else None)
    see.same("nothing", comm.all_reduce(rows[3], **WHY), total[0:0])
    see.same("doubled", comm.all_reduce(doubled, **WHY), total * 2)
    for again in (*rows, partial):
        with pytest.raises(StateError):
            comm.all_reduce(again, **WHY)
    return list(see)


def fixed_orders(comm: Communicator) -> list[str]:
    return reduced_in_pieces(comm) + play_all(comm, 60)


@pytest.mark.parametrize("world", worlds(threads=(1, 2, 5), mpi=(3,)))
def test_fixed_orders_in_both_worlds(world):
    assert world(fixed_orders) == [[]] * world.n


def reduces_all_views(comm: Communicator) -> int:
    """How many reduces the fixed scripts get done: were nearly all refused, the test above would show nothing."""
    play_all(comm, 60)
    return len(comm.recorder.events)


def test_the_fixed_orders_reduce_views():
    assert World("threads", 1)(reduces_all_views)[0] > 100
