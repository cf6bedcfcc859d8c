"""The lessons in a folder of the user's: copied, brought up to date, and never over what the user changed.

A record in the folder says what was copied there. A file that is no longer as it was copied is the user's; so is one
that was there before, and whatever lies behind a link. A notebook and its script are one: Jupytext shows the cells of
whichever is newer, so where one half is the user's, the other is left alone, too.
"""
import errno
import json
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path, PurePosixPath

import minitp
from minitp.errors import ConfigError, SaveError
from minitp.files import replacing

RECORD = ".minitp-lessons.json"              # file → digests of all that was ever copied there
_LEFT_OUT = ("__pycache__", ".")             # what Python and Jupyter leave in a folder of lessons
_NO_ACCESS = (errno.EACCES, errno.EPERM, errno.EROFS)


@dataclass(frozen=True)
class Copied:
    """Names below the folder. kept: the user's, where minitp's own differs; fresh: minitp's own beside it; blocked:
    what stands where a folder of minitp's would be."""
    written: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    fresh: list[str] = field(default_factory=list)
    blocked: list[str] = field(default_factory=list)


def copy_lessons(source: Path, folder: Path, *, fresh: bool = False) -> Copied:
    """Copy every file below `source` into `folder`, which may hold an older copy. ConfigError where it can't be one,
    SaveError where it may not be written to."""
    try:
        _check(source, folder)
        folder.mkdir(parents=True, exist_ok=True)
        return _copy(source, folder, fresh)
    except OSError as error:
        if error.errno not in _NO_ACCESS:
            raise
        where = Path(error.filename).parent if error.filename else folder
        raise SaveError(f"--folder {folder}: you have no permission to write in {where}; give a folder of your own, or "
                        f"make this one writable: chmod u+rwx {where}") from error


def _copy(source: Path, folder: Path, fresh: bool) -> Copied:
    """The record comes before the files: of a copy that is cut off nothing is later taken for the user's."""
    before, done = _read_record(folder / RECORD), Copied()
    record, missing = dict(before), dict[str, bytes]()
    for pair in _pairs(source):
        if blocked := _in_the_way(folder, pair[0]):
            done.blocked.extend([blocked] if blocked not in done.blocked else [])
            continue
        own = {name: (source / name).read_bytes() for name in pair}
        theirs = [name for name in pair if _is_the_users(folder / name, own[name], record.get(name, []))]
        done.kept.extend(theirs)
        for name in theirs if fresh else ():
            done.fresh.append(_write_beside(folder / name, own[name]).relative_to(folder).as_posix())
        for name in () if theirs else pair:
            record[name] = sorted({*record.get(name, []), _digest(own[name])})
            if _read(folder / name) != own[name]:
                missing[name] = own[name]
    if record != before:
        _write(folder / RECORD, json.dumps(record, indent=1).encode())
    for name, data in missing.items():
        _write(folder / name, data)
        done.written.append(name)
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
    for place in (folder, *folder.parents):
        if place.exists() and not place.is_dir():
            what = "there is a file of that name" if place == folder else f"{place} is a file"
            raise ConfigError(f"--folder {folder}: {what}; the lessons need a folder")
        if place.is_symlink() and not place.exists():
            raise ConfigError(f"--folder {folder}: {place} is a link that leads nowhere; remove it, or give another "
                              "folder")
    inside = folder.resolve()
    for taken, what in ((source, "these are the lessons that minitp copies from"),
                        (Path(minitp.__file__).parent, "this is minitp's own code")):
        if taken.resolve() in (inside, *inside.parents):
            raise ConfigError(f"--folder {folder}: {what}; give a folder of your own, so that what you change is yours")
    if _is_minitps_source(folder):
        raise ConfigError(f"--folder {folder}: minitp's source is in this folder, and the lessons would mix with it; "
                          f"give a folder of their own, as {folder / 'minitp-lessons'}")


def _is_minitps_source(folder: Path) -> bool:
    with suppress(OSError, ValueError, AttributeError):
        return tomllib.loads((folder / "pyproject.toml").read_text("utf-8")).get("project", {}).get("name") == "minitp"
    return False


def _in_the_way(folder: Path, name: str) -> str | None:
    """The link or the file that stands where a folder of `name` would be."""
    for parent in reversed(PurePosixPath(name).parents[:-1]):
        place = folder / parent
        if place.is_symlink() or (place.exists() and not place.is_dir()):
            return str(parent)
    return None


def _is_the_users(path: Path, own: bytes, copied: list[str]) -> bool:
    """Whether something else is there than the lesson's own, of now or as it was copied."""
    if not path.exists() and not path.is_symlink():
        return False
    there = None if path.is_symlink() else _read(path)
    return there is None or _digest(there) not in (*copied, _digest(own))


def _read(path: Path) -> bytes | None:
    """None where there is no file, or none that may be read."""
    with suppress(PermissionError):
        return path.read_bytes() if path.is_file() else None
    return None


def _write_beside(path: Path, data: bytes) -> Path:
    """NAME.fresh.ipynb, or the first NAME.fresh2.ipynb, … that is free or has just this in it."""
    number = 1
    while True:
        beside = path.with_name(f"{path.stem}.fresh{number if number > 1 else ''}{path.suffix}")
        if _read(beside) == data:
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


def _read_record(path: Path) -> dict[str, list[str]]:
    """Empty where there is none, or none that can be read: then all that differs is taken for the user's."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise ConfigError(f"{path} is no file of minitp's, which writes there what it has copied; remove it, or give "
                          "another --folder")
    with suppress(OSError, ValueError, RecursionError):
        record = json.loads(path.read_bytes())
        if isinstance(record, dict):
            return {name: known for name, known in record.items()
                    if isinstance(known, list) and all(isinstance(digest, str) for digest in known)}
    return {}
