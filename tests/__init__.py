"""Importing any test module turns on the shape checks, in pytest's process and in each MPI rank alike."""
from tests.shapes import check_shapes

check_shapes()
