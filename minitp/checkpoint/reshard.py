"""Per-rank checkpoints: each rank writes what it holds, and any number of ranks reads it back.

    folder/
      placement.json                 format, version, dtype, ranks, embedding, cut, and the model's config
      rank-0-of-3.safetensors        rank 0's slice of every parameter, under its logical name
      rank-1-of-3.safetensors …

    write_rank(folder, placement, rank, weights)          on every rank, into a new folder
    open_checkpoint(folder).read(parameter, slices)       any slice, from whichever files hold it
    reshard(folder, other_folder, ranks=5)                3 ranks -> 5 ranks
    to_hf(folder, out)                                    -> config.json and model.safetensors

q, k and v are cut one by one, never as one fused matrix, so a change of the number of ranks moves numbers and doesn't
compute any: the result is equal bit for bit.
"""
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from minitp.checkpoint import safetensors
from minitp.checkpoint.checkpoint import Checkpoint
from minitp.checkpoint.files import read_json, shape_of, some
from minitp.checkpoint.hf_config import config_to_hf
from minitp.checkpoint.names import HF_GPT2, HF_LLAMA, NameMap
from minitp.checkpoint.opening import open_checkpoint
from minitp.config import ModelConfig
from minitp.cut import Slices
from minitp.errors import ConfigError, FileFormatError
from minitp.files import replacing
from minitp.placement import Parameter, Placement

FORMAT, VERSION = "minitp per-rank checkpoint", 1
DTYPES: dict[str, np.dtype[Any]] = {"F32": np.dtype(np.float32), "F64": np.dtype(np.float64)}

Pieces = Callable[[Parameter, Slices], np.ndarray]


def rank_file(rank: int, ranks: int) -> str:
    return f"rank-{rank}-of-{ranks}.safetensors"


# --- writing ----------------------------------------------------------------------------------------------------------

def write_rank(folder: str | Path, placement: Placement, rank: int, weights: Mapping[str, np.ndarray]) -> None:
    """Write `rank`'s weights, slices of the logical parameters by name, all float32 or all float64.

    Rank 0 writes placement.json too. The folder must be new: a checkpoint written over another one could be left half
    old, half new, and look whole. ConfigError if it isn't, or if `weights` aren't what the placement says.
    """
    names, held = {p.name for p in placement.parameters}, set(weights)
    if names != held:
        raise ConfigError(f"a rank writes every parameter: missing {some(names - held) or 'none'}, "
                          f"not a parameter: {some(held - names) or 'none'} (fused arrays are taken apart first)")
    dtype = next((name for name, d in DTYPES.items() if all(w.dtype == d for w in weights.values())), None)
    if dtype is None:
        raise ConfigError("a rank's weights must all be float32 or all float64, "
                          f"not {some({str(w.dtype) for w in weights.values()})}")
    _write_rank(Path(folder), placement, rank, dtype, lambda p, _: weights[p.name])


def _write_rank(folder: Path, placement: Placement, rank: int, dtype: str, pieces: Pieces) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / rank_file(rank, placement.ranks)
    if path.exists():
        raise ConfigError(f"{path} is there already: write to a new folder; one half old, half new would look whole")
    tensors = {p.name: (dtype, placement.shape(p, rank)) for p in placement.parameters}
    safetensors.write(path, tensors, (pieces(p, placement.slices(p, rank)) for p in placement.parameters))
    if rank == 0:
        description = {"format": FORMAT, "version": VERSION, "dtype": dtype, "ranks": placement.ranks,
                       "embedding": placement.embedding, "cut": placement.cut, "config": placement.config.to_dict()}
        with replacing(folder / "placement.json") as file:
            file.write(json.dumps(description, indent=1).encode())


def reshard(source: str | Path | Checkpoint, folder: str | Path, ranks: int, **placement: Any) -> None:
    """Write any checkpoint as one of `ranks` ranks, a tensor at a time. `placement`: `embedding` and `cut`."""
    checkpoint = _opened(source)
    target = Placement(checkpoint.config, ranks, **placement)
    for rank in range(ranks):
        _write_rank(Path(folder), target, rank, "F64" if checkpoint.dtype == np.float64 else "F32",
                    lambda p, slices: checkpoint.read(p, slices, checkpoint.dtype))


def to_hf(source: str | Path | Checkpoint, folder: str | Path) -> None:
    """Write any checkpoint as a Hugging Face folder, config.json and model.safetensors, a tensor at a time."""
    checkpoint, folder = _opened(source), Path(folder)
    config, dtype = checkpoint.config, checkpoint.dtype
    names, parts = _hf_names(config), hf_tensors(config)
    values = config_to_hf(config) | {"dtype": str(dtype)}

    def tensors() -> Iterator[np.ndarray]:
        for together in parts.values():
            tensor = np.empty(names.locate(together[0], config).shape, dtype)
            for p in together:
                names.locate(p, config).place(checkpoint.read(p, _whole(p), dtype), tensor)
            yield tensor

    folder.mkdir(parents=True, exist_ok=True)
    stored = "F64" if dtype == np.float64 else "F32"
    shapes = {names.full_name(name): (stored, names.locate(together[0], config).shape)
              for name, together in parts.items()}
    safetensors.write(folder / "model.safetensors", shapes, tensors(), {"format": "pt"})
    with replacing(folder / "config.json") as file:
        file.write(json.dumps(values, indent=2).encode())


