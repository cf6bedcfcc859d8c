"""Ranks that part ways: checked mode names who differs, on every rank; without it nothing waits for ever."""
import ast
import re
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from minitp.comm import Communicator, Partial
from minitp.cut import Cut
from minitp.errors import CollectiveError
from tests.mpi_world import run_threads, worlds

ROOT = Path(__file__).parents[2]
SITE = "layers.3.mlp.down"


def ask(comm: Communicator, op: str = "all_reduce", shape=(4, 6), dtype="float64", site: str = SITE, root: int = 0):
    """One collective of the given kind; rank r brings its part, or the root the whole."""
    why = {"site": site, "reason": "to see who differs"}
    x, cut = np.ones(shape, dtype), Cut(shape[0], comm.size)
    held = cut.of(comm.rank)
    if op in ("all_reduce", "reduce", "reduce_scatter"):
        how = {"reduce": {"root": root}, "reduce_scatter": {"axis": 0, "cut": cut}}.get(op, {})
        return getattr(comm, op)(Partial(x, comm), **how, **why)
    if op in ("all_gather", "gather"):
        how = {"root": root} if op == "gather" else {}
        return getattr(comm, op)(x[held.start:held.stop], axis=0, cut=cut, **how, **why)
    if op == "all_to_all":
        return comm.all_to_all(x[held.start:held.stop], axis=0, cut=cut, to_axis=1, to_cut=Cut(shape[1], comm.size),
                               **why)
    if op == "scatter":
        pieces = [(slice(c.start, c.stop), slice(0, shape[1])) for c in map(cut.of, range(comm.size))]
        return comm.scatter(x, pieces=pieces, axis=0, shape=shape, dtype=dtype, root=root, **why)
    return comm.barrier(**why) if op == "barrier" else comm.broadcast(x, shape=shape, dtype=dtype, root=root, **why)


OPS = ("all_reduce", "reduce", "reduce_scatter", "all_gather", "gather", "all_to_all", "scatter", "broadcast")
# what most ranks ask, what the odd one asks
MISMATCHES = {
    "another op": ({}, {"op": "all_gather"}),
    "a barrier": ({}, {"op": "barrier"}),
    "gather and all-gather": ({"op": "gather"}, {"op": "all_gather"}),
    **{f"{op} of another length": ({"op": op}, {"op": op, "shape": (5, 6)}) for op in OPS},
    **{f"{op} of another width": ({"op": op}, {"op": op, "shape": (4, 5)}) for op in OPS},
    **{f"{op} of the same bytes in another shape": ({"op": op}, {"op": op, "shape": (6, 4)}) for op in OPS},
    **{f"{op} of another dtype": ({"op": op}, {"op": op, "dtype": "float32"}) for op in OPS},
    **{f"{op} of the same bytes as another dtype": ({"op": op}, {"op": op, "dtype": "int64"}) for op in OPS},
    **{f"{op} with another root": ({"op": op}, {"op": op, "root": 1}) for op in ("reduce", "gather", "scatter",
                                                                                 "broadcast")},
    "another site": ({}, {"site": "layers.4.mlp.down"}),
    "a site that differs at its far end": ({"site": "x" * 400}, {"site": "x" * 399 + "y"}),
}


def met(call, *given, **how) -> str:
    try:
        call(*given, **how)
    except CollectiveError as error:
        return str(error)
    return "nothing was noticed"


def mismatch(comm: Communicator, name: str, odd: int) -> str:
    usual, other = MISMATCHES[name]
    return met(ask, comm, **(other if comm.rank == odd else usual))


def all_mismatches(comm: Communicator) -> list[list[str]]:
    """Each on its own: the ranks that refused a call are together again for the next."""
    return [[mismatch(comm, name, odd) for name in MISMATCHES] for odd in range(comm.size)]


def out_of_order(comm: Communicator) -> str:
    """The same two calls, on rank 1 the other way around."""
    sites = ["first", "second"]
    for site in reversed(sites) if comm.rank == 1 else sites:
        message = met(ask, comm, site=site)
        if message != "nothing was noticed":
            return message
    return "nothing was noticed"


def one_call_behind(comm: Communicator) -> str:
    """Rank 1 left a call out: the next looks the same to all, but for its number."""
    if comm.rank != 1:
        comm._sequence += 1
    return met(ask, comm)


