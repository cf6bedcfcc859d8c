"""Gradients and steps on real MPI ranks: one start, many checks."""
import pytest

from minitp.comm import Communicator
from tests.gradients.finite import unchecked
from tests.gradients.test_model_gradients import alone, gradients, same, whole
from tests.gradients.test_steps import check_steps, many_steps

LAYOUTS = [("llama", "vocab"), ("mqa", "hidden"), ("gpt2", "hidden"), ("parallel", "vocab")]


def everything(comm: Communicator, steps: int) -> dict:
    passes = [gradients(comm, family, embedding) for family, embedding in LAYOUTS]
    with unchecked():
        return {"passes": passes, "float64": many_steps(comm, "llama-tied", "float64", steps=steps),
                "float32": many_steps(comm, "gpt2", "float32", "hidden", steps=steps)}


@pytest.mark.mpi
@pytest.mark.parametrize(("n", "steps"), [(3, 20), pytest.param(5, 50, marks=pytest.mark.slow)])
def test_gradients_and_steps_on_mpi(mpi, n, steps):
    """As on one rank; and MPI's sums are the same bits on every rank, as replicated norms and biases need (A34)."""
    ranks = mpi(n, everything, steps=steps)
    for i, (family, embedding) in enumerate(LAYOUTS):
        same(whole([rank["passes"][i] for rank in ranks], family, embedding), alone(family))
    check_steps([rank["float64"] for rank in ranks], "llama-tied", "float64", "vocab", steps)
    check_steps([rank["float32"] for rank in ranks], "gpt2", "float32", "hidden", steps)
