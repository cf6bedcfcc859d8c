"""From wherever weights come to this rank's shards: random, a file; sliced by every rank, or scattered by one.

A source answers `read(parameter, slices, dtype)` for any slice of any logical parameter; the placement says which slice
each rank needs; here they meet and become the physical arrays (q, k, v stacked; gate, up stacked) that layers multiply.
"""
from collections.abc import Callable
from typing import Any, Literal, Protocol, runtime_checkable
from zlib import crc32

import numpy as np

from minitp.comm import Communicator
from minitp.config import ModelConfig
from minitp.cut import Slices
from minitp.errors import ConfigError
from minitp.placement import Parameter, Placement

Weights = dict[str, Any]


@runtime_checkable
class Source(Protocol):
    """Where a model's parameters are read from."""

    @property
    def config(self) -> ModelConfig: ...

    def read(self, parameter: Parameter, slices: Slices, dtype: Any = np.float32) -> np.ndarray: ...


class RandomSource:
    """Seeded random weights by global index: the same model whatever the number of ranks."""

    def __init__(self, config: ModelConfig, seed: int = 0):
        self.config, self.seed = config, seed

    def read(self, parameter: Parameter, slices: Slices, dtype: Any = np.float32) -> np.ndarray:
        """A slice of the full draw: norms are 1, biases 0, matrices scaled by 1/√inputs so that signals keep size."""
        kind = parameter.name.rsplit(".", 1)[1]
        if kind == "bias":
            whole = np.zeros(parameter.shape)
        elif len(parameter.shape) == 1:
            whole = np.ones(parameter.shape)
        else:
            key = np.array([self.seed, crc32(parameter.name.encode())], np.uint64)
            draw = np.random.Generator(np.random.Philox(key=key)).standard_normal(parameter.shape)
            whole = draw * self.scale(parameter)
        return np.ascontiguousarray(whole[slices], dtype=dtype)

    def scale(self, parameter: Parameter) -> float:
        """The deviation of a matrix's numbers."""
        return parameter.shape[1] ** -0.5 if "embedding" not in parameter.name else 0.5


def load_weights(source: Source | None, placement: Placement, group: Communicator, *,
                 mode: Literal["slice", "scatter"] = "slice", dtype: Any = np.float32,
                 progress: Callable[[int, int], None] | None = None) -> Weights:
    """This rank's weights by physical name. `progress` is called with the bytes done and in all.

    slice    every rank reads its own slices; nothing is sent (`source` on every rank)
    scatter  rank 0 reads one parameter at a time and scatters it, or broadcasts it where it is whole: for machines
             without a shared file system (`source` on rank 0, None elsewhere)
    """
    if mode not in ("slice", "scatter"):
        raise ConfigError(f"weights are loaded by slice or scatter, not {mode!r}")
    weights: Weights = {}
    arrays, homes = group.arrays, placement.homes(group.rank)
    done, total = 0, placement.elements(group.rank) * np.dtype(dtype).itemsize
    with group.recorder.mark("load"), group.recorder.without_values():
        for parameter in placement.parameters:                           # table order: that of the events
            array, rows = homes[parameter.name]
            if array.name not in weights:
                weights[array.name] = arrays.xp.empty(placement.physical_shape(array, group.rank), dtype)
            if mode == "slice":
                piece = _own_slice(source, parameter, placement, group.rank, dtype)
            else:
                piece = _scattered(source, parameter, placement, group, dtype)
            weights[array.name][rows] = piece if arrays.is_device(piece) else arrays.from_host(piece)
            done += piece.nbytes
            if progress is not None:
                progress(done, total)
    for parameter in placement.parameters:
        if len(parameter.shape) == 2:
            array, rows = homes[parameter.name]
            group.recorder.keep_weight(parameter.name, weights[array.name][rows], arrays)
    return weights


def _own_slice(source: Source | None, parameter: Parameter, placement: Placement, rank: int, dtype: Any) -> np.ndarray:
    if source is None:
        raise ConfigError("loading by slice needs the model's files on every rank; without a shared file system use "
                          "--load scatter")
    return source.read(parameter, placement.slices(parameter, rank), dtype)


def _scattered(source: Source | None, parameter: Parameter, placement: Placement, group: Communicator,
               dtype: Any) -> Any:
    """One event per logical parameter, in table order."""
    whole = tuple(slice(0, n) for n in parameter.shape)
    if source is None and group.rank == 0:
        raise ConfigError("scattering the weights needs the model's files on rank 0")
    array = None if source is None or group.rank else source.read(parameter, whole, dtype)
    if parameter.cut_axis is None:
        return group.broadcast(array, shape=parameter.shape, dtype=dtype, site=parameter.name,
                               reason="every rank needs all of it")
    pieces = [placement.slices(parameter, rank) for rank in range(group.size)]
    return group.scatter(array, pieces=pieces, shape=parameter.shape, dtype=dtype, axis=parameter.cut_axis,
                         site=parameter.name, reason="hand every rank its slice of the weights")
