"""`python -m minitp.launcher.script [--timeout S] script.py args…`: a script as one rank of a job.

It needs no line of minitp: an error, sys.exit or Ctrl-C on one rank ends all ranks, in a plain mpi4py script too.
"""
import sys

from minitp.launcher.failures import reported
from minitp.launcher.scripts import run_as_main


def main(argv: list[str]) -> None:
    timeout = None
    if argv[:1] == ["--timeout"]:
        timeout, argv = float(argv[1]), argv[2:]
    with reported(hide=argv[0]):
        from minitp.launcher.processes import open_job
        job = open_job()
        job.doing = "running its script"
        with job.limit(timeout):
            run_as_main(argv[0], argv[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
