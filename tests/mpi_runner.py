"""One MPI rank of a test: `mpiexec -n N python -m tests.mpi_runner module:function '{arguments}' folder '{options}'`.

Leaves rank.json and rank.npz in the folder, or rank.traceback and the end of all ranks.
"""
import faulthandler
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from threading import Timer
from typing import Any

from mpi4py import MPI

from tests.mpi_world import write_result


def main(function: str, arguments: str, folder: str, options: str) -> None:
    rank, out, chosen = MPI.COMM_WORLD.rank, Path(folder), json.loads(options)
    try:
        body = prepared(function, json.loads(arguments), chosen["checked"])
        with watched(out / f"{rank}.stack", chosen["seconds"]):
            write_result(out, rank, body())
    except BaseException:
        (out / f"{rank}.traceback").write_text(traceback.format_exc())
        MPI.COMM_WORLD.Abort(1)


def prepared(function: str, arguments: dict, checked: bool) -> Callable[[], Any]:
    """All that takes time before a body begins: imports, and the ranks' first meeting."""
    from minitp.comm import Communicator
    from minitp.comm.mpi import MPITransport, open_mpi_world
    module, name = function.split(":")
    body = getattr(import_module(module), name)
    comm = Communicator(MPITransport(open_mpi_world()), checked=checked)
    return lambda: body(comm, **arguments)


@contextmanager
def watched(stack: Path, seconds: float) -> Iterator[None]:
    """A rank that hangs can't write its traceback any more: this does, half-way, and ends the rank when time is up."""
    end = Timer(seconds, os._exit, (1,))
    end.daemon = True
    with open(stack, "w") as file:
        faulthandler.dump_traceback_later(seconds / 2, file=file)
        end.start()
        yield
        end.cancel()
        faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    main(*sys.argv[1:])