def passed_around(comm: Communicator):
    """A ring: rank r sends to r + 1; bytes of any dtype, and what was sent may be written into afterwards."""
    left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    got = []
    for dtype in ("float64", "float16", "bool"):
        mine, theirs = np.full((2, 3), comm.rank + 1, dtype), np.empty((2, 3), dtype)
        for turn in range(comm.size):                          # one sends at a time: a send may wait for its match
            if turn == comm.rank:
                comm.transport.send(mine, right)
                mine[...] = 0
            if turn == left:
                comm.transport.receive(theirs, left)
        got.append(theirs)
    return got


def agreed(comm: Communicator) -> list:
    for op in OPS:
        ask(comm, op)
    return [[e.op, e.plane, e.payload] for e in comm.recorder.events]


def message_of_another_size(comm: Communicator):
    if comm.rank == 0:
        return comm.transport.send(np.ones(3), 1)
    return met(comm.transport.receive, np.empty(4), 0) if comm.rank == 1 else None


def everything(comm: Communicator) -> dict[str, object]:
    return {"agreed": agreed(comm), "dtypes": mismatch(comm, "all_gather of another dtype", comm.size - 1),
            "mismatches": all_mismatches(comm), "order": out_of_order(comm), "behind": one_call_behind(comm),
            "ring": passed_around(comm), "short": message_of_another_size(comm)}


WORLDS = worlds(threads=(2, 3), mpi=(3,))
_found: dict[tuple[str, int], list[dict]] = {}


def found(world, what: str) -> list:
    """By rank; one launch for all of it."""
    if (key := (world.kind, world.n)) not in _found:
        _found[key] = world(everything)
    return [result[what] for result in _found[key]]


@pytest.mark.parametrize("world", WORLDS)
def test_checked_mode_names_who_differs_on_every_rank(world):
    outcome = found(world, "mismatches")
    for odd in range(world.n):
        others = [rank for rank in range(world.n) if rank != odd]
        usual = rf"rank{'s' if len(others) > 1 else ''} {', '.join(map(str, others))}: "
        for i, name in enumerate(MISMATCHES):
            told = {messages[odd][i] for messages in outcome}
            assert len(told) == 1, f"{name}: the ranks were told different things: {told}"
            message = told.pop()
            assert "the ranks don't make the same collective call" in message, name
            assert re.search(rf"^  rank {odd}: ", message, re.M) and re.search(f"^  {usual}", message, re.M), message


@pytest.mark.parametrize("world", WORLDS)
def test_the_message_shows_both_calls(world):
    for message in found(world, "dtypes"):
        others = "rank 0" if world.n == 2 else "ranks 0, 1"
        assert f"{others}: all_gather(4×6 float64) at layers.3.mlp.down, call 8" in message
        assert f"rank {world.n - 1}: all_gather(4×6 float32) at layers.3.mlp.down, call 8" in message


@pytest.mark.parametrize("world", WORLDS)
def test_order_is_compared(world):
    for message in found(world, "order"):
        assert re.search("at first, call (\\d+)", message)[1] == re.search("at second, call (\\d+)", message)[1]
    for message in found(world, "behind"):
        late, usual = (re.search(f"rank{who}: .* call (\\d+)", message) for who in (" 1", "s? 0(?:, 2)?"))
        assert int(late[1]) == int(usual[1]) - 1


@pytest.mark.mpi
def test_the_comparison_is_recorded_as_a_control_message():
    of_threads, of_processes = (found(world.values[0], "agreed")[0] for world in worlds(threads=(3,), mpi=(3,)))
    assert [event[0] for event in of_threads] == list(OPS)                   # there it rides with the collective
    assert [event for event in of_processes if event[1] == "data"] == of_threads
    assert [event for event in of_processes if event[1] == "control"] == [["all_gather", "control", 3 * 256]] * len(OPS)


# --- nothing waits for ever ------------------------------------------------------------------------------------------

def one_never_comes(comm: Communicator, op: str):
    return "left" if comm.rank == 1 else met(ask, comm, op)


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("op", [*OPS, "barrier"])
def test_threads_that_wait_in_vain_say_for_whom(op, checked):
    first, left, third = run_threads(one_never_comes, 3, op=op, checked=checked, deadline=0.1)
    assert left == "left"
    for message in (first, third):
        assert re.search(rf"rank \d waited 0.1 s in {op}\(.* at {SITE}, call 0.*rank 1 has come to no call yet",
                         message)


