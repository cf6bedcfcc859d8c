"""Tests that need a CUDA device and CuPy; everywhere else they are skipped, and say so."""
