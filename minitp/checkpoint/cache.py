"""A float32 copy of a quantized GGUF file, so that it is dequantized once and not at each start.

    cached(path, folder=None, progress=None) -> a Checkpoint

The copy is a safetensors file with logical names and the model's config in its metadata, in the user's cache folder.
Its name says which file it is of (size, time of change, a hash of the header and of the end); a GGUF that changes gets
a new one.

Several ranks may come at once. One makes the copy; the others don't wait, they dequantize their own slices this time:
the numbers are the same. A copy appears under its name only when it is complete. It is made only if the disk keeps as
much free again as the copy takes; if not, or if the folder can't be written, slices are dequantized, and `notes` says
so.
"""
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from minitp.checkpoint import safetensors
from minitp.checkpoint.checkpoint import Checkpoint, TokenizerSource
from minitp.checkpoint.files import opened
from minitp.config import ModelConfig
from minitp.cut import Slices
from minitp.errors import ConfigError, FileFormatError
from minitp.placement import Parameter, Placement

VERSION = "1"
STALE_SECONDS = 60
"""A maker shows that it lives after each tensor; one that hasn't for this long was killed."""

HASHED = 1 << 20


class CachedCheckpoint(Checkpoint):
    """The copy: every parameter in one tensor of its own name. The tokenizer is still the GGUF file's."""

    def __init__(self, source: Path, copy: Path):
        """FileFormatError if `copy` isn't a complete copy of `source`."""
        self.path, self.copy = source, copy
        self.manifest = safetensors.read_manifest(copy)
        try:
            self.config = ModelConfig.from_dict(json.loads(self.manifest.metadata["config"]))
        except (KeyError, TypeError, ValueError) as error:
            raise FileFormatError(f"{copy}: no config of a model is in its metadata: {error}") from None
        found = {entry.name: (entry.dtype, entry.shape) for entry in self.manifest.tensors.values()}
        if self.config.layers > len(found) or found != {p.name: ("F32", p.shape) for p in self.parameters}:
            raise FileFormatError(f"{copy}: its tensors are not the parameters of its config")

    def _read_into(self, parameter: Parameter, slices: Slices, out: np.ndarray) -> None:
        if parameter.name not in self.manifest.tensors:
            raise ConfigError(f"the model has no parameter {parameter.name!r}")
        self.manifest.read_into(parameter.name, slices, out)

    @property
    def tokenizer_source(self) -> TokenizerSource | None:
        from minitp.checkpoint.gguf import read_manifest
        return TokenizerSource(self.path, read_manifest(self.path).metadata)


def cached(path: Path, folder: Path | None = None, progress: Callable[[int, int], None] | None = None) -> Checkpoint:
    """The GGUF file at `path` through its float32 copy, which is made first where it can be.

    `progress(done_bytes, total_bytes)` is called while a copy is made.
    """
    from minitp.checkpoint.opening import GGUFCheckpoint
    copy = (folder or cache_folder()) / f"{path.stem}-{fingerprint(path)}.safetensors"
    if copy.exists():
        with suppress(FileFormatError):
            return CachedCheckpoint(path, copy)
        with suppress(OSError):
            copy.unlink()                                         # damaged: make it anew
    checkpoint = GGUFCheckpoint(path)
    if checkpoint.dtype != np.float32 or all(entry.dtype in safetensors.WEIGHT_DTYPES
                                             for entry in checkpoint.manifest.tensors.values()):
        return checkpoint                                         # nothing is quantized: a copy would save no work
    try:
        copy.parent.mkdir(parents=True, exist_ok=True)
        with maker(copy) as chosen:
            if chosen and (reason := _no_room(checkpoint, copy.parent)):
                checkpoint.notes += (reason,)
            elif chosen:
                if not copy.exists():                             # another may have been faster
                    _make(checkpoint, copy, progress)
                return CachedCheckpoint(path, copy)
    except OSError as error:
        checkpoint.notes += (f"no float32 copy was kept: {error.strerror or error}",)
    return checkpoint


def cache_folder() -> Path:
    """Beside the fetched models: MINITP_CACHE moves both."""
    from minitp.models import cache_folder as models
    return models().parent / "weights"


def fingerprint(path: Path) -> str:
    """Which content `path` has: its size and time of change, and a hash of its first and last MiB."""
    with opened(path) as (file, size):
        digest = hashlib.sha256(f"{VERSION} {size} {os.fstat(file.fileno()).st_mtime_ns} ".encode())
        digest.update(file.read(HASHED))
        file.seek(max(0, size - HASHED))
        digest.update(file.read(HASHED))
    return digest.hexdigest()[:20]


def _no_room(checkpoint: Checkpoint, folder: Path) -> str:
    """Why a copy can't be kept, or nothing."""
    need, free = 4 * Placement(checkpoint.config, 1).elements(0), shutil.disk_usage(folder).free
    if free >= 2 * need:
        return ""
    return (f"no float32 copy was kept: it takes {need / 1e9:.1f} GB ({need / 2**30:.1f} GiB), and as much again "
            f"should stay free; {folder} has {free / 1e9:.1f} GB")


@contextmanager
def maker(copy: Path) -> Iterator[bool]:
    """Whether the caller is the one that makes `copy`. A lock file whose owner was killed is taken over.

    The lock saves work, no more: were two to make the copy, each would write a file of its own, and move it whole.
    """
    lock = copy.with_suffix(".lock")
    for left in (lock, *copy.parent.glob(f".{copy.name}.*.partial")):
        with suppress(FileNotFoundError):
            if time.time() - left.stat().st_mtime > STALE_SECONDS:
                left.unlink()
    try:
        lock.touch(exist_ok=False)
    except FileExistsError:
        yield False
        return
    try:
        yield True
    finally:
        lock.unlink(missing_ok=True)


def _make(checkpoint: Checkpoint, copy: Path, progress: Callable[[int, int], None] | None) -> None:
    def alive(done: int, total: int) -> None:
        with suppress(FileNotFoundError):
            os.utime(copy.with_suffix(".lock"))
        if progress:
            progress(done, total)

    whole = (checkpoint.read(p, tuple(slice(0, n) for n in p.shape)) for p in checkpoint.parameters)
    safetensors.write(copy, {p.name: ("F32", p.shape) for p in checkpoint.parameters}, whole,
                      {"config": json.dumps(checkpoint.config.to_dict())}, alive)
