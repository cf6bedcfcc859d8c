# mpirun -n 3 python -m mpi4py lessons/mpi/5_the_wrong_way_two_syncs.py
# rank 0: partial sum of h [-4. -1. -7.  5. -1.  2. -4.], shard of y [ -2. -18.]
# rank 1: partial sum of h [ 12.   6.   0.  -6. -12.   9.   3.], shard of y [11.]
# rank 2: partial sum of h [ -4. -12.  16.   8.   0.  -8. -16.], shard of y [40.]
# sync 1: all-reduce, shape (7,), payload 56 bytes: h = [  4.  -7.   9.   7. -13.   3. -17.]
# sync 2: all-gather, shape (4,), payload 32 bytes: y = [ -2. -18.  11.  40.]
# 2 syncs and 88 bytes; column cut first: 1 sync and 32 bytes
"""The wrong way round: row cut, activation, column cut. The MLP and the answer of script 4, but two syncs.

act is ReLU. D hidden, F ffn, p ranks; D_p is this rank's share of D. One token; weights (out, in), y = x Wᵀ.
"""
import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
p, rank = comm.size, comm.rank
D, F = 4, 7
bounds = [D // p * r + min(r, D % p) for r in range(p + 1)]
mine = slice(bounds[rank], bounds[rank + 1])
x = np.arange(1.0, D + 1)                              # (D,) whole
W_up = np.arange(F * D).reshape(F, D) * 4.0 % 9 - 4    # (F, D)
W_down = np.arange(D * F).reshape(D, F) * 7.0 % 9 - 4  # (D, F)

h_p = x[mine] @ W_up[:, mine].T                        # (F,) partial sum: act would be wrong here
h, y = np.empty(F), np.empty(D)
comm.Allreduce(h_p, h, MPI.SUM)                        # sync 1: partial sum -> whole, now act is right
y_p = np.maximum(h, 0) @ W_down[mine].T                # (D_p,) shard
comm.Allgatherv(y_p, [y, np.diff(bounds)])             # sync 2: shard -> whole

report = comm.gather(f"rank {rank}: partial sum of h {h_p}, shard of y {y_p}")
if rank == 0:
    print(*report, f"sync 1: all-reduce, shape {h.shape}, payload {h.nbytes} bytes: h = {h}", sep="\n")
    print(f"sync 2: all-gather, shape {y.shape}, payload {y.nbytes} bytes: y = {y}")
    print(f"2 syncs and {h.nbytes + y.nbytes} bytes; column cut first: 1 sync and {y.nbytes} bytes")
assert np.allclose(y, np.maximum(x @ W_up.T, 0) @ W_down.T)
