# mpirun -n 3 python -m mpi4py lessons/mpi/3_row_cut_all_reduce.py
# rank 0 holds x[0:3] and W[:, 0:3], its partial sum is [  8.  68. 128. 188.]
# rank 1 holds x[3:5] and W[:, 3:5], its partial sum is [ 32. 122. 212. 302.]
# rank 2 holds x[5:7] and W[:, 5:7], its partial sum is [ 72. 202. 332. 462.]
# all-reduce: shape (4,), payload 32 bytes: partial sum -> whole
# y = [112. 392. 672. 952.]
"""Row cut: each rank makes one term of every entry of y = x Wᵀ; an all-reduce adds the terms up.

W is stored (out, in): a row of Wᵀ is a column of W, and meets one entry of x.
D hidden, F ffn, p ranks; F_p is this rank's share of F. One token.
"""
import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
p, rank = comm.size, comm.rank
F, D = 7, 4

x = np.arange(1.0, F + 1)                                    # (F,)
W = 10.0 * np.arange(D)[:, None] + np.arange(F)              # (D, F) whole here only to check against
bounds = [F // p * r + min(r, F % p) for r in range(p + 1)]  # larger shards first
lo, hi = bounds[rank], bounds[rank + 1]
x_p, W_p = x[lo:hi], W[:, lo:hi]                             # (F_p,) and (D, F_p): shards that match

y_p = x_p @ W_p.T                                            # (D,) partial sum: full shape, not yet y
y = np.empty(D)                                              # (D,)
comm.Allreduce(y_p, y, MPI.SUM)                              # partial sum -> whole, on every rank

report = comm.gather(f"rank {rank} holds x[{lo}:{hi}] and W[:, {lo}:{hi}], its partial sum is {y_p}")
if rank == 0:
    print(*report, sep="\n")
    print(f"all-reduce: shape {y.shape}, payload {y.nbytes} bytes: partial sum -> whole")
    print(f"y = {y}")
assert np.allclose(y, x @ W.T)
