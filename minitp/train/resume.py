"""Going on from a checkpoint: found, checked, read by slices, whatever the number of ranks that wrote it.

    with holding(run, group, say):
        checkpoint = latest(run, group, say)                 # None: a new run
        weights = load_weights(checkpoint.model, placement, group, dtype=…)
        optimizer = AdamW(weights, …)
        checkpoint.restore(optimizer, placement, group)      # moments, master weights, step count
"""
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from minitp.checkpoint import safetensors
from minitp.checkpoint.checkpoint import Checkpoint
from minitp.checkpoint.files import read_json, shape_of, some
from minitp.checkpoint.opening import open_checkpoint
from minitp.comm import Communicator
from minitp.config import ModelConfig
from minitp.errors import ConfigError, FileFormatError, SaveError
from minitp.files import remove_partials
from minitp.placement import Placement
from minitp.train.checkpoint import (
    FORMAT,
    MODEL,
    NAME,
    OPTIMIZER,
    STORED,
    TRAINING,
    VERSION,
    digest,
    file_facts,
    folder_name,
    optimizer_tensors,
    precision,
    step_folders,
    step_of,
)
from minitp.train.optimizer import AdamW

WAIT = 30.0
"""Seconds to wait for a run whose ranks are just ending: killed ranks may outlive their launcher for a moment."""

QUIET = 1.0
"""Seconds of it in which nothing is said."""

LEFT = re.compile(NAME.pattern + r"|.+\.jsonl|.+\.toml")
"""Names in a run's folder that a killed run may have been writing: checkpoints, its log, its settings."""


@dataclass(frozen=True)
class TrainingCheckpoint:
    """An opened checkpoint: `step` steps were done; `state` is what the run gave to `save`."""
    path: Path
    step: int
    optimizer_steps: int
    dtype: str
    config: ModelConfig
    placement: dict[str, Any]
    state: dict[str, Any]
    model: Checkpoint
    optimizer: safetensors.Manifest

    def restore(self, optimizer: AdamW, placement: Placement, group: Communicator) -> None:
        """Fill the optimizer's state on this rank, in place. ConfigError where the run is another than the one saved.

        The optimizer stands on weights that are loaded already (from `model`, for any placement).
        """
        if precision(optimizer) != self.dtype:
            raise ConfigError(f"{self.path} was trained in {self.dtype}, and this run computes in "
                              f"{precision(optimizer)}: a run goes on in its own precision")
        if placement.config != self.config:
            raise ConfigError(f"{self.path} is a checkpoint of another model: {_differences(self.config, placement)}")
        homes, arrays, state = placement.homes(group.rank), group.arrays, optimizer.state()
        for kind, parameter in optimizer_tensors(placement, self.dtype):
            array, rows = homes[parameter.name]
            target, slices = state[kind][array.name], placement.slices(parameter, group.rank)
            piece = np.empty(shape_of(slices), str(target.dtype))
            self.optimizer.read_into(f"{kind}.{parameter.name}", slices, piece)
            target[rows] = arrays.from_host(piece)
        optimizer.steps = self.optimizer_steps
        optimizer.round_weights()


def latest(run: str | Path, group: Communicator, say: Callable[[str], None]) -> TrainingCheckpoint | None:
    """The newest checkpoint of a run that is in order, None if there is none yet; every rank calls it.

    What killed writers left is removed. A damaged checkpoint that is newer is set aside, as NAME.damaged, and `say` is
    told on rank 0; FileFormatError where all are damaged: a run that began anew by itself would look like one that
    went on.
    """
    with group.recorder.mark("load"):
        found = group.on_root(lambda: _find(Path(run)), site="checkpoint", reason="all ranks go on from the same one")
    if group.rank == 0:
        for message in found["messages"]:
            say(message)
    return None if found["path"] is None else open_training(found["path"], digests=False)


def open_training(path: str | Path, digests: bool = True) -> TrainingCheckpoint:
    """The checkpoint in a folder, everything checked; without `digests` all but the files' contents (a rank that reads
    what another one has checked)."""
    path = Path(path)
    facts = _checked_facts(path)
    if facts["step"] != step_of(path):
        raise FileFormatError(f"{path / TRAINING}: this is the checkpoint of step {facts['step']!r:.40}, whose folder "
                              f"was named {folder_name(facts['step'])!r:.60}")
    for name, said in facts["files"].items():
        file = path / name
        if not file.is_file() or file.stat().st_size != said.get("bytes"):
            raise FileFormatError(f"{file}: {said.get('bytes')!r:.40} bytes were written, " + (
                f"{file.stat().st_size} are there" if file.is_file() else "and the file is gone"))
        if digests and file_facts(file)["sha256"] != said.get("sha256"):
            raise FileFormatError(f"{file}: its contents have changed since they were written (SHA-256 differs)")
    model, optimizer = open_checkpoint(path), safetensors.read_manifest(path / OPTIMIZER)
    config = _config(path, facts["config"], model.config)
    placement = Placement(config, 1)
    stored = STORED.get("float32" if facts["dtype"] == "bf16" else facts["dtype"])
    wanted = {f"{kind}.{p.name}": (stored, p.shape) for kind, p in optimizer_tensors(placement, facts["dtype"])}
    held = {name: (entry.dtype, entry.shape) for name, entry in optimizer.tensors.items()}
    if held != wanted:
        wrong = [name for name in held | wanted if held.get(name) != wanted.get(name)]
        raise FileFormatError(f"{optimizer.path}: not the state of the model that training.json names: {some(wrong)}")
    return TrainingCheckpoint(path, facts["step"], facts["optimizer_steps"], facts["dtype"], config, facts["placement"],
                              facts["state"], model, optimizer)