def hf_tensors(config: ModelConfig) -> dict[str, list[Parameter]]:
    """The tensors of a Hugging Face folder, in the order in which `to_hf` reads and writes them, and what lies in each:
    several parameters where q, k, v are one tensor."""
    names, parts = _hf_names(config), dict[str, list[Parameter]]()
    for parameter in Placement(config, ranks=1).parameters:
        parts.setdefault(names.locate(parameter, config).tensor, []).append(parameter)
    return parts


def _hf_names(config: ModelConfig) -> NameMap:
    return HF_GPT2 if config.learned_positions else HF_LLAMA


def _opened(source: str | Path | Checkpoint) -> Checkpoint:
    return source if isinstance(source, Checkpoint) else open_checkpoint(source)


def _whole(parameter: Parameter) -> Slices:
    return tuple(slice(0, size) for size in parameter.shape)


# --- reading ----------------------------------------------------------------------------------------------------------

class RankCheckpoint(Checkpoint):
    """A folder that `write_rank` wrote. Where several ranks hold a copy (kv heads, norms), the copies are compared."""

    def __init__(self, folder: Path):
        self.path = folder
        self.check()

    def check(self) -> None:
        """FileFormatError unless every rank's file is here and holds exactly its slices."""
        path = self.path / "placement.json"
        values = read_json(path)
        if values.get("format") != FORMAT or values.get("version") != VERSION or values.get("dtype") not in [*DTYPES]:
            raise FileFormatError(f"{path}: this is not a {FORMAT} of version {VERSION} in F32 or F64: format is "
                                  f"{values.get('format')!r:.40}, version {values.get('version')!r:.40}, "
                                  f"dtype {values.get('dtype')!r:.40}")
        try:
            self.config = ModelConfig.from_dict(values["config"])
            first = safetensors.read_manifest(self.path / rank_file(0, values["ranks"]))
            if self.config.layers > len(first.tensors):
                raise FileFormatError(f"{path}: {self.config.layers} layers in {len(first.tensors)} tensors of rank 0")
            self.placement = Placement(self.config, values["ranks"], values["embedding"], values["cut"])
        except (KeyError, TypeError) as error:
            raise FileFormatError(f"{path}: a field is missing or of the wrong kind: {error}") from None
        self.dtype = DTYPES[values["dtype"]]
        self.files = [safetensors.read_manifest(file) for file in self._rank_files(self.placement.ranks)]
        for rank, file in enumerate(self.files):
            wanted = {p.name: (values["dtype"], self.placement.shape(p, rank)) for p in self.placement.parameters}
            found = {name: (entry.dtype, entry.shape) for name, entry in file.tensors.items()}
            if found != wanted:
                wrong = sorted(name for name in wanted | found if wanted.get(name) != found.get(name))
                raise FileFormatError(f"{file.path}: not what, by placement.json, rank {rank} holds: {some(wrong)}; "
                                      f"{wrong[0]} is {found.get(wrong[0])}, not {wanted.get(wrong[0])}")

    def _rank_files(self, ranks: int) -> list[Path]:
        here = {path.name for path in self.path.iterdir()}
        names = [rank_file(rank, ranks) for rank in range(min(ranks, len(here) + 1))]
        if missing := set(names) - here:
            raise FileFormatError(f"{self.path}: a checkpoint of {ranks} ranks lacks {some(missing)}")
        return [self.path / name for name in names]

    def _read_into(self, parameter: Parameter, slices: Slices, out: np.ndarray) -> None:
        parameter = self.placement.parameter(parameter.name)              # as it is cut here, not where it goes
        axis = parameter.cut_axis or 0
        wanted, filled = slices[axis], slices[axis].start
        for rank, file in enumerate(self.files):
            held = self.placement.slices(parameter, rank)[axis]
            start, stop = max(held.start, wanted.start), min(held.stop, wanted.stop)
            if start >= stop:
                continue
            stored = (*slices[:axis], slice(start - held.start, stop - held.start), *slices[axis + 1:])
            place = out[(*[slice(None)] * axis, slice(start - wanted.start, stop - wanted.start))]
            if start == filled:
                file.read_into(parameter.name, stored, place)
            else:
                self._add_copy(file, parameter, stored, np.moveaxis(place, axis, 0), axis, filled - start)
            filled = max(filled, stop)

    def _add_copy(self, file: safetensors.Manifest, parameter: Parameter, stored: Slices, place: np.ndarray, axis: int,
                  known: int) -> None:
        """Fill `place` from a piece whose first `known` rows earlier ranks hold too: those must agree."""
        piece = np.empty(shape_of(stored), place.dtype)
        file.read_into(parameter.name, stored, piece)
        piece = np.moveaxis(piece, axis, 0)
        if not np.array_equal(piece[:known], place[:known], equal_nan=True):
            raise FileFormatError(f"{file.path}: {parameter.name} is held by several ranks, and this copy differs from "
                                  "an earlier rank's: they went apart before they were saved")
        place[known:] = piece[known:]
