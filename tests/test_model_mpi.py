"""The same model on MPI ranks: few starts, many checks in each. What MPI was asked for is what was recorded."""
import numpy as np
import pytest

from minitp.comm import Communicator
from tests.families import FAMILIES, plain_forward, plain_weights, source_of
from tests.pmpi.counting import calls_of
from tests.test_generate import PROMPTS, generated
from tests.test_model import IDS, LAST, forwards

LAYOUTS = [("llama-tied", "hidden"), ("gpt2-gelu", "vocab")]             # with 2 heads: a rank of 3 holds none
RUNS = [("mqa", "vocab", {"keep_logits": True}),
        ("parallel", "hidden", {"gathered": False, "sampling": {"temperature": 1.0, "top_k": 3, "seed": 4}})]


def everything(comm: Communicator) -> dict:
    """Every rank checks what it can by itself; the rest is compared by the test."""
    shards = {}
    for family, embedding in LAYOUTS:
        weights = plain_weights(source_of(family))
        truth = np.array([plain_forward(FAMILIES[family], weights, ids) for ids in IDS])
        seen = forwards(comm, family=family, embedding=embedding)
        for way in ("whole", "steps"):
            np.testing.assert_allclose(seen[way], truth, rtol=0, atol=1e-10)
        shards[f"{family} {embedding}"] = (seen["shard"][:, 0], truth[[0, 1], LAST])
    runs = [generated_here(comm, *run, load) for run in RUNS for load in ("slice", "scatter")]
    return {"shards": shards, "runs": runs, "ops": [event.op for event in comm.recorder.events]}


def generated_here(comm: Communicator, family: str, embedding: str, request: dict, load: str) -> dict:
    """A run on a communicator of its own (its events begin at none), its ops added to the others'."""
    own = Communicator(comm.transport, checked=comm.checked)
    made = generated(own, family=family, embedding=embedding, load=load, prompts=PROMPTS, max_tokens=3, **request)
    comm.recorder.events += own.recorder.events
    return {"tokens": made["tokens"], "gaps": made["gaps"]}


def check(ranks: list[dict]) -> None:
    for name in ranks[0]["shards"]:
        whole = np.concatenate([rank["shards"][name][0] for rank in ranks], axis=-1)
        np.testing.assert_allclose(whole, ranks[0]["shards"][name][1], rtol=0, atol=1e-10)
    for rank in ranks:
        assert rank["ops"] == ranks[0]["ops"]
        assert rank["runs"] == ranks[0]["runs"] and rank["runs"][::2] == rank["runs"][1::2]       # scattered or sliced


@pytest.mark.mpi
@pytest.mark.parametrize("n", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_the_model_on_mpi_ranks(mpi, n):
    check(mpi(n, everything))


@pytest.mark.mpi
def test_the_model_on_mpi_ranks_and_every_call_that_mpi_saw(mpi_counts):
    ranks, counted = mpi_counts(3, everything)
    check(ranks)
    for rank, calls in zip(ranks, counted, strict=True):
        assert calls == calls_of(rank["ops"])
