"""Files and folders written whole or not at all: a full disk or Ctrl-C leaves no half of one under its name."""
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

PARTIAL = re.compile(r"\.(.+)\.[0-9a-f]{12}\.partial")
"""The temporary name of what is being written, or removed: .NAME.token.partial, beside NAME."""


def partial_name(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(6)}.partial")


def sync(path: Path) -> None:
    """Wait until a file, or a folder's list of names, is on the disk. (Windows syncs no folders, and needs not.)"""
    if path.is_dir() and os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def move_in(temporary: Path, path: Path) -> None:
    """A complete folder takes its name, which nothing has yet: in one step, its files on the disk before it."""
    for file in temporary.iterdir():
        sync(file)
    sync(temporary)
    os.rename(temporary, path)
    sync(path.parent)


def remove_folder(path: Path) -> None:
    """It loses its name before its files: nobody finds half of it, and `remove_partials` finishes what is cut off."""
    hidden = partial_name(path)
    os.rename(path, hidden)
    shutil.rmtree(hidden, ignore_errors=True)


def remove_partials(folder: Path, of: re.Pattern[str]) -> list[str]:
    """Remove what writers killed in `folder` left behind, folders and files, of names that fit `of`; returns those."""
    left = [(match[1], path) for path in folder.iterdir()
            if (match := PARTIAL.fullmatch(path.name)) and of.fullmatch(match[1])]
    for _, path in left:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    return sorted(name for name, _ in left)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A new file that takes `path`'s place only when it is complete and on the disk; else nothing is left of it.

    A link is followed, not replaced. A device or a pipe (/dev/stdout) is written to as it is: replacing it would
    destroy it.
    """
    if path.exists() and not path.is_file():
        with open(path, "wb") as file:
            yield file
        return
    path = Path(os.path.realpath(path))
    temporary = partial_name(path)
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError) and error.filename in (None, str(temporary)):     # a full disk names no file
            error.filename = str(path)
        raise
