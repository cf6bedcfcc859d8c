"""Files written whole or not at all: a full disk or Ctrl-C leaves no half of one under its name."""
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


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
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.partial")
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
