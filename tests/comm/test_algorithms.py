"""Collectives built from messages: equal to the transport's own, counted by closed forms, priced by their longest path.
"""
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from minitp.comm import Communicator, Partial
from minitp.comm.algorithms import ALGORITHMS, BuiltCollectives, chunks, schedule
from minitp.cut import Cut
from minitp.errors import CollectiveError, StateError
from minitp.plan.network import collectives
from tests.comm.findings import Findings, cuts, numbers, piece, roots
from tests.comm.hockney import longest_path, sent
from tests.fake_device import FakeArrays, HostOnlyTransport
from tests.mpi_world import run_threads, worlds

WHY = {"site": "here", "reason": "to see every hop"}
PAIRS = [(op, algorithm) for op, algorithms in ALGORITHMS.items() for algorithm in algorithms]
ROOTED = ("scatter", "broadcast", "gather", "reduce")
WORLDS = [*worlds(threads=(1, 2, 3, 4, 5), mpi=(3, 4)),
          *(pytest.param(world.values[0], id=world.id, marks=pytest.mark.slow) for world in worlds((6, 7, 8), mpi=()))]
SIZES = (*range(1, 9), 11)


@cache
def all_schedules(op, algorithm, size, root=0):
    return [schedule(op, algorithm, rank, size, root) for rank in range(size)]


def piece_share(op, algorithm, size):
    """One piece as a share of the payload, all of them equal."""
    return Fraction(1, size * size) if op == "all_to_all" else Fraction(1, chunks(op, algorithm, size))


