# mpirun -n 3 python lessons/mpi/9_column_then_row_with_minitp.py
# y = [ -2. -18.  11.  40.]
# 1 sync point in the trace of rank 0:
#   all_reduce at mlp.down: partial -> whole, shape (1, 1, 4), 32 bytes: add the ranks' partial sums of y
"""Script 4 with minitp's layers: the same two cuts, the same one sync, and now it is on record.

Without MPI the ranks can be threads: `minitp run -n 3 --world threads lessons/mpi/9_column_then_row_with_minitp.py`.
"""
import numpy as np

import minitp
from minitp.context import Context
from minitp.layers import ColumnParallelLinear, RowParallelLinear

D, F = 4, 7
x = np.arange(1.0, D + 1).reshape(1, 1, D)             # B T D, whole
W_up = np.arange(F * D).reshape(F, D) * 4.0 % 9 - 4    # F D, weights are (out, in)
W_down = np.arange(D * F).reshape(D, F) * 7.0 % 9 - 4  # D F


def mlp(tp: minitp.Communicator) -> None:
    mine = minitp.Cut(F, tp.size).of(tp.rank)          # this rank's share of F
    weights = {"mlp.up.weight": W_up[mine.start:mine.stop], "mlp.down.weight": W_down[:, mine.start:mine.stop]}
    up = ColumnParallelLinear("mlp.up", tp, len(mine))
    down = RowParallelLinear("mlp.down", tp, len(mine), "add the ranks' partial sums of y")
    y = down.forward(np.maximum(up.forward(x, weights, Context()), 0), weights, Context())
    if tp.rank == 0:
        print(f"y = {y[0, 0]}\n{len(tp.recorder.events)} sync point in the trace of rank 0:")
        for e in tp.recorder.events:
            print(f"  {e.op} at {e.site}: {e.before} -> {e.after}, shape {e.shape}, {e.payload} bytes: {e.reason}")
    assert np.allclose(y, np.maximum(x @ W_up.T, 0) @ W_down.T)


minitp.launch(mlp)
