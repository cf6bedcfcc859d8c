"""A training checkpoint: all that a run needs to go on as if it had never stopped, on any number of ranks.

    run/
      step-00000020/             complete, or not there: written under another name, brought to disk, then renamed
        config.json              with model.safetensors (and tokenizer.json, where there is one) an ordinary Hugging
        model.safetensors        Face folder: `minitp generate -m run/step-00000020`; of bf16 the rounded weights
        optimizer.safetensors    m.NAME, v.NAME (in bf16 training master.NAME too) of each parameter, whole tensors
        training.json            the step, the placement it was written from, the run's own state (seeds, data
                                 position, …), and the size and SHA-256 of every other file

Tensors are whole and have the logical parameters' names, so the number of ranks and the cut may be others when the run
goes on. Random numbers are drawn by (seed, step, global index): the state of the generators is the seeds and the step.
"""
import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from minitp.checkpoint import safetensors
from minitp.checkpoint.checkpoint import Checkpoint
from minitp.checkpoint.files import read_json
from minitp.checkpoint.hf_config import config_to_hf
from minitp.checkpoint.reshard import hf_tensors, to_hf
from minitp.comm import Communicator
from minitp.cut import Slices
from minitp.errors import ConfigError, FileFormatError, NumericsError, SaveError
from minitp.files import move_in, partial_name, remove_folder, replacing
from minitp.placement import Parameter, Placement
from minitp.train.optimizer import AdamW
from minitp.train.reduce import owned

FORMAT, VERSION = "minitp training checkpoint", 1
NAME = re.compile(r"step-(\d{8,})")
MODEL, OPTIMIZER, TRAINING = "model.safetensors", "optimizer.safetensors", "training.json"
STORED = {"float32": "F32", "float64": "F64"}


def folder_name(step: int) -> str:
    return f"step-{step:08d}"


def save(run: str | Path, step: int, placement: Placement, weights: Mapping[str, Any], optimizer: AdamW,
         group: Communicator, *, state: Mapping[str, Any] | None = None, extra: Callable[[Path], None] | None = None,
         keep: int = 2) -> Path:
    """Write the checkpoint after `step` steps into the folder `run`; every rank calls it. Returns its folder.

    state  the run's own plain data, given back as it is    extra  writes further files (a tokenizer's), on rank 0
    keep   how many checkpoints stay; older ones are removed once the new one is in place

    One parameter at a time comes together on rank 0. ConfigError for a model that no config.json describes. SaveError
    on all ranks where it can't be written, NumericsError where a weight isn't finite: nothing of it is left then, and
    what was there before still is.
    """
    if keep < 1:
        raise ConfigError(f"at least the last checkpoint is kept, not {keep}")
    config_to_hf(placement.config)                     # on every rank: a model without such a folder is refused by all
    path = Path(run) / folder_name(step)
    with group.recorder.mark("checkpoint", step):
        temporary = Path(group.on_root(lambda: str(_begin(path)), site="checkpoint", reason="a checkpoint can be "
                                       "written here, or no rank starts to"))
        try:
            failure = _write(temporary, placement, weights, optimizer, group)
        except BaseException:
            if group.rank == 0:
                shutil.rmtree(temporary, ignore_errors=True)
            raise
        facts = {"step": step, "optimizer_steps": optimizer.steps, "dtype": precision(optimizer),
                 "placement": {"ranks": placement.ranks, "embedding": placement.embedding, "cut": placement.cut},
                 "config": placement.config.to_dict(), "state": dict(state or {})}
        group.on_root(lambda: _finish(temporary, path, facts, failure, extra, keep), site="checkpoint",
                      reason="the checkpoint is complete, or all ranks know that it isn't")
    return path


def checkpoints(run: Path) -> list[Path]:
    """The checkpoints in a run's folder, oldest first, by their names and what training.json says it is."""
    return sorted((path for path in step_folders(run) if is_checkpoint(path)), key=step_of)


def step_folders(run: Path) -> list[Path]:
    return [path for path in run.iterdir() if NAME.fullmatch(path.name)] if run.is_dir() else []


def is_checkpoint(path: Path) -> bool:
    """Whether minitp wrote this folder; not whether it is in order."""
    try:
        return read_json(path / TRAINING).get("format") == FORMAT
    except FileFormatError:
        return False


def step_of(path: Path) -> int:
    match = NAME.fullmatch(path.name)
    if match is None:
        raise ConfigError(f"{path}: a checkpoint's folder is named after its step, {folder_name(20)} for example")
    return int(match[1])


def precision(optimizer: AdamW) -> str:
    """float32, float64 or bf16: what a run computes in, which it keeps when it goes on."""
    return "bf16" if optimizer.bf16 else next((str(m.dtype) for m in optimizer.m.values()), "float32")


