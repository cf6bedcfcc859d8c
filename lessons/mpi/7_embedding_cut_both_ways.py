# mpirun -n 3 python -m mpi4py lessons/mpi/7_embedding_cut_both_ways.py
# rank 0: hidden cut [[50.0, 51.0], [10.0, 11.0], [60.0, 61.0]]; vocabulary cut has [1]
# rank 1: hidden cut [[52.0], [12.0], [62.0]]; vocabulary cut has []
# rank 2: hidden cut [[53.0], [13.0], [63.0]]; vocabulary cut has [5, 6]
# all-gather: payload 96 bytes; all-reduce: payload 96 bytes
# shape (3, 4) both ways: [[50.0, 51.0, 52.0, 53.0], [10.0, 11.0, 12.0, 13.0], [60.0, 61.0, 62.0, 63.0]]
"""An embedding cut both ways: along hidden (a piece of every row) or along the vocabulary (whole rows)."""
import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
p, rank = comm.size, comm.rank
V, D, T = 7, 4, 3                                    # vocabulary, hidden, tokens; _p: this rank's share
ids = np.array([5, 1, 6])                            # (T,) whole
table = 10.0 * np.arange(V)[:, None] + np.arange(D)  # (V, D) the entry 52 says: row 5, column 2
bounds = {n: [n // p * r + min(r, n % p) for r in range(p + 1)] for n in (D, V)}

lo, hi = bounds[D][rank:rank + 2]
piece = table[:, lo:hi][ids]                         # (T, D_p) shard: a piece of every token
hidden_cut = np.empty((D, T))                        # MPI lays shards end to end: cut axis first
comm.Allgatherv(np.ascontiguousarray(piece.T), [hidden_cut, np.diff(bounds[D]) * T])

lo, hi = bounds[V][rank:rank + 2]
here = (lo <= ids) & (ids < hi)                      # (T,) whose rows does this rank hold?
rows = np.zeros((T, D))                              # (T, D) partial sum: zeros for the others
rows[here] = table[lo:hi][ids[here] - lo]            # row lo of the table is row 0 of this shard
vocabulary_cut = np.empty((T, D))
comm.Allreduce(rows, vocabulary_cut, MPI.SUM)        # partial sum -> whole: an answer plus zeros

report = comm.gather(f"rank {rank}: hidden cut {piece.tolist()}; vocabulary cut has {ids[here].tolist()}")
if rank == 0:
    print(*report, sep="\n")
    print(f"all-gather: payload {hidden_cut.nbytes} bytes; all-reduce: payload {rows.nbytes} bytes")
    print(f"shape {rows.shape} both ways: {vocabulary_cut.tolist()}")
assert np.allclose(hidden_cut.T, table[ids]) and np.allclose(vocabulary_cut, table[ids])
