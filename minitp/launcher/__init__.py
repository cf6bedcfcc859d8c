"""Starting ranks and ending them: threads of this process, or MPI processes; deadlines; one account of what failed.

    minitp.launch(fn, ranks=4)       fn(communicator) on every rank: threads, or MPI under mpirun
    run_script, relaunch             what `minitp run` and `--ranks N` do
    MPIJob, run_job                  start mpiexec, pass its output on, stop it
    reported, fail                   tell an error once over all ranks and end the job

Nothing here imports NumPy or MPI before it is used.
"""
from minitp.launcher.failures import fail, reported
from minitp.launcher.job import MPIJob, run_job
from minitp.launcher.scripts import relaunch, run_script
from minitp.launcher.world import launch

__all__ = ["MPIJob", "fail", "launch", "relaunch", "reported", "run_job", "run_script"]
