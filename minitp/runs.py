"""Traces on this machine that the app can open: the bundled samples, and the runs folder.

A run is asked for by its name in a list made here, never by a path.
"""
import gzip
import json
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import minitp
from minitp.trace.failed import is_failed
from minitp.trace.file import MAX_RANKS
from minitp.trace.wording import count, plain

SUFFIXES = (".json", ".json.gz")
MOST = 200                             # runs in a list: the newest
HEAD = 1 << 18                         # characters of a file in which its header must lie to give a title
_TITLE = 60                            # characters


@dataclass(frozen=True)
class RunFile:
    """A trace file: `name` is what the address says: its file name, of a sample without the ending, so that the two
    can't meet. size in bytes, modified in ns since 1970."""
    name: str
    path: Path
    modified: int
    size: int
    sample: bool = False


def runs_folder() -> Path:
    """Where the app keeps its runs: MINITP_RUNS, or `runs` in the system's data folder for minitp."""
    from platformdirs import user_data_dir
    chosen = os.environ.get("MINITP_RUNS")
    return Path(chosen).expanduser() if chosen else Path(user_data_dir("minitp", appauthor=False), "runs")


def samples() -> list[RunFile]:
    """The bundled traces, by name."""
    found = listed(Path(minitp.__file__).parent / "view" / "traces", sample=True)
    return sorted(found, key=lambda run: run.name)


def listed(folder: Path, sample: bool = False) -> list[RunFile]:
    """The trace files that lie in `folder` itself, newest first; none where there is no such folder.

    Links and hidden files are left out: a run that is still being written has a hidden name.
    """
    found = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                suffix = next((s for s in reversed(SUFFIXES) if entry.name.endswith(s)), "")
                if not suffix or entry.name.startswith(".") or not entry.is_file(follow_symlinks=False):
                    continue
                facts = entry.stat(follow_symlinks=False)
                name = entry.name.removesuffix(suffix) if sample else entry.name
                found.append(RunFile(name, Path(entry.path), facts.st_mtime_ns, facts.st_size, sample))
    except OSError:
        return []
    return sorted(found, key=lambda run: (-run.modified, run.name))[:MOST]


def header_of(path: Path) -> dict[str, Any]:
    """`run` of a trace file, which minitp writes on one line near the top; empty where it isn't there."""
    try:
        with path.open("rb") as plain_file:
            zipped = plain_file.read(2) == b"\x1f\x8b"
        with gzip.open(path) if zipped else path.open("rb") as stream:
            lines = stream.read(HEAD).decode("utf-8", "replace").split("\n")
        line = next((line for line in lines if line.startswith('"run":')), "")
        header = json.loads("{" + line.removesuffix(",") + "}").get("run")
    except (OSError, EOFError, zlib.error, ValueError, RecursionError):
        return {}
    return header if isinstance(header, dict) else {}


def title(run: dict[str, Any]) -> str:
    """"The capital of France is Paris" · smollm2-135m on 3 ranks (mpi): what is in the header, as one line of text.

    Of a training run: 2 training steps · tiny on 4 ranks (mpi).
    """
    model, ranks, steps = run.get("model"), run.get("ranks"), training_steps(run)
    parts = [f"“{words}”" for words in [plain(_text(run), _TITLE)] if words]
    parts += [count(steps, "training step")] if steps else []
    name = plain(model.get("name") or "", 40) if isinstance(model, dict) else ""
    on = f"on {count(ranks, 'rank')}" if type(ranks) is int and 0 < ranks <= MAX_RANKS else ""
    world = f"({plain(run['world'], 12)})" if isinstance(run.get("world"), str) else ""
    if placed := " ".join(filter(None, (name, on, world))):
        parts.append(placed)
    if is_failed(run):
        parts.append("failed")
    return " · ".join(parts)


def training_steps(run: dict[str, Any]) -> int:
    """How many training steps the header tells of; 0 where it tells of none."""
    what = run.get("training")
    segments = what.get("segments") if isinstance(what, dict) else None
    found = [part["steps"] for part in segments if isinstance(part, dict) and isinstance(part.get("steps"), list)] \
        if isinstance(segments, list) else []
    counts = [numbers[1] for numbers in found if len(numbers) == 2]
    return sum(n for n in counts if type(n) is int and 0 < n < 2**31)


def _text(run: dict[str, Any]) -> str:
    """What the run wrote, the first of several."""
    text = run.get("text")
    first = text[0] if isinstance(text, list) and text else text
    return first if isinstance(first, str) else ""
