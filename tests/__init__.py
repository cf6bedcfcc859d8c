"""Importing any test module turns on the shape checks, in pytest's process and in each MPI rank.

A rank checks only what threads don't run: to prepare the checks of everything takes it a second, for the same code.
"""
import os

from threadpoolctl import threadpool_limits

from tests.shapes import ONLY_ON_MPI, check_shapes, modules

check_shapes(ONLY_ON_MPI if "MINITP_TEST_RANK" in os.environ else modules())

import numpy  # noqa: E402, F401

BLAS_LIMIT = threadpool_limits(1, user_api="blas")       # thread ranks times BLAS threads would fight for the cores
