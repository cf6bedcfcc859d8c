"""A run that failed after one sum of rank 0: it and rank 2 are in the next one. What a test wants else it changes."""
from minitp.trace import Event, Mark, Trace
from minitp.trace.schema import Unfinished

CALL = Unfinished(0, "tp", 0, 1, "all_reduce", None, None, "mlp.down", "decode", 3, None, (1, 8), "float32", 40, 90)
EVENT = Event(0, "tp", 0, 0, "data", "all_reduce", None, None, None, "attention.o", "add", "decode", 3, None, None,
              "partial", "whole", (1, 8), "float32", 32, 10, 30, None, None, None, None, False, "")
NASTY = "<b>[red]\x1b[2J\x07\ud800\n\u202e</b>"
CALLS = (CALL, CALL._replace(rank=2, root=1, peer=0, step=None, shape=()))


def small(calls=CALLS, **run):
    return Trace.of([EVENT], [Mark(0, "decode", 3, None, 0, 100)], unfinished=calls,
                    run={"ranks": 4, "failed": "it broke", **run})
