"""Importing any test module turns on the shape checks, in pytest's process and in each MPI rank alike."""
from threadpoolctl import threadpool_limits

from tests.shapes import check_shapes

check_shapes()

import numpy  # noqa: E402, F401

BLAS_LIMIT = threadpool_limits(1, user_api="blas")       # thread ranks times BLAS threads would fight for the cores
