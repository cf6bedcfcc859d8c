"""The folder of a run: its settings, its log and its checkpoints. A run that lies there is never written over."""
from pathlib import Path
from typing import Any

from minitp.errors import ConfigError
from minitp.files import replacing
from minitp.train.checkpoint import folder_name, step_folders, step_of
from minitp.train.config import TrainConfig, merged, read_toml
from minitp.train.log import FILE as LOG

SETTINGS = "train.toml"
CHANGEABLE = {"train": ("steps", "micro_batches", "recompute"), "cut": ("embedding", "cut"), "run": None}
"""What a run that goes on may do otherwise; of [run] all.

Only `steps` makes it learn otherwise: the rate falls over all steps, and a warm-up that was left out is a tenth of
them, so that from here on it takes the rates of a run of the new length, and those done keep the old one's.
"""


def folder_of(asked: dict[str, Any]) -> Path:
    """Where the run lies that is to go on, by settings that leave out what its own file says."""
    run, model = ({} if not isinstance(asked.get(name), dict) else asked[name] for name in ("run", "model"))
    if isinstance(model.get("family"), str) and not run.get("folder"):      # (its sizes are in the run's file)
        return Path("runs", model["family"])
    return TrainConfig.from_dict({"run": {"folder": run.get("folder")}, "model": {"from": model.get("from")}}).folder


def check_free(folder: Path) -> None:
    """Refuse a folder that holds a run, or that can't be one."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file, and a run needs a folder: --out names another")
    if any((folder / name).exists() for name in (SETTINGS, LOG)) or any(folder.glob("step-*")):
        raise ConfigError(f"{folder} already holds a run: --resume goes on with it, --out FOLDER starts another")


def create(folder: Path, config: TrainConfig, resume: bool, done: int = 0) -> None:
    """The folder and the settings in it, as a file that `--config` takes. A new run's folder must be free still, and of
    one that goes on after `done` steps the names of the checkpoints to come."""
    if resume:
        _check_names(folder, config, done)
    else:
        check_free(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / SETTINGS) as file:
        file.write(config.to_toml().encode())


def _check_names(folder: Path, config: TrainConfig, done: int) -> None:
    """Refuse a run whose own checkpoint would meet something else under its name, hours later."""
    every, last = config.run.save_every, config.train.steps
    for path in sorted(step_folders(folder), key=step_of):
        step = step_of(path)
        if every and done < step <= last and (step == last or step % every == 0):
            raise ConfigError(f"{path} is no checkpoint of this run, and the run will save its own under that name "
                              f"after step {step:,}: move or rename it, then --resume again")


def resumed(folder: Path, asked: dict[str, Any]) -> dict[str, Any]:
    """The settings of the run in `folder` with what is `asked` for over them. ConfigError where that would train
    otherwise than the steps that have been done."""
    if not (folder / SETTINGS).is_file():
        raise ConfigError(f"--resume: {folder} holds no run (there is no {SETTINGS}); --out names the run's folder")
    run = TrainConfig.from_dict(read_toml(folder / SETTINGS))
    whole = merged(run.to_dict(), asked, {"run": {"folder": str(folder)}})
    stored, new = spelled_out(run), spelled_out(TrainConfig.from_dict(whole))
    for section, values in new.items():
        free = CHANGEABLE.get(section, ())
        for key in sorted({*values, *stored[section]}):
            if free is not None and key not in free and values.get(key) != stored[section].get(key):
                raise ConfigError(f"--resume: the run in {folder} has [{section}] {key} = "
                                  f"{stored[section].get(key)!r}, not {values.get(key)!r}, and would no longer be that "
                                  "run; another can start from its checkpoint: --model CHECKPOINT --out FOLDER")
    return whole


def check_steps(folder: Path, done: int, steps: int) -> None:
    """Refuse that a run be shorter than what is done of it: its settings would no longer say what it learned."""
    if steps < done:
        raise ConfigError(f"--resume: the run in {folder} has done {done:,} steps ({folder_name(done)}), and would be "
                          f"one of {steps:,}; --steps takes {done:,} or more. A shorter run is another: --out FOLDER")


def spelled_out(config: TrainConfig) -> dict[str, dict[str, Any]]:
    """The settings, and what a model or a tokenizer left out stands for: to ask for it by name is no change."""
    values = config.to_dict()
    if config.model.from_ is None and config.model.family is None:
        values["model"]["name"] = config.name
    values["data"]["tokenizer"] = config.tokenizer
    return values
