"""Every method of the communicator, in both worlds: values, states, payloads; and all ranks record alike."""
import pytest

from minitp.comm.states import TRANSITIONS
from tests.comm.conformance import CHECKS, EVENT, run_all
from tests.mpi_world import worlds

WORLDS = worlds(threads=(1, 2, 3, 5, 7), mpi=(1, 3, 4))
_outcomes: dict[tuple[str, int], list[dict]] = {}


def outcome(world) -> list[dict]:
    """What each rank of this world found: one launch for all checks."""
    if (key := (world.kind, world.n)) not in _outcomes:
        _outcomes[key] = world(run_all)
    return _outcomes[key]


@pytest.mark.parametrize("name", CHECKS)
@pytest.mark.parametrize("world", WORLDS)
def test_conformance(world, name):
    wrong = [f"rank {rank}: {finding}" for rank, found in enumerate(outcome(world))
             for finding in found[name]["findings"]]
    assert not wrong, f"{len(wrong)} findings, the first: {wrong[0]}"


@pytest.mark.parametrize("world", WORLDS)
def test_all_ranks_record_the_same(world):
    first, *others = outcome(world)
    assert {event[EVENT.index("op")] for check in first.values() for event in check["events"]} == {
        *TRANSITIONS, "barrier"}
    for other in others:
        assert {name: check["events"] for name, check in other.items()} == {
            name: check["events"] for name, check in first.items()}


@pytest.mark.mpi
@pytest.mark.parametrize("n", [1, 3])
def test_both_worlds_record_the_same(n):
    threads, processes = (outcome(world.values[0]) for world in worlds(threads=(n,), mpi=(n,)))
    for name in CHECKS:
        assert threads[0][name]["events"] == processes[0][name]["events"], name


@pytest.mark.parametrize("name", sorted(set(CHECKS) - {"scatter_of_copies", "results_are_nobody_elses"}))
def test_one_rank_records_the_same_as_many(name):
    """But for the root's number, and how many roots are tried; sizes that grow with the ranks are left out above."""
    def without_roots(world):
        kept = [[value for column, value in zip(EVENT, event, strict=True) if column not in ("root", "sequence")]
                for event in outcome(world)[0][name]["events"]]
        return [event for i, event in enumerate(kept) if event not in kept[:i]]
    one, *many = (world.values[0] for world in worlds(mpi=()))
    for world in many:
        assert without_roots(world) == without_roots(one), world.n
