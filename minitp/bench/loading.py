"""From nothing to the first token: how long, how fast the shard is read, how much memory each rank keeps for itself.

The limit of reading is a plain sequential read of as many bytes as the shard has, from the same files, which lie in the
page cache by then. A quantized file holds fewer bytes than its weights in float32: it is read several times over.
"""
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np

from minitp.bench.measure import alternate, check_rounds, every_rank, facts, median, own_recorder, thread_ranks
from minitp.comm import Communicator
from minitp.errors import ConfigError
from minitp.generate import Generation, Request
from minitp.model import Transformer
from minitp.placement import Placement
from minitp.weights import Source, Weights, load_weights

CHUNK = 1 << 20
_LATER = ("times and memory are those of the one process that all thread ranks share, so memory can't be told per rank")


def load(group: Communicator, open_source: Callable[[], Source], *, files: Callable[[Source], Path | None],
         rounds: int = 5, mode: Literal["slice", "scatter"] = "slice", dtype: Any = np.float32,
         started: float | None = None) -> list[dict[str, Any]]:
    """One row per rank. Call it first thing on each rank: the time to the first token counts from the process's start.

    open_source  opens the model (a Checkpoint, a RandomSource); its time counts
    files        the opened model's file, or the folder of its files; None: no limit of reading is measured
    started      when the job was started (time.time()), where a launcher knows; else when this process was
    """
    check_rounds(rounds)
    begin = time.perf_counter()
    source = open_source()
    opened = time.perf_counter() - begin
    placement = Placement(source.config, group.size)

    def read() -> Weights:
        return load_weights(source if mode == "slice" or group.rank == 0 else None, placement, group, mode=mode,
                            dtype=dtype)

    weights = read()
    loaded = time.perf_counter() - begin - opened
    model = Transformer(source.config, placement, group)
    next(iter(Generation(model, weights, Request(((0, 1, 2, 3),), max_tokens=1), dtype=dtype)))
    first_token = _since(started)
    shard = sum(array.nbytes for array in weights.values())
    own = {"first_token_s": first_token, "open_s": opened, "first_load_s": loaded, "shard_bytes": shard,
           "peak_rss_bytes": _status("VmHWM")} | _memory()
    weights.clear()
    with own_recorder(group):
        work, limit = alternate(group, read, _sequential(files(source), shard), rounds)
    timed = {"load_s": median(work), "load_s_min": float(work.min()), "load_s_max": float(work.max()),
             "limit_s": median(limit) if files(source) else None, "rounds": rounds}
    return _rows(group, source.config.name, str(np.dtype(dtype)), mode, own, timed)


def _rows(group: Communicator, model: str, dtype: str, mode: str, own: dict[str, float], timed: dict[str, Any]) -> list:
    """Every rank's numbers as a row of its own, on all ranks."""
    rows, alone = [], not thread_ranks(group)
    for rank, numbers in enumerate(every_rank(group, [float(value) for value in own.values()])):
        row = facts(group, "load") | {"rank": rank, "model": model, "dtype": dtype, "mode": mode}
        row |= {name: float(n) if name.endswith("_s") else int(n) for name, n in zip(own, numbers, strict=True)}
        private = row["private_clean_bytes"] + row["private_dirty_bytes"]
        row |= timed | {
            "bytes_per_second": row["shard_bytes"] / timed["load_s"] if alone else None,
            "share_of_limit": timed["limit_s"] / timed["load_s"] if alone and timed["limit_s"] else None,
            "private_bytes": private if alone else None,
            "private_over_shard_mib": (private - row["shard_bytes"]) / 2**20 if alone else None}
        rows.append(row if alone else row | {"note": f"{row['note']}; {_LATER}"})
    return rows


def _memory() -> dict[str, int]:
    """What this process keeps for itself alone, in bytes.

    Dirty: its own data. Clean: pages of files that no other process maps just now; the system may take them back.
    """
    kept = {"Private_Clean": 0, "Private_Dirty": 0}
    try:
        for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
            name, _, size = line.partition(":")
            if name in kept:
                kept[name] = int(size.split()[0]) * 1024
    except OSError as error:
        raise ConfigError(f"the memory of a rank is read from /proc, as Linux has it: {error}") from error
    return {"private_clean_bytes": kept["Private_Clean"], "private_dirty_bytes": kept["Private_Dirty"]}


def _status(name: str) -> int:
    """Bytes of an entry of /proc/self/status. VmHWM is the peak of resident memory, shared pages of files included."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    return 0


def _since(started: float | None) -> float:
    """Seconds since `started`, or since this process began (to 10 ms, as the kernel counts)."""
    if started is not None:
        return time.time() - started
    after_name = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    ticks = int(after_name[19])                                     # field 22, starttime: ticks since the machine began
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def _sequential(files: Path | None, nbytes: int) -> Callable[[], None]:
    """A function that reads `nbytes` bytes of the model's files into new memory, from the start again at their end."""
    if files is None:
        return lambda: None
    paths = [files] if files.is_file() else sorted(path for path in files.iterdir() if path.is_file())
    paths = [path for path in paths if path.stat().st_size]
    if not paths:
        raise ConfigError(f"{files} holds no file to read from: give the model's file, or the folder of its files")

    def read() -> None:
        target, done = np.empty(nbytes, np.uint8).data, 0
        while done < nbytes:
            for path in paths:
                with open(path, "rb", buffering=0) as file:
                    while done < nbytes and (got := file.readinto(target[done:done + CHUNK])):
                        done += got

    return read