def one_fails(comm: Communicator):
    if comm.rank == 1:
        raise ZeroDivisionError("rank 1 has a fault")
    ask(comm)


def test_a_failure_frees_the_threads_that_wait():
    began = time.monotonic()
    with pytest.raises(ZeroDivisionError):
        run_threads(one_fails, 5, deadline=30.0)
    assert time.monotonic() - began < 20


def unchecked_mismatch(comm: Communicator):
    ask(comm, "all_reduce" if comm.rank else "all_gather")
    ask(comm, "broadcast", shape=(2, 2) if comm.rank else (3, 3))


def test_unchecked_threads_that_differ_still_end():
    """In error or in nonsense, as with MPI, but within the deadline."""
    began = time.monotonic()
    with pytest.raises(Exception) as caught:
        run_threads(unchecked_mismatch, 3, checked=False, deadline=1.0)
    assert not isinstance(caught.value, AssertionError) and time.monotonic() - began < 20


def message_that_never_comes(comm: Communicator):
    return met(comm.transport.receive, np.empty(4), 0) if comm.rank else None


def both_send_first(comm: Communicator):
    return met(comm.transport.send, np.ones(2), 1 - comm.rank)


def test_threads_that_wait_for_a_message_say_which():
    message = run_threads(message_that_never_comes, 2, deadline=0.1)[1]
    assert "rank 1 waited 0.1 s to receive 4 × float64 from rank 0" in message
    for rank, message in enumerate(run_threads(both_send_first, 2, deadline=0.1)):
        assert f"rank {rank} waited 0.1 s to send 2 × float64 to rank {1 - rank}" in message


@pytest.mark.parametrize("world", WORLDS)
def test_a_message_of_another_size_is_no_message(world):
    """MPI takes one that is shorter than was expected, and leaves the rest of the array as it was."""
    expected = {"threads": "expects 4 × float64 from rank 0, which sent 3 × float64",
                "mpi": "expects 32 bytes (4 × float64) from rank 0, which sent 24"}[world.kind]
    assert expected in found(world, "short")[1]


@pytest.mark.parametrize("world", WORLDS)
def test_messages_carry_bytes(world):
    for rank, got in enumerate(found(world, "ring")):
        for array, dtype in zip(got, ("float64", "float16", "bool"), strict=True):
            assert np.array_equal(array, np.full((2, 3), (rank - 1) % world.n + 1, dtype)) and array.dtype == dtype


# --- nothing is pickled ----------------------------------------------------------------------------------------------

PICKLING = {"send", "recv", "sendrecv", "isend", "irecv", "bcast", "scatter", "gather", "allgather", "alltoall",
            "reduce", "allreduce", "scan", "exscan", "issend", "ssend", "bsend", "mprobe"}


def test_no_lower_case_method_of_mpi4py_is_called():
    """They pickle: slow, bounded at 2 GiB, and a door for code. Upper-case ones move buffers."""
    holders = []
    for path in (ROOT / "minitp").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        imported = {alias.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import)
                    for alias in node.names}
        imported |= {(node.module or "").split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert not imported & {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "joblib"}, path
        if "mpi4py" not in imported:
            continue
        holders.append(path.name)
        called = {node.func.attr for node in ast.walk(tree)
                  if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
                  and ast.unparse(node.func.value) in ("self._comm", "comm", "world", "MPI.COMM_WORLD")}
        assert not called & PICKLING, f"{path}: {called & PICKLING}"
    assert "mpi.py" in holders


def test_a_long_work_of_the_root_is_waited_for():
    """A download may take longer than any collective may."""
    def fetching(comm):
        return comm.on_root(lambda: time.sleep(0.8) or "done", site="model", reason="fetch")

    given_up = threading.Event()

    def dawdling(comm):
        if comm.rank == 0:
            assert given_up.wait(60)
        try:
            comm.barrier(site="model", reason="meet")
        finally:
            given_up.set()

    assert run_threads(fetching, 3, deadline=0.4) == ["done"] * 3
    with pytest.raises(CollectiveError):
        run_threads(dawdling, 2, deadline=0.4)
