"""`minitp compare`: the same first steps of a training run on several numbers of ranks, one after the other."""
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from minitp.comm import Communicator
from minitp.commands.train_run import new_learner
from minitp.environment import launcher_environment
from minitp.errors import ConfigError, LaunchError, NumericsError
from minitp.launcher import launch
from minitp.launcher.job import run_job
from minitp.launcher.mpiexec import no_mpi
from minitp.progress import steps_bar
from minitp.train.compare import Mesh, Row, measure, mesh_name, ranks_of
from minitp.train.config import TrainConfig, merged, read_toml

MOST = 64                              # ranks: more of them on one machine show nothing that these don't
JOB = "minitp.commands.compare_job"


class JobFailedError(Exception):
    """An MPI job ended with this exit code; it has said why itself."""

    def __init__(self, code: int):
        super().__init__(f"exit code {code}")
        self.code = code


@dataclass(frozen=True)
class CompareOptions:
    """Everything `minitp compare` was asked for. `settings`: a training run's, by section; `timeout` of each run."""
    settings: dict[str, Any]
    ranks: str = "1,2,3,4,8"
    world: str = "threads"
    as_json: bool = False
    timeout: float | None = None

    def config(self) -> TrainConfig:
        """The settings, checked; only the steps themselves are compared."""
        run = {"save_every": 0, "evaluate_every": 0, "sample_every": 0}
        return TrainConfig.from_dict(merged(self.settings, {"run": run}))


def base_settings(file: Path | None) -> dict[str, Any]:
    """What holds where no option says otherwise: a file of settings, or steps that are small and exact.

    A file's warm-up is of its own many steps; of a few it is the usual tenth.
    """
    if file is None:
        return {"train": {"batch": 4, "tokens": 32, "dtype": "float64"}}
    settings = read_toml(file)
    if isinstance(settings.get("optimizer"), dict):
        settings["optimizer"].pop("warmup", None)
    return settings


def meshes(ranks: str) -> list[Mesh]:
    """"1,2,4" → the meshes to compare. One rank, the reference, always comes first."""
    numbers = []
    for word in ranks.split(","):
        if not (word.strip().isascii() and word.strip().isdigit()) or not 1 <= int(word) <= MOST:
            raise ConfigError(f"--ranks {ranks!r:.60}: {word.strip()!r:.20} isn't a number of ranks; give numbers from "
                              f"1 to {MOST} with commas between them, such as 1,2,4. One rank is always run, as the "
                              "reference")
        numbers.append(int(word))
    return [{"tp": number} for number in dict.fromkeys([1, *numbers])]


def compare(options: CompareOptions) -> None:
    """Run all, and print a table, or each run's row as JSON as soon as it is there. NumericsError at the end where a
    loss or a gradient isn't finite."""
    from rich.console import Console

    from minitp.commands.compare_table import print_table
    if launcher_environment() is not None:
        raise LaunchError("minitp compare starts the ranks of each of its runs itself: leave out mpirun; --world mpi "
                          "makes them MPI processes")
    config, rows = options.config(), []
    for row in runs(options, config, Console(stderr=True)):
        rows.append(row)
        if options.as_json:
            print(json.dumps(row), flush=True)
    if not options.as_json:
        print_table(rows, Console(highlight=False))
    _check_finite(rows, config)


def _check_finite(rows: list[Row], config: TrainConfig) -> None:
    """NumericsError where a run left the numbers: what isn't finite is held against nothing."""
    wrong = [mesh_name(row["mesh"]) for row in rows
             if None in (*row["losses"], row["max_gradient_difference"], row["max_gradient"])]
    if wrong:
        raise NumericsError(f"losses or gradients of {', '.join(wrong)} aren't finite, so the runs can't be held "
                            "against each other: a lower rate (--set optimizer.rate=…, it is "
                            f"{config.optimizer.rate:g}) or fewer --steps may help")


def runs(options: CompareOptions, config: TrainConfig, console: Any = None) -> Iterator[Row]:
    """The row of each run, the reference's first."""
    todo, world = meshes(options.ranks), options.world
    if world == "auto":
        world = "threads" if no_mpi() else "mpi"
    steps, finished = config.train.steps, 0
    with (TemporaryDirectory(prefix="minitp-compare-") as folder,
          steps_bar(console, "comparing", len(todo) * steps) as show):
        for mesh in todo:
            taken = count(1)
            show(finished, mesh_name(mesh))
            if world == "mpi":
                row = in_job(mesh, config, Path(folder), options.timeout)
            else:
                row = in_threads(mesh, config, Path(folder), options.timeout,
                                 lambda: show(finished + next(taken), mesh_name(mesh)))      # noqa: B023 (called here)
            finished += steps
            yield row


def on_rank(group: Communicator, mesh: Mesh, config: TrainConfig, folder: Path,
            progress: Callable[[], Any] = lambda: None) -> Row:
    """One run on one of its ranks; rank 0 tells of the progress."""
    learner, corpus = new_learner(group, config)
    return measure(group, mesh, learner, corpus, config, folder, progress if group.rank == 0 else lambda: None)


def in_threads(mesh: Mesh, config: TrainConfig, folder: Path, timeout: float | None,
               progress: Callable[[], Any]) -> Row:
    from minitp.trace.recorder import Recorder
    return launch(lambda group: on_rank(group, mesh, config, folder, progress), ranks_of(mesh), world="threads",
                  run_deadline=timeout, recorder=lambda rank: Recorder(rank, keep_events=False))[0]


def in_job(mesh: Mesh, config: TrainConfig, folder: Path, timeout: float | None) -> Row:
    """A run as an MPI job; task and row go through the folder, what it prints to this process's output."""
    task, answer = folder / "task.json", folder / "row.json"
    answer.unlink(missing_ok=True)
    task.write_text(json.dumps({"mesh": mesh, "settings": config.to_dict()}), encoding="utf-8")
    if code := run_job(["-m", JOB, str(folder)], ranks_of(mesh), timeout=timeout):
        raise JobFailedError(code)
    return json.loads(answer.read_text(encoding="utf-8"))
