"""Write your own split layer and see its trace: `minitp run -n 3 lessons/own_layer.py` (or `--world threads`)."""
import numpy as np

import minitp
from minitp.trace import ShowComm


def length(tp: minitp.Communicator) -> None:
    """The length of a vector that is cut over the ranks: square and add what is here, one sync, then the root."""
    tp.recorder.listener = ShowComm() if tp.rank == 0 else None           # prints what is recorded, as it happens
    x = np.arange(1.0, 11.0)
    mine = minitp.Cut(x.size, tp.size).of(tp.rank)
    own = x[mine.start:mine.stop]                                         # whole → shard: free
    squares = minitp.Partial(np.array([own @ own]), tp)                   # this rank's term of the sum
    with tp.recorder.mark("forward"):
        total = tp.all_reduce(squares, site="length", reason="add the ranks' sums of squares")
    print(f"rank {tp.rank}: |x| = {np.sqrt(total[0]):.4f}\n", end="")       # whole lines, also from threads


minitp.launch(length)
