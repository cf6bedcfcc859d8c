# mpirun -n 3 python -m mpi4py lessons/mpi/2_column_cut_all_gather.py
# rank 0 holds W[0:4], its shard of y is [ 20. 120. 220. 320.]
# rank 1 holds W[4:7], its shard of y is [420. 520. 620.]
# rank 2 holds W[7:10], its shard of y is [720. 820. 920.]
# all-gather: shape (10,), payload 80 bytes: shard -> whole
# y = [ 20. 120. 220. 320. 420. 520. 620. 720. 820. 920.]
"""Column cut: each rank finishes a few entries of y = x Wᵀ on its own; an all-gather puts them end to end.

W is stored (out, in): a column of Wᵀ is a row of W, and makes one entry of y.
D hidden, F ffn, p ranks; F_p is this rank's share of F. One token.
"""
import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
p, rank = comm.size, comm.rank
D, F = 4, 10

x = np.array([1.0, 2, 3, 4])                                 # (D,) whole: the same on every rank
W = 10.0 * np.arange(F)[:, None] + np.arange(D)              # (F, D) whole here only to check against
bounds = [F // p * r + min(r, F % p) for r in range(p + 1)]  # larger shards first
lo, hi = bounds[rank], bounds[rank + 1]
W_p = W[lo:hi]                                               # (F_p, D) whole -> shard: free, a slice

y_p = x @ W_p.T                                              # (F_p,) shard: few numbers, but final ones
y = np.empty(F)                                              # (F,)
comm.Allgatherv(y_p, [y, np.diff(bounds)])                   # shard -> whole: copied, never added

report = comm.gather(f"rank {rank} holds W[{lo}:{hi}], its shard of y is {y_p}")
if rank == 0:
    print(*report, sep="\n")
    print(f"all-gather: shape {y.shape}, payload {y.nbytes} bytes: shard -> whole")
    print(f"y = {y}")
assert np.allclose(y, x @ W.T)
