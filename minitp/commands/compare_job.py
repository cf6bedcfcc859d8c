"""`python -m minitp.commands.compare_job FOLDER`: one run of `minitp compare` as one rank of an MPI job.

FOLDER/task.json says what to run; rank 0 writes what came of it to FOLDER/row.json.
"""
import json
import sys
from pathlib import Path


def main(folder: Path) -> None:
    from minitp.environment import settle_blas_threads
    from minitp.launcher import launch, reported
    settle_blas_threads()
    with reported(first_rank_only=True):
        from minitp.commands.compare import on_rank
        from minitp.trace.recorder import Recorder
        from minitp.train.config import TrainConfig
        task = json.loads((folder / "task.json").read_text(encoding="utf-8"))
        config = TrainConfig.from_dict(task["settings"])

        def run(group):
            row = on_rank(group, task["mesh"], config, folder)
            if group.rank == 0:
                (folder / "row.json").write_text(json.dumps(row), encoding="utf-8")

        launch(run, world="mpi", recorder=lambda rank: Recorder(rank, keep_events=False))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
