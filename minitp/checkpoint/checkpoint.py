"""A checkpoint: a model's config and its parameters by logical name, in whichever files they lie.

    checkpoint = open_checkpoint("SmolLM2-135M-Instruct.gguf")        # see minitp.checkpoint.opening
    placement = Placement(checkpoint.config, ranks=3)
    for p in placement.parameters:
        piece = checkpoint.read(p, placement.slices(p, rank))

Opening reads headers only and checks everything: every parameter is there exactly once, with the shape that the config
implies, and nothing else is. `read` then can't meet a surprise, and holds no more memory than its result and a block.
"""
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from minitp.checkpoint.files import BLOCK, TensorFile, plain_slices, shape_of, some
from minitp.checkpoint.names import Location, NameMap
from minitp.config import ModelConfig
from minitp.cut import Slices
from minitp.errors import ConfigError, FileFormatError
from minitp.placement import Parameter, Placement


@dataclass(frozen=True)
class TokenizerSource:
    """Where the tokenizer is: a folder with tokenizer.json, or the metadata of a GGUF file."""
    path: Path
    metadata: Mapping[str, Any] | None = None


class Checkpoint(ABC):
    """A model in files. `notes` says what a user may want to know and need not act on.

    `dtype` is the narrowest of float32 and float64 that holds every weight as stored.
    """
    path: Path
    config: ModelConfig
    notes: tuple[str, ...] = ()
    dtype: np.dtype = np.dtype(np.float32)

    def read(self, parameter: Parameter, slices: Slices, dtype: Any = np.float32) -> np.ndarray:
        """A slice of a logical parameter, C-contiguous, float32 or float64. Only its bytes are read.

        `slices`: one per axis, step 1, as `Placement.slices` gives them. ConfigError for any other slice or dtype.
        """
        if np.dtype(dtype) not in (np.float32, np.float64):
            raise ConfigError(f"weights are read as float32 or float64, not {np.dtype(dtype)}")
        slices = plain_slices(slices, parameter.shape, parameter.name)
        out = np.empty(shape_of(slices), dtype)
        self._read_into(parameter, slices, out)
        return out

    @abstractmethod
    def _read_into(self, parameter: Parameter, slices: Slices, out: np.ndarray) -> None: ...

    @property
    def tokenizer_source(self) -> TokenizerSource | None:
        """None where the checkpoint brings no tokenizer."""
        folder = self.path if self.path.is_dir() else self.path.parent
        return TokenizerSource(folder) if (folder / "tokenizer.json").exists() else None

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return Placement(self.config, ranks=1).parameters


