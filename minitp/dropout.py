"""Dropout whose masks don't depend on how many ranks there are: each is drawn by where it belongs, not by who draws it.

Srivastava et al. 2014, scaled at training time. A mask belongs to a site, to a head where the site is cut by heads, and
to a sequence of the training data by its running number. So the streams agree on all ranks where activations are whole,
differ where they are shards, don't change with micro-batches, and a recomputed forward pass meets the same ones.
"""
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np

from minitp.arrays import NUMPY, Arrays
from minitp.errors import ConfigError


@dataclass(frozen=True)
class Dropout:
    """One pass's dropout: `rate` of the entries become 0, the others are divided by 1 - rate.

    `sequences` are the running numbers of this pass's B sequences in the whole run.
    """
    rate: float
    seed: int
    sequences: Sequence[int]
    arrays: Arrays = NUMPY

    def __post_init__(self):
        if not 0 <= self.rate < 1:
            raise ConfigError(f"dropout is a share of at least 0 and below 1, not {self.rate!r}")

    def mask(self, site: str, shape: tuple[int, ...], dtype: Any) -> Any:
        """(B, *shape): 0 or 1 / (1 - rate), the factors of `site`'s entries."""
        kept = np.empty((len(self.sequences), *shape), bool)
        for row, sequence in enumerate(self.sequences):
            # the counter holds the sequence, far above what a draw counts up to
            bits = np.random.Philox(key=[self.seed, crc32(site.encode())], counter=[0, 0, 0, sequence])
            kept[row] = np.random.Generator(bits).random(shape, np.float32) >= self.rate
        return self.arrays.from_host(kept.astype(dtype) * np.dtype(dtype).type(1 / (1 - self.rate)))
