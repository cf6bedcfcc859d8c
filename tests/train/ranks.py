"""Whole gradients and weights by logical name, as the ranks hold them: shards, wholes, and the terms of copies."""
from zlib import crc32

import numpy as np

from minitp.placement import Parameter, Placement


def drawn(parameter: Parameter, seed: int) -> np.ndarray:
    """The whole parameter, a draw by its name."""
    return np.random.default_rng([seed, crc32(parameter.name.encode())]).standard_normal(parameter.shape)


def term(parameter: Parameter, placement: Placement, rank: int, seed: int) -> np.ndarray:
    """`rank`'s gradient as backward leaves it: its slice, and of copies a term that differs from the others'."""
    whole = drawn(parameter, seed)
    if parameter.gradient != "partial":
        return whole[placement.slices(parameter, rank)]
    terms = np.zeros_like(whole)
    e = placement.config.head_size
    for head in range(placement.config.kv_heads):
        holders = [r for r in range(placement.ranks) if head in placement.kv_heads(r)]
        shares = np.random.default_rng([seed, head]).standard_normal(len(holders))
        shares += (1 - shares.sum()) / len(holders)
        if rank in holders:
            terms[head * e:(head + 1) * e] = whole[head * e:(head + 1) * e] * shares[holders.index(rank)]
    return terms[placement.slices(parameter, rank)]


def physical(placement: Placement, rank: int, piece, dtype=np.float64) -> dict[str, np.ndarray]:
    """The arrays of a rank's memory, filled by `piece(parameter)`."""
    made = {a.name: np.empty(placement.physical_shape(a, rank), dtype) for a in placement.physical}
    homes = placement.homes(rank)
    for parameter in placement.parameters:
        array, rows = homes[parameter.name]
        made[array.name][rows] = piece(parameter)
    return made


def gradients_of(placement: Placement, rank: int, seed: int = 1, dtype=np.float64) -> dict[str, np.ndarray]:
    return physical(placement, rank, lambda p: term(p, placement, rank, seed), dtype)


def weights_of(placement: Placement, rank: int, seed: int = 0, dtype=np.float64) -> dict[str, np.ndarray]:
    return physical(placement, rank, lambda p: drawn(p, seed)[placement.slices(p, rank)], dtype)


def slices_of(arrays: dict[str, np.ndarray], placement: Placement, rank: int) -> dict[str, np.ndarray]:
    """The logical parameters' pieces in a rank's arrays."""
    return {name: arrays[array.name][rows] for name, (array, rows) in placement.homes(rank).items()}