@contextmanager
def holding(run: str | Path, group: Communicator, say: Callable[[str], None], wait: float = WAIT) -> Iterator[None]:
    """One run at a time works in a folder; the operating system frees it when the process that holds it dies. Where it
    must be waited for `say` is told, on rank 0."""
    from filelock import FileLock, Timeout
    lock = FileLock(Path(run) / ".lock")

    def acquire() -> None:
        try:
            Path(run).mkdir(parents=True, exist_ok=True)
            try:
                lock.acquire(timeout=min(QUIET, wait))
            except Timeout:
                say(f"another run is at work in {run}; waiting up to {wait:.0f} s for it to end")
                lock.acquire(timeout=max(0.0, wait - QUIET))
        except Timeout:
            raise SaveError(f"another run is at work in {run}: two would remove each other's files. Wait for it or end "
                            "it, or give this run another folder") from None
        except OSError as error:
            raise SaveError(f"{run} can't be written to: {error.strerror or error}; give the run another folder"
                            ) from error

    with group.recorder.mark("load"):
        group.on_root(acquire, site="checkpoint", reason="one run at a time works in a folder")
    try:
        yield
    finally:
        lock.release()


def _find(run: Path) -> dict[str, Any]:
    """On rank 0: the newest checkpoint in order, and what there is to say."""
    messages, damaged = [], []
    if run.is_dir() and (left := remove_partials(run, LEFT)):
        messages.append(f"removed what a run that was stopped had not finished: {some(left)}")
    for path in sorted(step_folders(run), key=step_of, reverse=True):
        if not (path / TRAINING).exists():             # a checkpoint has its name only when it is complete
            messages.append(f"{path} is no checkpoint of a training run (there is no {TRAINING}): left alone")
            continue
        try:
            open_training(path)
        except (FileFormatError, ConfigError) as error:            # ConfigError: a config.json that can't be
            damaged.append((path, error))
            continue
        messages += [_set_aside(*pair, path) for pair in damaged]
        return {"path": str(path), "messages": messages}
    if damaged:
        raise FileFormatError(f"no checkpoint in {run} is in order: " + "; ".join(str(error) for _, error in damaged)
                              + ". Start a new run in another folder")
    return {"path": None, "messages": messages}


def _set_aside(path: Path, error: Exception, good: Path) -> str:
    """Out of the way of the checkpoint of that step to come, and kept: it is the user's to remove."""
    names = (f"{path.name}.damaged" + (f"-{number}" if number > 1 else "") for number in count(1))
    aside = next(path.with_name(name) for name in names if not path.with_name(name).exists())
    path.rename(aside)
    return f"{path.name} is damaged ({error}): going on from {good.name}, the one before; it lies in {aside.name} now"


def _checked_facts(path: Path) -> dict[str, Any]:
    """training.json, every field of the kind it must be."""
    file = path / TRAINING
    facts = read_json(file)
    if facts.get("format") != FORMAT or facts.get("version") != VERSION:
        raise FileFormatError(f"{file}: this is not a {FORMAT} of version {VERSION}: format "
                              f"{facts.get('format')!r:.40}, version {facts.get('version')!r:.40}")
    if facts.get("sha256") != digest(facts):
        raise FileFormatError(f"{file}: its contents have changed since they were written (SHA-256 differs)")
    kinds = {"step": int, "optimizer_steps": int, "dtype": str, "placement": dict, "config": dict, "state": dict,
             "files": dict}
    wrong = [key for key, kind in kinds.items() if type(facts.get(key)) is not kind]
    if not wrong:
        files = facts["files"].items()
        wrong = [name for name, said in files if Path(name).name != name or not isinstance(said, dict)]
    if wrong or not 0 <= facts["optimizer_steps"] <= facts["step"] or facts["dtype"] not in ("bf16", *STORED):
        raise FileFormatError(f"{file}: of the wrong kind: {some(wrong) or 'step, optimizer_steps or dtype'}")
    if missing := {"config.json", MODEL, OPTIMIZER} - set(facts["files"]):
        raise FileFormatError(f"{file}: the list of files lacks {some(missing)}")
    return facts


def _config(path: Path, said: dict[str, Any], held: ModelConfig) -> ModelConfig:
    """The model that training.json names, of the sizes that the model's file has."""
    try:
        config = ModelConfig.from_dict(said)
    except (ConfigError, TypeError) as error:
        raise FileFormatError(f"{path / TRAINING}: the model's config isn't one: {error}") from None
    sizes = ("hidden", "layers", "heads", "kv_heads", "head_size", "ffn", "vocab", "positions", "tied")
    if wrong := [size for size in sizes if getattr(config, size) != getattr(held, size)]:
        raise FileFormatError(f"{path / TRAINING}: the model's {wrong[0]} is {getattr(config, wrong[0])!r:.40}, and "
                              f"{getattr(held, wrong[0])!r:.40} in config.json")
    return config


def _differences(saved: ModelConfig, placement: Placement) -> str:
    here, there = placement.config.to_dict(), saved.to_dict()
    return "; ".join(f"{key} was {there[key]!r:.60}, here it is {here[key]!r:.60}" for key in here
                     if here[key] != there[key])
