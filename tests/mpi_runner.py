"""One MPI rank of a test: `mpiexec -n N python -m tests.mpi_runner module:function '{arguments}' folder '{options}'`.

Leaves rank.json and rank.npz in the folder, or rank.traceback and the end of all ranks.
"""
import faulthandler
import json
import sys
import traceback
from importlib import import_module
from pathlib import Path

from mpi4py import MPI

from tests.mpi_world import write_result


def main(function: str, arguments: str, folder: str, options: str) -> None:
    rank, out, chosen = MPI.COMM_WORLD.rank, Path(folder), json.loads(options)
    with open(out / f"{rank}.stack", "w") as stack:            # a rank that hangs can't write its traceback any more
        faulthandler.dump_traceback_later(chosen["stacks_after"], file=stack)
        try:
            write_result(out, rank, call(function, json.loads(arguments), chosen["checked"]))
        except BaseException:
            (out / f"{rank}.traceback").write_text(traceback.format_exc())
            MPI.COMM_WORLD.Abort(1)
        faulthandler.cancel_dump_traceback_later()


def call(function: str, arguments: dict, checked: bool):
    from minitp.comm import Communicator
    from minitp.comm.mpi import MPITransport, open_mpi_world
    module, name = function.split(":")
    body = getattr(import_module(module), name)
    return body(Communicator(MPITransport(open_mpi_world()), checked=checked), **arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
