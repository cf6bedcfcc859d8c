"""The header of a trace: what was run, with which versions, on how many cores. No names of people or machines."""
import os
import platform
import re
import socket
import sys
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minitp import __version__
from minitp.environment import blas_threads, core_numbers

if TYPE_CHECKING:
    from minitp.comm.communicator import Communicator


def run_info(comm: "Communicator", *, mesh: dict[str, int] | None = None, argv: Sequence[str] | None = None,
             **given: Any) -> dict[str, Any]:
    """What this rank knows of the run before it starts; `collect` adds what only all ranks together know.

    `given` is kept as it is: plain data such as model=config.to_dict(), placement={…}, options={…},
    prompt_tokens=[…], text=[…].
    """
    mesh = dict(mesh or {comm.axis: comm.size})
    return {
        "id": uuid.uuid4().hex[:12],
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": [_without_folders(word) for word in (sys.argv[1:] if argv is None else argv)],
        "world": comm.transport.world,
        "ranks": comm.size,
        "mesh": mesh,
        "coordinates": [_coordinates(rank, mesh) for rank in range(comm.size)],
        "versions": _versions(comm.transport.world),
        **given,
    }


def _coordinates(rank: int, mesh: dict[str, int]) -> dict[str, int]:
    """Where a rank stands in the mesh; the last axis runs fastest."""
    place = {}
    for axis, size in reversed(mesh.items()):
        rank, place[axis] = divmod(rank, size)
    return {axis: place[axis] for axis in mesh}


def _versions(world: str) -> dict[str, str]:
    import numpy as np
    versions = {"minitp": __version__, "python": platform.python_version(), "numpy": np.__version__}
    if world == "mpi":
        import mpi4py
        from mpi4py import MPI
        versions |= {"mpi4py": mpi4py.__version__,
                     "mpi": " ".join(MPI.Get_library_version().strip("\0 \n").splitlines()[0].split())[:120]}
    return versions


def _without_folders(word: str) -> str:
    """A word of the command line; of a file only its name, for the folders are nobody's business."""
    option, equals, value = word.rpartition("=") if word.startswith("-") else ("", "", word)
    is_path = re.match(r"[/~\\]|\.{1,2}[/\\]|[A-Za-z]:[/\\]", value) and not re.search(r"\s", value)
    if is_path or (re.search(r"[/\\]", value) and os.path.exists(value)):
        value = re.split(r"[/\\]", value.rstrip("/\\"))[-1]
    return option + equals + value


def local_facts() -> dict[str, Any]:
    """What each rank tells rank 0: its machine (a number that means nothing elsewhere), cores and BLAS threads."""
    return {"host": _host(), "cores": core_numbers(), "blas_threads": blas_threads()}


def _host() -> str:
    """The same for all processes of one machine, also in different containers (they share its cores and clock)."""
    try:
        machine = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        machine = socket.gethostname()
    return blake2b(machine.encode(), digest_size=8).hexdigest()


def complete_info(run: dict[str, Any], facts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The header with hosts, cores, ranks per core and BLAS threads (the most crowded host counts), and `memory`: the
    bytes that each rank holds, by kind, where the ranks tell."""
    hosts: dict[str, int] = {}
    host_of = [hosts.setdefault(fact["host"], len(hosts)) for fact in facts]
    cores: list[set[int]] = [set() for _ in hosts]
    for host, fact in zip(host_of, facts, strict=True):
        cores[host].update(fact["cores"])
    crowded = max(host_of.count(host) / len(cores[host]) for host in range(len(hosts)))
    if all("held" in fact for fact in facts):
        run = run | {"memory": [fact["held"] for fact in facts]}
    return run | {"hosts": len(hosts), "host_of_rank": host_of, "cores": sum(map(len, cores)),
                  "ranks_per_core": round(crowded, 3), "blas_threads": [fact["blas_threads"] for fact in facts]}
