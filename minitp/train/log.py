"""The log of a run: `log.jsonl` in its folder, one JSON object a line, written by rank 0 as things happen.

    start       what is trained on what, and the settings              resume    the same, of a run that goes on
    step        step, loss, tokens, rate, norm, skipped, seconds, tokens_per_second, sync_points, payload
    memory      bytes that a rank holds, by kind: the most of all ranks
    evaluation  step, loss (of the validation part), tokens            sample    step, prompt, text
    checkpoint  step, folder, seconds                                  end       step, seconds

`step` is how many steps had been done: the number of the checkpoint's folder. A run that goes on from a checkpoint
takes back the lines that lie beyond it, so that no step is there twice.
"""
import json
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from minitp.errors import FileFormatError, SaveError
from minitp.files import replacing

FILE = "log.jsonl"
Row = Mapping[str, Any]


class RunLog:
    """Appends rows to the log of a run's folder; each line is on its way to the disk when `write` returns."""

    def __init__(self, folder: Path):
        self.path = folder / FILE
        self._file = open(self.path, "ab", buffering=0)                    # noqa: SIM115 (as long as the run)

    def write(self, row: Row) -> None:
        """SaveError where it can't be written: a full disk takes a part of a line first, then refuses."""
        rest = line(row)
        try:
            while rest:
                rest = rest[self._file.write(rest):]
        except OSError as error:
            raise SaveError(f"the log {self.path} can't be written: {error.strerror or error}. The run's checkpoints, "
                            "where it has any, are as they were: free some space; --resume goes on from the last one"
                            ) from error

    def close(self) -> None:
        self._file.close()


def line(row: Row) -> bytes:
    """A row as it is written. JSON has no NaN: a loss that isn't finite is null."""
    return (json.dumps({key: plain_number(value) for key, value in row.items()}) + "\n").encode()


def plain_number(value: Any) -> Any:
    return None if isinstance(value, float) and not isfinite(value) else value


def read_log(folder: Path) -> list[dict[str, Any]]:
    """The rows of a log; a last line that was being written when the run was killed is left out.

    Raises FileFormatError where a line is no row.
    """
    path, rows = folder / FILE, []
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    for number, text in enumerate(lines[:-1], 1):
        try:
            row = json.loads(text)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict) or not isinstance(row.get("kind"), str):
            raise FileFormatError(f"{path}, line {number}: it isn't a row of a run's log, {{\"kind\": …}}. Move "
                                  "the file away: a run that goes on begins a new one")
        rows.append(row)
    return rows


def take_back(folder: Path, step: int) -> None:
    """Leave in the log what had happened when `step` steps were done, and not that the run ended there."""
    kept = [row for row in read_log(folder) if row["kind"] != "end" and _step(row) <= step]
    with replacing(folder / FILE) as file:
        file.writelines(map(line, kept))


def _step(row: Row) -> int:
    step = row.get("step", 0)
    return step if isinstance(step, int) else 0