# --- the schedules alone ---------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("op", "algorithm"), PAIRS)
def test_what_one_gives_the_other_takes_in_the_same_round(op, algorithm):
    for size in SIZES:
        for root in {0, size // 2} if op in ROOTED else {0}:
            plans = all_schedules(op, algorithm, size, root)
            assert len({plan.rounds for plan in plans}) == 1
            given = [(hop.round, rank, hop.to, hop.gives) for rank, plan in enumerate(plans) for hop in plan.hops
                     if hop.to is not None]
            taken = [(hop.round, hop.source, rank, hop.takes) for rank, plan in enumerate(plans) for hop in plan.hops
                     if hop.source is not None]
            assert sorted(given) == sorted(taken)
            for plan in plans:                                         # one hop of a rank a round, in order
                rounds = [hop.round for hop in plan.hops]
                assert rounds == sorted(set(rounds)) and all(0 <= round < plan.rounds for round in rounds)


@pytest.mark.parametrize(("op", "algorithm"), PAIRS)
def test_messages_and_pieces_of_each_rank_are_the_closed_form(op, algorithm):
    for size in SIZES:
        for root in {0, size // 2} if op in ROOTED else {0}:
            for rank, plan in enumerate(all_schedules(op, algorithm, size, root)):
                gives = [len(hop.gives) for hop in plan.hops if hop.to is not None]
                assert (len(gives), sum(gives)) == sent(op, algorithm, rank, size, root), (size, root, rank)


@pytest.mark.parametrize(("op", "algorithm"), PAIRS)
def test_the_longest_path_is_the_cost_model(op, algorithm):
    for size in SIZES:
        for root in {0, size - 1} if op in ROOTED else {0}:
            plans, cost = all_schedules(op, algorithm, size, root), collectives.cost(op, algorithm, size)
            for alpha, beta, gamma in ((1, 0, 0), (0, 1, 0), (1, 7, 0), (7, 1, 0), (0, 0, 1), (2, 3, 5)):
                wanted = cost.hops * alpha + cost.volume * beta + cost.reduced * gamma
                got = longest_path(plans, Fraction(alpha), Fraction(beta), piece_share(op, algorithm, size),
                                   Fraction(gamma))
                assert got == wanted, (size, root, alpha, beta, gamma)


def test_what_is_built_has_a_cost_and_what_has_a_cost_is_built():
    assert {op: set(names) for op, names in ALGORITHMS.items()} == {
        op: set(names) for op, names in collectives.ALGORITHMS.items()}


# --- played by real messages -----------------------------------------------------------------------------------------

def scattered(comm, whole, axis, cut, root):
    pieces = [tuple(slice(held.start, held.stop) if i == axis else slice(None) for i in range(whole.ndim))
              for held in map(cut.of, range(comm.size))]
    return {"array": whole if comm.rank == root else None, "pieces": pieces, "shape": whole.shape,
            "dtype": whole.dtype, "axis": axis, "root": root}


def cases(comm: Communicator, op: str):
    """(what it is, a function that makes the arguments anew) of calls of `op`: other axes, cuts, roots and dtypes."""
    if op in ("all_reduce", "reduce", "broadcast"):
        return [uncut_case(comm, op, shape, dtype, root) for shape, dtype in
                zip(((3, 5), (0, 2), ()), ("int16", "float32", "float64"), strict=True) for root in roots(comm)[:1]]
    axes, dtypes = ((1, 0), (2, 1), (1, 2)), ("int16", "float32", "float64")
    by_axis = zip(*(cuts(size, comm.size) for size in (3, 4, 5)), strict=True)
    return [cut_case(comm, op, (axis, to_axis), (by[axis], by[to_axis]), dtype, comm.size // 2)
            for (axis, to_axis), dtype, by in zip(axes, dtypes, by_axis, strict=True)]


def uncut_case(comm, op, shape, dtype, root):
    def arguments():
        if op == "broadcast":
            whole = numbers(shape, dtype)
            return {"array": whole if comm.rank == root else None, "shape": shape, "dtype": whole.dtype, "root": root}
        partial = Partial(numbers(shape, dtype, comm.rank), comm)
        return {"partial": partial, "root": root} if op == "reduce" else {"partial": partial}
    return (shape, dtype, root), arguments


def cut_case(comm, op, axes, by, dtype, root):
    whole, (axis, to_axis), (cut, to_cut) = numbers((3, 4, 5), dtype), axes, by

    def arguments():
        if op == "scatter":
            return scattered(comm, whole, axis, cut, root)
        if op == "reduce_scatter":
            return {"partial": Partial(numbers((3, 4, 5), dtype, comm.rank), comm), "axis": axis, "cut": cut}
        more = {"root": root} if op == "gather" else {}
        more |= {"to_axis": to_axis, "to_cut": to_cut} if op == "all_to_all" else {}
        return {"shard": piece(whole, axis, cut.of(comm.rank)), "axis": axis, "cut": cut} | more
    return (dtype, axis, cut), arguments


def like_the_transports_own(comm: Communicator, at_most: int) -> list[str]:
    """Of the cases of an algorithm the first `at_most`, beginning with another one for each."""
    see = Findings()
    for number, (op, algorithm) in enumerate(PAIRS):
        made, built = cases(comm, op), BuiltCollectives(comm, algorithm)
        for i in range(at_most):
            what, arguments = made[(number + comm.size + i) % len(made)]
            see.same((op, algorithm, *what), getattr(built, op)(**arguments(), **WHY),
                     getattr(comm, op)(**arguments(), **WHY))
    return list(see)


def everything(comm: Communicator, at_most: int) -> dict:
    """One launch for both: what MPI processes take is their start."""
    return {"exchange": exchanges(comm) if comm.size > 1 else None, "results": like_the_transports_own(comm, at_most)}


_outcomes: dict[tuple[str, int], list[dict]] = {}


def outcome(world) -> list[dict]:
    if (key := (world.kind, world.n)) not in _outcomes:
        _outcomes[key] = world(everything, at_most=3 if world.n <= 3 else 1)
    return _outcomes[key]


@pytest.mark.parametrize("world", WORLDS)
def test_results_are_those_of_the_transports_own(world):
    wrong = [f"rank {rank}: {finding}" for rank, found in enumerate(outcome(world)) for finding in found["results"]]
    assert not wrong, f"{len(wrong)} findings, the first: {wrong[0]}"


# --- what is on record -----------------------------------------------------------------------------------------------

def of_five(comm: Communicator, op: str) -> dict:
    """Arguments of a call of `op` on 5 numbers; for all-to-all on a 5 × 5 table of them."""
    five, cut = np.arange(5.0), Cut(5, comm.size)
    mine = five[cut.of(comm.rank).start:cut.of(comm.rank).stop]
    if op in ("reduce", "all_reduce", "reduce_scatter"):
        return {"partial": Partial(five, comm)} | ({"axis": 0, "cut": cut} if op == "reduce_scatter" else {})
    if op == "scatter":
        return scattered(comm, five, 0, cut, 0)
    if op == "broadcast":
        return {"array": five, "shape": (5,), "dtype": five.dtype}
    to = {"to_axis": 1, "to_cut": cut} if op == "all_to_all" else {}
    return {"shard": np.outer(mine, np.ones(5)) if to else mine, "axis": 0, "cut": cut} | to


def one_of_each(comm: Communicator) -> list[list[dict]]:
    recorded = []
    for op, algorithm in PAIRS:
        first = len(comm.recorder.events)
        getattr(BuiltCollectives(comm, algorithm), op)(**of_five(comm, op), **WHY)
        recorded.append([event._asdict() for event in comm.recorder.events[first:]])
    return recorded


@pytest.mark.parametrize("size", [1, 3, 4])
def test_every_hop_is_on_record(size):
    """The events of each rank are its schedule: round, peer, piece, bytes; sends and receives meet by their numbers."""
    by_rank = run_threads(one_of_each, size)
    for number, (op, algorithm) in enumerate(PAIRS):
        sizes = part_sizes(op, algorithm, size)
        for rank in range(size):
            wanted = [(side, hop.round, peer, pieces[0] if len(pieces) == 1 else None, 8 * sum(map(sizes.get, pieces)))
                      for hop in schedule(op, algorithm, rank, size).hops
                      for side, peer, pieces in (("send", hop.to, hop.gives), ("receive", hop.source, hop.takes))
                      if peer is not None]
            events = by_rank[rank][number]
            assert [(e["op"], e["step"], e["peer"], e["chunk"], e["payload"]) for e in events] == wanted
            assert all(e["phase"] == f"{op} by {algorithm}" and e["plane"] == "data" for e in events)
            assert [e["wire"] for e in events] == [e["payload"] if e["op"] == "send" else 0 for e in events]
        ends = {(side, rank if side == "send" else e["peer"], e["peer"] if side == "send" else rank, e["sequence"]):
                (e["step"], e["payload"]) for rank in range(size) for e in by_rank[rank][number] for side in [e["op"]]}
        assert all(ends["receive", *key[1:]] == what for key, what in ends.items() if key[0] == "send")


def part_sizes(op: str, algorithm: str, size: int) -> dict[int, int]:
    cut = Cut(5, size).sizes
    if op == "all_to_all":
        return {s * size + d: cut[s] * cut[d] for s in range(size) for d in range(size)}
    return dict(enumerate(Cut(5, chunks(op, algorithm, size)).sizes))


def watched(comm: Communicator) -> list:
    seen, term = [], np.arange(4) + 10 * comm.rank
    built = BuiltCollectives(comm, "ring", lambda round, parts: seen.append(
        (round, {str(piece): numbers for piece, numbers in parts.items()})))
    total = built.all_reduce(Partial(term, comm), **WHY)
    return [seen, term, total]


def test_a_watcher_sees_the_pieces_of_every_round_and_inputs_stay():
    for rank, (seen, term, total) in enumerate(run_threads(watched, 2)):
        assert [round for round, _ in seen] == [-1, 0, 1]
        assert {k: v.tolist() for k, v in seen[0][1].items()} == {"0": [10 * rank, 10 * rank + 1],
                                                                  "1": [10 * rank + 2, 10 * rank + 3]}
        assert set(seen[1][1]) == {str(rank)}, "of a partial only the piece it is to sum stays"
        assert term.tolist() == (np.arange(4) + 10 * rank).tolist()
        assert total.tolist() == [10, 12, 14, 16] == np.concatenate([seen[2][1]["0"], seen[2][1]["1"]]).tolist()


def on_a_device(comm: Communicator) -> list[str]:
    """What comes from a device goes back to it; only host arrays are sent."""
    see, arrays = Findings(), FakeArrays()
    group = Communicator(HostOnlyTransport(comm.transport.shared, comm.rank), arrays=arrays)
    for op, algorithm in (pair for pair in PAIRS if pair[1] in ("ring", "tree")):
        given = of_five(group, op) | ({"partial": Partial(arrays.from_host(np.arange(5.0)), group)}
                                      if op in ("reduce", "all_reduce", "reduce_scatter") else {})
        given |= {key: arrays.from_host(given[key]) for key in ("array", "shard") if given.get(key) is not None}
        got = getattr(BuiltCollectives(group, algorithm), op)(**given, **WHY)
        see.same((op, algorithm), None if got is None else arrays.to_host(got),
                 getattr(comm, op)(**of_five(comm, op), **WHY))
    return list(see)


def test_collectives_on_a_device():
    assert run_threads(on_a_device, 3) == [[], [], []]


# --- exchange --------------------------------------------------------------------------------------------------------

def exchanges(comm: Communicator) -> dict:
    """Around a ring with messages of different sizes, twice; then nothing at all; then back with ordinary messages."""
    see, p, r = Findings(), comm.size, comm.rank
    right, left = (r + 1) % p, (r - 1) % p
    for times in (1, 2):
        got = comm.exchange(np.full(r + times, r), to=right, shape=(left + times,), dtype=int, source=left, chunk=r,
                            received_chunk=left, **WHY)
        see.same("what came", got, np.full(left + times, left))
    see.same("nothing", comm.exchange(np.empty((0, 2)), to=left, shape=(0, 2), dtype=float, source=right, **WHY),
             np.empty((0, 2)))
    if r == 0:
        comm.send(np.array([1.5]), to=right, **WHY)
    elif r == 1:
        see.same("after", comm.receive(shape=(1,), dtype=float, source=left, **WHY), np.array([1.5]))
    return {"findings": list(see), "events": [event._asdict() for event in comm.recorder.events]}


@pytest.mark.parametrize("world", [world for world in WORLDS if world.values[0].n > 1])
def test_exchange(world):
    for rank, found in enumerate(found["exchange"] for found in outcome(world)):
        right, left = (rank + 1) % world.n, (rank - 1) % world.n
        assert not found["findings"], (rank, found["findings"])
        send, receive, *others = found["events"]
        assert (send["op"], send["peer"], send["chunk"], send["payload"], send["wire"]) == (
            "send", right, rank, 8 * (rank + 1), 8 * (rank + 1))
        assert (receive["op"], receive["peer"], receive["chunk"], receive["payload"], receive["wire"]) == (
            "receive", left, left, 8 * (left + 1), 0)
        assert send["enter"] == send["leave"] == receive["enter"] <= receive["leave"], "the time is counted once"
        numbers_by_direction: dict = {}
        for event in (send, receive, *others):
            assert event["sequence"] == numbers_by_direction.get((event["op"], event["peer"]), 0)
            numbers_by_direction[event["op"], event["peer"]] = event["sequence"] + 1


def refused(comm: Communicator) -> list[str]:
    one, cut, ring, said = np.ones(1), Cut(2, 2), BuiltCollectives(comm, "ring"), []
    to_me, of_one = {"to": comm.rank, "source": 1 - comm.rank}, {"shape": (1,), "dtype": float}
    for error, call in (
            (CollectiveError, lambda: comm.exchange(one, **to_me, **of_one, **WHY)),
            (StateError, lambda: comm.exchange(Partial(one, comm), **to_me, **of_one, **WHY)),
            (CollectiveError, lambda: BuiltCollectives(comm, "halving").all_gather(one, axis=0, cut=cut, **WHY)),
            (CollectiveError, lambda: ring.reduce(Partial(one, comm), root=2, **WHY)),
            (StateError, lambda: ring.all_gather(Partial(one, comm), axis=0, cut=cut, **WHY))):
        with pytest.raises(error) as caught:
            call()
        said.append(str(caught.value))
    partial = Partial(np.ones(2), comm)
    BuiltCollectives(comm, "tree").all_reduce(partial, **WHY)
    with pytest.raises(StateError, match="reduced already"):
        BuiltCollectives(comm, "ring").all_reduce(partial, **WHY)
    return said


def test_refusals_teach():
    for said in run_threads(refused, 2):
        for words, text in zip(("has no message for rank", "partial sum", "it has star, ring, tree, doubling", "root 2",
                                "partial sum"), said, strict=True):
            assert words in text
