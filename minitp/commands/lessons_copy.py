"""The lessons in a folder of the user's: copied, brought up to date, and never over what the user changed.

A record in the folder says what was copied there. A file that is no longer as it was copied is the user's; so is one
that was there before. A notebook and its script are one: Jupytext shows the cells of whichever is newer, so where one
half is the user's, the other is left alone, too.
"""
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from minitp.errors import ConfigError
from minitp.files import replacing

RECORD = ".minitp-lessons.json"              # file → digest of what was copied
_LEFT_OUT = ("__pycache__", ".")             # what Python and Jupyter leave in a folder of lessons


@dataclass(frozen=True)
class Copied:
    """Names below the folder. kept: the user's, where minitp's own differs; fresh: minitp's own beside it."""
    written: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    fresh: list[str] = field(default_factory=list)


def copy_lessons(source: Path, folder: Path, *, fresh: bool = False) -> Copied:
    """Copy every file below `source` into `folder`, which may hold an older copy. ConfigError where it can't be one."""
    _check(source, folder)
    folder.mkdir(parents=True, exist_ok=True)
    record, done = _read_record(folder / RECORD), Copied()
    for pair in _pairs(source):
        own = {name: (source / name).read_bytes() for name in pair}
        theirs = [name for name in pair if _is_the_users(folder / name, own[name], record.get(name))]
        done.kept.extend(theirs)
        for name in theirs if fresh else ():
            done.fresh.append(_write_beside(folder / name, own[name]).relative_to(folder).as_posix())
        for name in () if theirs else pair:
            record[name] = _digest(own[name])
            if not _holds(folder / name, own[name]):
                _write(folder / name, own[name])
                done.written.append(name)
    _write(folder / RECORD, json.dumps(record, indent=1).encode())
    return done


def files(source: Path) -> list[str]:
    """What is copied, as names below `source`."""
    return sorted(path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()
                  and not any(part.startswith(_LEFT_OUT) for part in path.relative_to(source).parts))


def _pairs(source: Path) -> Iterator[list[str]]:
    """Files that differ in their ending alone, together."""
    found: dict[str, list[str]] = {}
    for name in files(source):
        found.setdefault(name.rpartition(".")[0] or name, []).append(name)
    yield from found.values()


def _check(source: Path, folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"--folder {folder}: there is a file of that name; the lessons need a folder")
    inside = folder.resolve()
    if inside == source.resolve() or source.resolve() in inside.parents:
        raise ConfigError(f"--folder {folder}: these are the lessons that minitp copies from; give a folder of your "
                          "own, so that what you change is yours")


def _is_the_users(path: Path, own: bytes, copied: str | None) -> bool:
    """Whether something else is there than the lesson's own, of now or as it was copied."""
    if not path.exists() and not path.is_symlink():
        return False
    if path.is_symlink() or not path.is_file():
        return True
    there = _digest(path.read_bytes())
    return there not in (copied, _digest(own))


def _holds(path: Path, data: bytes) -> bool:
    return path.is_file() and path.read_bytes() == data


def _write_beside(path: Path, data: bytes) -> Path:
    """NAME.fresh.ipynb, or the first NAME.fresh2.ipynb, … that is free or has just this in it."""
    number = 1
    while True:
        beside = path.with_name(f"{path.stem}.fresh{number if number > 1 else ''}{path.suffix}")
        if _holds(beside, data):
            return beside
        if not beside.exists() and not beside.is_symlink():
            _write(beside, data)
            return beside
        number += 1


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        file.write(data)


def _digest(data: bytes) -> str:
    return sha256(data).hexdigest()


def _read_record(path: Path) -> dict[str, str]:
    """Empty where there is none, or none that can be read: then all that differs is taken for the user's."""
    with suppress(OSError, ValueError, RecursionError):
        record = json.loads(path.read_bytes())
        if isinstance(record, dict):
            return {name: digest for name, digest in record.items() if isinstance(digest, str)}
    return {}
