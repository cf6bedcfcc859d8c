"""What can be known before NumPy and MPI are imported: cores, what a launcher announces, BLAS threads, yielding.

Standard library only. The number of BLAS threads is read once, when NumPy is first imported: with the default, ranks
times threads outnumber the cores and a run is 10 to 35 times slower.
"""
import io
import os
import sys
from collections.abc import MutableMapping

THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
_LAUNCHERS = (("PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"),                                          # MPICH, Intel MPI
              ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),       # Open MPI
              ("PMIX_RANK", "SLURM_NTASKS", "SLURM_NTASKS_PER_NODE"))                               # srun
_LAUNCHERS_OWN = ("PMI_", "PMIX_", "OMPI_COMM_WORLD_", "OMPI_UNIVERSE_", "MPI_LOCAL", "HYDI_")       # what all they set


def launcher_environment() -> tuple[int, int, int] | None:
    """(rank, size, ranks on this machine) as an MPI launcher announces them before MPI starts; None without one."""
    for rank, size, local in _LAUNCHERS:
        if os.environ.get(rank, "").isdigit() and os.environ.get(size, "").isdigit():
            here = os.environ.get(local, "")
            return int(os.environ[rank]), int(os.environ[size]), int(here) if here.isdigit() else int(os.environ[size])
    return None


def launcher_kind() -> str:
    """Whose MPI launcher started this process, by the variables it sets: mpich (Intel's too), openmpi, or unknown."""
    for kind, name in (("mpich", "PMI_SIZE"), ("openmpi", "OMPI_COMM_WORLD_SIZE")):
        if os.environ.get(name, "").isdigit():
            return kind
    return "unknown"


def plain_environment() -> dict[str, str]:
    """The environment without what an MPI launcher added: a child that starts MPI must not take this rank's seat."""
    return {name: value for name, value in os.environ.items() if not name.startswith(_LAUNCHERS_OWN)}


def is_first_rank() -> bool:
    """Whether this process may speak for the job: rank 0, or no launcher at all."""
    announced = launcher_environment()
    return announced is None or announced[0] == 0


def is_unicode(stream: object) -> bool:
    """Whether every character can be written to it."""
    return (getattr(stream, "encoding", None) or "").lower().replace("-", "") in ("utf8", "utf16", "utf32")


def print_anyway(*streams: object) -> None:
    """Where a stream lacks a character such as →, let it print ?, and no traceback."""
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper) and not is_unicode(stream):
            stream.reconfigure(errors="replace")


def core_numbers() -> list[int]:
    """The cores this process may use, which can be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def cores() -> int:
    return len(core_numbers())


def blas_threads() -> int | None:
    """How many threads a matrix product uses; None where that can't be told. Two libraries may be loaded: the most."""
    try:
        from threadpoolctl import threadpool_info
    except ImportError:
        return None
    return max((pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"), default=None)


def threads_per_rank(ranks: int) -> int:
    """BLAS threads that each of `ranks` ranks on this machine gets."""
    return max(1, cores() // max(1, ranks))


def threads_set_by_user(environment: MutableMapping[str, str] | None = None) -> str | None:
    """The name of the first variable by which the user chose the number of BLAS threads; None if none."""
    environment = os.environ if environment is None else environment
    return next((name for name in THREAD_VARIABLES if environment.get(name)), None)


def set_for_ranks(ranks: int, environment: MutableMapping[str, str]) -> str:
    """Cap the BLAS threads and let waiting ranks yield, in `environment`; what was done, in words ('' if nothing).

    What the user set stays. Yielding costs latency where every rank has a core of its own, so it is only for more
    ranks than cores.
    """
    done = []
    chosen = threads_set_by_user(environment)
    if chosen is None:
        for name in THREAD_VARIABLES:
            environment[name] = str(threads_per_rank(ranks))
        done.append(f"{threads_per_rank(ranks)} BLAS thread{'s' if threads_per_rank(ranks) > 1 else ''} each")
    elif environment[chosen].isdigit() and int(environment[chosen]) * ranks > max(cores(), ranks):
        done.append(f"{chosen}={environment[chosen]} is kept as you set it, though {ranks} × {environment[chosen]} "
                    "threads will fight for the cores")
    if ranks > cores():
        environment.setdefault("MPIR_CVAR_ENABLE_HEAVY_YIELD", "1")           # MPICH: a waiting rank sleeps briefly
        environment.setdefault("OMPI_MCA_mpi_yield_when_idle", "1")           # Open MPI
        done.append("waiting ranks yield their core")
    if not done or ranks == 1:
        return ""
    return f"{ranks} ranks on {cores()} core{'s' if cores() > 1 else ''}: " + "; ".join(done)


_settled = False


def settle_blas_threads(ranks: int | None = None) -> None:
    """Under an MPI launcher: cap this process's BLAS threads, and say so on rank 0. Best before NumPy is imported.

    `ranks` is how many share this machine, where the launcher's own word is not to be taken. Calls after the first do
    nothing, nor where minitp's own launcher has done it all.
    """
    global _settled
    announced = launcher_environment()
    if _settled or (announced is None and ranks is None) or os.environ.get("MINITP_JOB"):
        return
    _settled = True
    here = ranks if ranks is not None else announced[2] if announced else 1
    limit_now = "numpy" in sys.modules and threads_set_by_user() is None
    said = set_for_ranks(here, os.environ)
    if limit_now:                                   # too late for the environment: NumPy has read it
        from threadpoolctl import threadpool_limits
        threadpool_limits(threads_per_rank(here), user_api="blas")
    if said and is_first_rank():
        print(f"minitp: {said}", file=sys.stderr)
