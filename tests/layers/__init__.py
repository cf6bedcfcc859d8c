"""Each layer against the plain, uncut computation, on ranks that may hold nothing."""
import numpy as np

from minitp.layers import Logits

RANKS = (1, 2, 3, 5, 7)


def drawn(seed: int, *shapes: tuple[int, ...]) -> list[np.ndarray]:
    """Random float64 arrays, the same on every rank."""
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape) for shape in shapes]


def syncs(comm) -> list[str]:
    """What was sent: op, site, state before and after."""
    return [f"{e.op} {e.site}: {e.before} → {e.after}" for e in comm.recorder.events]


class Kept:
    """An observer that keeps what layers leave, and copies to see whether it is changed later."""

    def __init__(self):
        self.arrays: dict[tuple[str, str], np.ndarray] = {}
        self.copies: dict[tuple[str, str], np.ndarray] = {}

    def save(self, site, arrays, ctx):
        for name, array in arrays.items():
            array = array.array if isinstance(array, Logits) else array
            if isinstance(array, np.ndarray):                    # not the numbers that say which heads these are
                self.arrays[site, name], self.copies[site, name] = array, np.array(array)