class FileCheckpoint(Checkpoint):
    """A checkpoint in one or several files of one format; `names` says where in them each parameter lies."""

    def __init__(self, path: Path, config: ModelConfig, names: NameMap, files: list[TensorFile],
                 notes: tuple[str, ...] = ()):
        self.path, self.config, self.names, self.files, self.notes = path, config, names, files, notes
        self._tensors: dict[str, tuple[TensorFile, str]] = {}
        self.check()

    def check(self) -> None:
        """FileFormatError unless the files hold exactly the parameters that the config implies."""
        self._tensors = self._canonical_tensors()
        layers = self.names.layers_in(list(self._tensors))
        if layers != self.config.layers:
            raise FileFormatError(f"{self.path}: {self.names.fields['layers']} is {self.config.layers} and the tensors "
                                  f"are of {layers} layers")
        wanted = {p.name: self.names.locate(p, self.config) for p in self.parameters}
        head = self._duplicate_head() if self.config.tied else None
        here, needed = set(self._tensors) - {head}, {location.tensor for location in wanted.values()}
        if needed - here:
            raise FileFormatError(f"{self.path}: missing tensor(s): {some(needed - here)}" + self._hint(here - needed))
        if here - needed:
            raise FileFormatError(f"{self.path}: unexpected tensor(s): {some(here - needed)}; the config has no use "
                                  "for them" + self._hint(here - needed))
        for p in self.parameters:
            self._check_shape(p, wanted[p.name])
        if head:
            self._check_head(head, wanted["embedding.weight"].tensor)
        double = any(file.tensors[name].dtype == "F64" for file, name in self._tensors.values())
        self.dtype = np.dtype(np.float64 if double else np.float32)
        self._locations = wanted

    def _canonical_tensors(self) -> dict[str, tuple[TensorFile, str]]:
        found: dict[str, tuple[TensorFile, str]] = {}
        for file in self.files:
            for name in file.tensors:
                canonical = self.names.canonical(name)
                if canonical in found:
                    other, twin = found[canonical]
                    raise FileFormatError(f"{file.path}: tensor {name!r} is there twice, "
                                          f"also as {twin!r} in {other.path}")
                if canonical is not None:
                    found[canonical] = file, name
        return found

    def _check_shape(self, p: Parameter, location: Location) -> None:
        """The shapes agree, or an error names the config's field, its value and the one that the file implies."""
        file, name = self._tensors[location.tensor]
        entry = file.tensors[name]
        if not file.readable(entry.dtype):
            raise FileFormatError(f"{file.path}: tensor {name!r} is {entry.dtype}; a weight must be of floating point")
        if entry.shape == location.shape:
            return
        message = f"{file.path}: tensor {name!r} has shape {entry.shape}, the config implies {location.shape}"
        axes = p.axes[::-1] if location.transposed else p.axes
        sizes = p.shape[::-1] if location.transposed else p.shape
        for axis, ours, implied, got in zip(axes, sizes, location.shape, entry.shape, strict=False):
            if got != implied and ours == implied and len(entry.shape) == len(axes):
                e = self.config.head_size if axis in ("head", "kv_head") else 1
                there = f"{got // e}" if got % e == 0 else f"{got / e:.2f}"
                each = f" (of head size {e})" if e > 1 else ""
                message += f"; {self.names.fields.get(axis, axis)} is {ours // e}, the file's tensor has {there}{each}"
        raise FileFormatError(message)

    def _hint(self, unexpected: set[str]) -> str:
        if any(word in name for name in unexpected for word in ("qkv", "query_key_value", "gate_up")):
            return ('; fused tensors come in several orders that their shapes don\'t tell apart: declare theirs, '
                    'open_checkpoint(path, names=HF_LLAMA.fused("qkv", "layers.{}.self_attn.qkv_proj", "groups"))')
        if any(name.endswith(".bias") for name in unexpected):
            return " (the config says that these layers have no bias)"
        return ""

    # --- a tied head that is in the file all the same ----------------------------------------------------------------

    def _duplicate_head(self) -> str | None:
        head = self.names.stored["head"].tensor + ".weight"
        return head if head in self._tensors else None

    def _check_head(self, head: str, embedding: str) -> None:
        """A tied model's file may repeat the table as the head: then it is equal, number by number, and loaded once."""
        (a, a_name), (b, b_name) = self._tensors[embedding], self._tensors.pop(head)
        shape = a.tensors[a_name].shape
        same = b.tensors[b_name].shape == shape
        step = max(1, BLOCK // max(1, shape[-1]))
        for start in range(0, shape[0] if same else 0, step):
            block = (slice(start, min(start + step, shape[0])), slice(0, shape[1]))
            x, y = np.empty(shape_of(block)), np.empty(shape_of(block))
            a.read_into(a_name, block, x)
            b.read_into(b_name, block, y)
            if not np.array_equal(x, y, equal_nan=True):
                same = False
                break
        if not same:
            raise FileFormatError(f"{self.path}: the config ties the head to the embedding, and the file holds a head, "
                                  f"{b_name!r}, that differs from {a_name!r}: set the config's tie to false to use "
                                  "both, or remove the head")

    def _read_into(self, parameter: Parameter, slices: Slices, out: np.ndarray) -> None:
        if parameter.name not in self._locations:
            raise ConfigError(f"the model has no parameter {parameter.name!r}")
        location = self._locations[parameter.name]
        file, name = self._tensors[location.tensor]
        location.read(lambda stored, target: file.read_into(name, stored, target), slices, out)
