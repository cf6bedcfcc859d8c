# mpirun -n 3 python -m mpi4py lessons/mpi/4_column_then_row_one_sync.py
# rank 0: partial sum [ -7. -36.  16.  32.], act of it [ 0.  0. 16. 32.]
# rank 1: partial sum [ -7.  21. -14.  14.], act of it [ 0. 21.  0. 14.]
# rank 2: partial sum [12. -3.  9. -6.], act of it [12.  0.  9.  0.]
# 1 sync: all-reduce, shape (4,), payload 32 bytes: y = [ -2. -18.  11.  40.]
# act after the sum: [ 0.  0. 11. 40.]; act before the sum: [12. 21. 25. 46.]
"""Column cut, activation, row cut: one sync. It can't wait any longer, for act(a + b) is not act(a) + act(b).

act is ReLU. D hidden, F ffn, p ranks; F_p is this rank's share of F. One token; weights (out, in), y = x Wᵀ.
"""
import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
p, rank = comm.size, comm.rank
D, F = 4, 7
bounds = [F // p * r + min(r, F % p) for r in range(p + 1)]
mine = slice(bounds[rank], bounds[rank + 1])
x = np.arange(1.0, D + 1)                              # (D,) whole
W_up = np.arange(F * D).reshape(F, D) * 4.0 % 9 - 4    # (F, D) some numbers of both signs
W_down = np.arange(D * F).reshape(D, F) * 7.0 % 9 - 4  # (D, F)

h_p = np.maximum(x @ W_up[mine].T, 0)                  # (F_p,) shard of final entries: act is right
y_p = h_p @ W_down[:, mine].T                          # (D,) partial sum: a row cut takes the shard
y, wrong = np.empty(D), np.empty(D)
comm.Allreduce(y_p, y, MPI.SUM)                        # the one sync: partial sum -> whole
comm.Allreduce(np.maximum(y_p, 0), wrong, MPI.SUM)     # only to show the mistake: act came first

report = comm.gather(f"rank {rank}: partial sum {y_p}, act of it {np.maximum(y_p, 0)}")
if rank == 0:
    print(*report, f"1 sync: all-reduce, shape {y.shape}, payload {y.nbytes} bytes: y = {y}", sep="\n")
    print(f"act after the sum: {np.maximum(y, 0)}; act before the sum: {wrong}")
whole = np.maximum(x @ W_up.T, 0) @ W_down.T
assert np.allclose(y, whole) and (p == 1 or not np.allclose(wrong, np.maximum(whole, 0)))
