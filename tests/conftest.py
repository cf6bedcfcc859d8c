"""Fixtures that every test may ask for."""
from tests.mpi_world import mpi  # noqa: F401  (a fixture is found by its name)
from tests.pmpi.counting import counting_library, mpi_counts  # noqa: F401
