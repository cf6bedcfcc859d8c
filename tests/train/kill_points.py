"""Kills real training runs at random moments, lets them go on, and compares every loss with those of unbroken runs.

    python -m tests.train.kill_points --points 200 --seed 1 --folder /tmp/kills            about 4 s a point
    python -m tests.train.kill_points --points 20 --seed 1 --folder /tmp/kills --worlds mpi

A run is `minitp train` on a small model in float64, with dropout and micro-batches, on ranks that are threads or MPI
processes. It is killed (-9: the process, or of MPI the launcher, mpiexec or a rank) while it starts, a moment after a
step, or in the middle of a checkpoint; started again with --resume, maybe on other ranks; killed again; and in the end
left alone. Then

    every step is in the log once, with the loss of the unbroken run: the same bits on the same ranks, else to 1e-10
    every launch went on from the newest checkpoint that had its name when the one before was killed
    no checkpoint was damaged, and no process outlived the kill for long

The moments are drawn by (seed, run). Done runs are kept in FOLDER/points.jsonl; started again, the command goes on with
the next one. Linux only: the processes of a run are found in /proc.
"""
import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from shutil import rmtree
from typing import Any

from tests.train.killing import Launch, PointFailedError, check, check_end, log_of, moment, newest

STEPS, EVERY = 24, 2
SETTINGS = f"""
[model]
family = "llama"
hidden = 24
layers = 2
heads = 6
kv_heads = 2
head_size = 4
ffn = 40
positions = 16

[train]
steps = {STEPS}
batch = 4
tokens = 12
micro_batches = 2
dropout = 0.1
dtype = "float64"

[run]
save_every = {EVERY}
evaluate_every = 0
sample_every = 0
"""


@dataclass
class Kills:
    """`ranks` to choose from, by world."""
    folder: Path
    seed: int
    worlds: tuple[str, ...]
    ranks: dict[str, tuple[int, ...]]
    per_run: int = 8
    _references: dict[tuple[str, int], dict[int, float]] = field(default_factory=dict)
    startup: float = 3.0

    def __post_init__(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "settings.toml").write_text(SETTINGS)

    def reference(self, world: str, ranks: int) -> dict[int, float]:
        """The losses of an unbroken run."""
        if (world, ranks) not in self._references:
            folder = self.folder / f"unbroken-{world}-{ranks}"
            if not any(row["kind"] == "end" for row in log_of(folder)):
                rmtree(folder, ignore_errors=True)
                launch = self._launch(folder, world, ranks)
                while not launch.ended():
                    time.sleep(0.02)
                if launch.process.returncode:
                    raise PointFailedError(f"the unbroken run failed:\n{launch.output()}")
            rows = log_of(folder)
            self._references[world, ranks] = {row["step"]: row["loss"] for row in rows if row["kind"] == "step"}
        return self._references[world, ranks]

    def _launch(self, folder: Path, world: str, ranks: int) -> Launch:
        return Launch(folder, world, ranks, self.folder / "cache")

    def run(self, number: int, kills: int) -> list[dict[str, Any]]:
        """One run, killed up to `kills` times and then left alone: a row for each kill."""
        rng = Random(f"{self.seed} {number}")
        world = rng.choice(self.worlds)
        same = rng.random() < 0.7
        first = rng.choice(self.ranks[world])
        folder, points = self.folder / f"run-{number:05d}", list[dict[str, Any]]()
        rmtree(folder, ignore_errors=True)
        for old in self.folder.glob(f"run-{number:05d}.*"):
            old.unlink()
        losses = self.reference(world, first)
        while True:
            ranks = first if same else rng.choice(self.ranks[world])
            launch = self._launch(folder, world, ranks)
            kind = rng.choices(("start", "step", "checkpoint"), (1, 3, 4))[0]
            if len(points) == kills or not moment(launch, kind, rng, self.startup):
                break
            during = launch.writing()
            victim, seconds = launch.kill(rng)
            added = check(launch, losses, same)
            points.append({"run": number, "world": world, "ranks": ranks, "same_ranks": same, "moment": kind,
                           "killed": victim, "in_checkpoint": bool(during), "half_written": bool(launch.writing()),
                           "went_on_from": launch.expected, "checkpoint": newest(folder), "losses": added,
                           "seconds_to_end": round(seconds, 2)})
        while not launch.ended():
            time.sleep(0.02)
        check(launch, losses, same)
        check_end(launch, losses)
        rmtree(folder)
        for told in self.folder.glob(f"run-{number:05d}.*"):
            told.unlink()
        return points

    def points(self, wanted: int) -> Iterator[list[dict[str, Any]]]:
        """Runs until there are `wanted` points, those of earlier calls included."""
        kept = self.folder / "points.jsonl"
        rows = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
        number = 1 + max((row["run"] for row in rows), default=-1)
        done = sum(row["killed"] != "none" for row in rows)
        while done < wanted:
            made = self.run(number, min(self.per_run, wanted - done))
            with open(kept, "a") as file:
                file.writelines(json.dumps(row) + "\n" for row in made)
            done, number = done + sum(row["killed"] != "none" for row in made), number + 1
            yield made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--points", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--worlds", default="threads,threads,threads,mpi", help="drawn from; more often, if named so")
    asked = parser.parse_args()
    kills = Kills(asked.folder.resolve(), asked.seed, tuple(asked.worlds.split(",")),
                  {"threads": (1, 2, 3, 4), "mpi": (2, 3)})
    begin = time.monotonic()
    for made in kills.points(asked.points):
        for row in made:
            print(json.dumps(row), flush=True)
    rows = [json.loads(line) for line in (kills.folder / "points.jsonl").read_text().splitlines()]
    rows = [row for row in rows if row["killed"] != "none"]
    print(json.dumps({"points": len(rows), "seconds": round(time.monotonic() - begin), "runs": len({
        row["run"] for row in rows}), "losses": sum(row["losses"] for row in rows), **{
        f"{key} {value}": sum(row[key] == value for row in rows) for key in ("world", "moment", "killed")
        for value in sorted({row[key] for row in rows})}, "in_checkpoint": sum(row["in_checkpoint"] for row in rows),
        "half_written": sum(row["half_written"] for row in rows)}))


if __name__ == "__main__":
    main()
