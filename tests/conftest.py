"""Fixtures that every test may ask for."""
from hypothesis import settings

from tests.mpi_world import mpi  # noqa: F401  (a fixture is found by its name)
from tests.pmpi.counting import counting_library, mpi_counts  # noqa: F401

settings.register_profile("minitp", deadline=None)           # a shared machine is slow now and then, which proves nothing
settings.load_profile("minitp")