def digest(facts: Mapping[str, Any]) -> str:
    """Of training.json itself, without the entry that holds this."""
    text = json.dumps({key: value for key, value in facts.items() if key != "sha256"}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def file_facts(path: Path) -> dict[str, Any]:
    with open(path, "rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


# --- what rank 0 does before and after --------------------------------------------------------------------------------

def _begin(path: Path) -> Path:
    """The folder that the checkpoint is written into, beside its place."""
    if path.exists():
        what = "a checkpoint of that step" if is_checkpoint(path) else "something else than a checkpoint"
        raise SaveError(f"{path} is there already, {what}: it is never written over; move it, or give the run another "
                        "folder")
    temporary = partial_name(path)
    try:
        temporary.mkdir(parents=True)
    except OSError as error:
        raise _unwritable(path, error) from error
    return temporary


def _finish(temporary: Path, path: Path, facts: dict[str, Any], failure: OSError | NumericsError | None,
            extra: Callable[[Path], None] | None, keep: int) -> None:
    try:
        if failure is not None:
            raise failure
        if extra is not None:
            extra(temporary)
        files = {file.name: file_facts(file) for file in sorted(temporary.iterdir())}
        facts = {"format": FORMAT, "version": VERSION, **facts, "files": files}
        with replacing(temporary / TRAINING) as file:
            file.write(json.dumps(facts | {"sha256": digest(facts)}, indent=1).encode())
        move_in(temporary, path)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise _unwritable(path, error) from error
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    for old in checkpoints(path.parent)[:-keep]:
        with suppress(OSError):                        # the new one is in place: one too many is no failure
            remove_folder(old)


def _unwritable(path: Path, error: OSError) -> SaveError:
    last = next((old.name for old in reversed(_quietly(path.parent))), None)
    return SaveError(f"the checkpoint {path} can't be written: {error.strerror or error}. Nothing of it was left; "
                     + (f"{last} is still there: free some space or give leave to write, and go on from it (--resume)"
                        if last else "the run has no checkpoint yet"))


def _quietly(run: Path) -> list[Path]:
    try:
        return checkpoints(run)
    except OSError:
        return []


# --- the tensors, from all ranks to rank 0 ----------------------------------------------------------------------------

def optimizer_tensors(placement: Placement, dtype: str) -> list[tuple[str, Parameter]]:
    """What optimizer.safetensors holds, in its order: (kind, parameter)."""
    return [(kind, parameter) for kind in (("m", "v", "master") if dtype == "bf16" else ("m", "v"))
            for parameter in placement.parameters]


def _write(temporary: Path, placement: Placement, weights: Mapping[str, Any], optimizer: AdamW, group: Communicator,
           ) -> OSError | NumericsError | None:
    """Hand every parameter to rank 0, which writes it. What stopped rank 0 from writing is returned, not raised: it
    takes part to the end, or the others would wait for it."""
    dtype = precision(optimizer)
    stored = "float32" if dtype == "bf16" else dtype
    arrays = {"": weights} | optimizer.state()
    order = [("", placement.parameter(p.name)) for parts in hf_tensors(placement.config).values() for p in parts]
    order += optimizer_tensors(placement, dtype)
    whole, failure = wholes(order, arrays, placement, group, reason="rank 0 writes the checkpoint, whole tensors, so "
                            "that any cut can read it"), None
    if group.rank == 0:
        good = _finite(order, whole)
        try:
            to_hf(_Gathered(temporary, placement, good, np.dtype(stored)), temporary)
            safetensors.write(temporary / OPTIMIZER, {f"{kind}.{p.name}": (STORED[stored], p.shape)
                                                      for kind, p in optimizer_tensors(placement, dtype)}, good)
        except (OSError, NumericsError) as error:
            failure = error
    for _ in whole:
        pass
    return failure


def _finite(order: list[tuple[str, Parameter]], whole: Iterator[Any]) -> Iterator[Any]:
    """What `whole` gives, on rank 0. NumericsError at a weight that isn't finite, which no gradient has met yet."""
    for (kind, parameter), array in zip(order, whole, strict=True):
        if kind in ("", "master") and not np.isfinite(array).all():
            raise NumericsError(f"the last step's update has spoilt the weights ({parameter.name} isn't finite): no "
                                "checkpoint of them is written, and those of before are as they were. A lower --rate "
                                "or a longer --warmup may help, in a new run or from a checkpoint: --model CHECKPOINT "
                                "--out FOLDER")
        yield array


def wholes(order: list[tuple[str, Parameter]], arrays: Mapping[str, Any], placement: Placement, group: Communicator,
           reason: str) -> Iterator[Any]:
    """Each whole tensor on rank 0, None on the others: gathered if it is cut; rank 0 has it if it isn't.

    order  (kind, parameter)    arrays  kind → this rank's arrays by physical name    reason  for the record
    """
    homes = placement.homes(group.rank)
    for kind, parameter in order:
        array, rows = homes[parameter.name]
        piece = arrays[kind][array.name][rows]
        if parameter.cut_axis is not None:             # copied kv heads: the first holder of each gives it
            axis = parameter.cut_axis
            piece = group.gather(piece[owned(parameter, placement, group.rank)], axis=axis,
                                 cut=placement.owners(parameter.axes[axis]), plane="control",
                                 site=".".join(filter(None, (kind, parameter.name))),
                                 reason=reason)
        yield None if group.rank else _on_host(piece, group)


def _on_host(piece: Any, group: Communicator) -> np.ndarray:
    return group.arrays.to_host(piece) if group.arrays.is_device(piece) else piece


class _Gathered(Checkpoint):
    """The model as it comes from the ranks, for `to_hf`, which reads it in the order in which it comes."""

    def __init__(self, path: Path, placement: Placement, wholes: Iterator[Any], dtype: np.dtype):
        self.path, self.config, self.dtype, self._wholes = path, placement.config, dtype, wholes

    def _read_into(self, parameter: Parameter, slices: Slices, out: np.ndarray) -> None:
        out[...] = next(self._wholes)[slices]
