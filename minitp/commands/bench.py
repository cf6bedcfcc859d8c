"""`minitp bench`: one JSON row per line, printed by rank 0."""
import json
import os
from pathlib import Path
from typing import Any, cast

import numpy as np

from minitp.comm import Communicator
from minitp.commands.session import ModelOptions, find_model, open_session
from minitp.weights import Source

Rows = list[dict[str, Any]]
STARTED = "MINITP_STARTED"              # when the command line began to start the ranks (time.time())
TOKENS = {"decode": 16, "prefill": 128}


def bench_on_rank(group: Communicator, what: str, options: ModelOptions, rounds: int, tokens: int | None,
                  config: str | None = None) -> None:
    """Measure on every rank; rank 0 prints. `config`: settings of what is trained."""
    if what == "train":
        rows = _training(group, config, tokens, rounds)
    elif what == "collective":
        rows = _collective(group)
    else:
        rows = _with_model(group, what, options, rounds, TOKENS.get(what, 0) if tokens is None else tokens)
    if group.rank == 0:
        for row in rows:
            print(json.dumps(row))


def _collective(group: Communicator) -> Rows:
    from minitp.bench import collective, recording
    return [*collective(group), *recording(group)]


def _training(group: Communicator, config: str | None, tokens: int | None, rounds: int) -> Rows:
    from minitp import bench
    from minitp.bench.training import LARGE
    from minitp.train.config import TrainConfig, merged, read_toml

    def settings() -> dict[str, Any]:
        asked = merged(LARGE if config is None else read_toml(config), {"train": {"tokens": tokens} if tokens else {}})
        TrainConfig.from_dict(asked)
        return asked

    asked = group.on_root(settings, site="settings", reason="tell every rank what to train")
    return bench.training(group, TrainConfig.from_dict(asked), rounds=rounds)


def _opened(group: Communicator, options: ModelOptions) -> Source:
    return cast(Source, find_model(group, options)[1])        # None only with --load scatter, which bench doesn't have


def _files(source: Any) -> Path | None:
    """What a checkpoint reads its weights from: its float32 copy where it has one."""
    return getattr(source, "copy", None) or getattr(source, "path", None)


def _with_model(group: Communicator, what: str, options: ModelOptions, rounds: int, tokens: int) -> Rows:
    from minitp import bench
    dtype = np.dtype(options.dtype)
    if what == "load":
        rows = bench.load(group, lambda: _opened(group, options), files=_files, rounds=rounds, dtype=dtype,
                          started=float(os.environ[STARTED]) if STARTED in os.environ else None)
        return [row | {"model": Path(options.model).name} for row in rows]
    session = open_session(group, options)
    measure = bench.decode if what == "decode" else bench.prefill
    rows = measure(session.model, session.weights, tokens=tokens, rounds=rounds, dtype=dtype)
    return [row | {"model": session.name} for row in rows]
