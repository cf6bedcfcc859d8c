"""The app as a real server for browser tests: on a free port, ended by its process."""
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

from minitp.commands.app import free_port, main_script

PATIENCE = 120                         # seconds until it answers, on a busy machine


@contextmanager
def serving(runs: Path) -> Iterator[tuple[str, int]]:
    """(the app's address, its process), with `runs` as its runs folder."""
    port = free_port(None)
    command = [sys.executable, "-m", "minitp", "app", "--no-browser", "--port", str(port), "--runs", str(runs)]
    env = os.environ | {"PYTHONPATH": str(main_script().parents[1])}
    with subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            url = f"http://localhost:{port}"
            _wait_for(f"{url}/_stcore/health", process)
            yield url, process.pid
        finally:
            process.terminate()


def _wait_for(url: str, process: subprocess.Popen) -> None:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and process.poll() is None:
        try:
            with urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError(f"the app did not answer at {url} within {PATIENCE} s")
