"""Stands in for pip: `python -m pip download … --dest FOLDER NAME==VERSION`, with tests/fake_pip on PYTHONPATH.

FAKE_PIP says what happens: good, slow (waits first), refuse, full (a full disk, as pip words it), hang (half the file
in the temporary folder, then nothing). FAKE_WHEEL is what is "downloaded". Each call adds a line to FAKE_LOG.
"""
import os
import shutil
import sys
import time
from pathlib import Path

arguments, kind, wheel = sys.argv[1:], os.environ["FAKE_PIP"], Path(os.environ["FAKE_WHEEL"])
with open(os.environ["FAKE_LOG"], "a") as log:
    log.write(" ".join(arguments) + f" pid={os.getpid()}\n")
if kind == "refuse":
    sys.exit("ERROR: No matching distribution found for " + arguments[-1])
if kind == "full":
    sys.exit("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device")
if kind == "hang":
    (Path(os.environ["TMPDIR"]) / "half.whl").write_bytes(wheel.read_bytes()[:100])
    time.sleep(300)
if kind == "slow":
    time.sleep(0.7)
destination = Path(arguments[arguments.index("--dest") + 1])
destination.mkdir(exist_ok=True)
shutil.copy(wheel, destination)
