# mpirun -n 3 python -m mpi4py lessons/mpi/1_scatter_the_weights.py
# scatter: shape (7, 2), payload 112 bytes: on root -> shard
# rank 0 holds W[0:3], 48 bytes: [[0.0, 1.0], [10.0, 11.0], [20.0, 21.0]]
# rank 1 holds W[3:5], 32 bytes: [[30.0, 31.0], [40.0, 41.0]]
# rank 2 holds W[5:7], 32 bytes: [[50.0, 51.0], [60.0, 61.0]]
"""Scatter: W starts on the root and ends as one shard per rank. No other rank ever holds all of it.

W is stored (out, in) and y = x Wᵀ, so a few rows of W are a few columns of Wᵀ: this is the column cut.
F ffn, D hidden, p ranks; F_p is this rank's share of F.
"""
import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
p, rank, root = comm.size, comm.rank, 0
F, D = 7, 2

bounds = [F // p * r + min(r, F % p) for r in range(p + 1)]  # rank r owns rows bounds[r]:bounds[r + 1];
lo, hi = bounds[rank], bounds[rank + 1]                      # the first shards may be one row larger
counts = np.diff(bounds) * D                                 # MPI counts numbers, not rows

W = None                                                     # the others never make room for it
if rank == root:
    W = 10.0 * np.arange(F)[:, None] + np.arange(D)          # (F, D); the entry 41 says: row 4, column 1
W_p = np.empty((hi - lo, D))                                 # (F_p, D)
comm.Scatterv([W, counts], W_p, root)                        # on root -> shard

report = comm.gather(f"rank {rank} holds W[{lo}:{hi}], {W_p.nbytes} bytes: {W_p.tolist()}", root)
if rank == root:
    print(f"scatter: shape {W.shape}, payload {W.nbytes} bytes: on root -> shard")
    print(*report, sep="\n")
assert np.allclose(W_p, 10.0 * np.arange(lo, hi)[:, None] + np.arange(D))  # these rows, and no others
