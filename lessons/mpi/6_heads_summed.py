# mpirun -n 3 python -m mpi4py lessons/mpi/6_heads_summed.py
# rank 0 owns heads [0, 1]: partial sum [ 20. 120. 220. 320.]
# rank 1 owns heads [2, 3]: partial sum [148. 408. 668. 928.]
# rank 2 owns heads [4]: partial sum [162. 352. 542. 732.]
# all-reduce: shape (4,), payload 32 bytes: y = [ 330.  880. 1430. 1980.]
"""Concatenate the heads, then project; or project each head, then sum: the numbers are the same.

Attention never mixes two heads before this product, so a rank that owns whole heads needs only this one sync.
H heads, E head size, D hidden, p ranks. One token; W_o is stored (out, in) = (D, H E), y = concat Wᵀ.
"""
import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
p, rank = comm.size, comm.rank
H, E, D = 5, 2, 4

heads = np.arange(1.0, H * E + 1).reshape(H, E)              # (H, E) what attention left: one row per head
W_o = 10.0 * np.arange(D)[:, None] + np.arange(H * E)        # (D, H E)
bounds = [H // p * r + min(r, H % p) for r in range(p + 1)]  # whole heads only: the unit of cut
mine = range(bounds[rank], bounds[rank + 1])

y_p = np.zeros(D)                                            # (D,) a rank with no head adds zeros
for h in mine:
    y_p += heads[h] @ W_o[:, h * E:(h + 1) * E].T            # partial + partial is a partial: nothing moves
y = np.empty(D)
comm.Allreduce(y_p, y, MPI.SUM)                              # partial sum -> whole

report = comm.gather(f"rank {rank} owns heads {list(mine)}: partial sum {y_p}")
if rank == 0:
    print(*report, sep="\n")
    print(f"all-reduce: shape {y.shape}, payload {y.nbytes} bytes: y = {y}")
assert np.allclose(y, heads.reshape(H * E) @ W_o.T)          # heads end to end, then one product
