# mpirun -n 3 python -m mpi4py lessons/mpi/8_bias_added_p_times.py
# rank 0: partial sum [ 80. 140. 200. 260.], with b [ 81. 142. 203. 264.]
# rank 1: partial sum [320. 410. 500. 590.], with b [321. 412. 503. 594.]
# rank 2: partial sum [ 720.  850.  980. 1110.], with b [ 721.  852.  983. 1114.]
# all-reduce, payload 32 bytes, then b (right): [1121. 1402. 1683. 1964.]
# b, then all-reduce (wrong): [1123. 1406. 1689. 1972.], too much by [2. 4. 6. 8.] = 2 b
"""Row cut with a bias: added by every rank before the all-reduce it counts p times. Add it after, once.

F ffn, D hidden, p ranks; F_p is this rank's share of F. One token; W is stored (out, in), y = x Wᵀ + b.
"""
import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
p, rank = comm.size, comm.rank
F, D = 7, 4

x = np.arange(1.0, F + 1)                          # (F,)
W = 10.0 * (np.arange(D)[:, None] + np.arange(F))  # (D, F) tens: b shows in the last digit
b = np.array([1.0, 2, 3, 4])                       # (D,) whole: the same on every rank
bounds = [F // p * r + min(r, F % p) for r in range(p + 1)]
mine = slice(bounds[rank], bounds[rank + 1])
y_p = x[mine] @ W[:, mine].T                       # (D,) partial sum

right, wrong = np.empty(D), np.empty(D)
comm.Allreduce(y_p, right, MPI.SUM)                # partial sum -> whole,
right += b                                         # and then b, once
comm.Allreduce(y_p + b, wrong, MPI.SUM)            # the mistake: whole added to partial sum

report = comm.gather(f"rank {rank}: partial sum {y_p}, with b {y_p + b}")
if rank == 0:
    print(*report, f"all-reduce, payload {y_p.nbytes} bytes, then b (right): {right}", sep="\n")
    print(f"b, then all-reduce (wrong): {wrong}, too much by {wrong - right} = {p - 1} b")
whole = x @ W.T + b
assert np.allclose(right, whole) and np.allclose(wrong - whole, (p - 1) * b)
