"""The Compare page's numbers: one model and one prompt, or one training, on several numbers of ranks, held against the
fewest.

A trace holds the tokens but not the logits, so a comparison of traces speaks of tokens; `minitp.view.rerun` runs the
bundled model anew and compares logits as well. Of training runs the losses are compared.
"""
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from minitp.trace.file import Trace
from minitp.trace.predict import DTYPES
from minitp.trace.summary import crowded
from minitp.trace.timeline import Timeline
from minitp.trace.wording import STEP, count, duration, plain, share, size
from minitp.view.header import part, placement_of
from minitp.view.passes import Pass, Passes
from minitp.view.question import was_broken

SAME_LOSS = 1e-4                   # as a share: what the order of float32 sums may make of some steps' losses


class Entry(NamedTuple):
    """One run of the comparison.

    differs     index of the first token that is not the reference's, -1 where all are the same; None: not known
    logits      largest difference from the reference's logits, None where logits weren't kept
    memory      bytes of weights on the rank that holds least and on the one that holds most; None: not known
    time        ns per decoded token (per pass where there is none), or training step: wall clock
    computing, waiting, moving   ns per token or step, means over the ranks
    blas        most BLAS threads of a rank, None where it isn't known
    broken      syncs were skipped on purpose
    unit        token or step
    loss        largest difference of a step's loss from the reference's, as a share of it; None: not known
    """
    name: str
    ranks: int
    world: str
    cores: int | None
    crowded: bool
    tokens: list[int]
    differs: int | None
    logits: float | None
    memory: tuple[int, int] | None
    sync_points: int
    time: float
    computing: float
    waiting: float
    moving: float
    blas: int | None
    broken: bool = False
    unit: str = "token"
    loss: float | None = None

    @property
    def is_speed(self) -> bool:
        """Thread ranks of one process show how a model is split, not how fast it is."""
        return self.world == "mpi" or self.ranks == 1

    @property
    def parts(self) -> float:
        return self.computing + self.waiting + self.moving


@dataclass(frozen=True)
class Run:
    """What a comparison takes: a name, the recording, and the logits (rows × vocabulary) where they were kept."""
    name: str
    timeline: Timeline
    logits: np.ndarray | None = None


def compare(runs: Sequence[Run]) -> list[Entry]:
    """One entry per run, fewest ranks first; the first is the reference that the others are held against."""
    ordered = sorted(runs, key=lambda run: run.timeline.trace.run["ranks"])
    return [_entry(run, ordered[0]) for run in ordered]


def _entry(run: Run, reference: Run) -> Entry:
    trace, passes = run.timeline.trace, Passes(run.timeline)
    steps = [row for row in passes.work if row.phase in STEP]
    rows = steps or [row for row in passes.work if row.phase == "decode"] or passes.work
    n, run_info = len({row.step for row in steps}) or len(rows) or 1, trace.run
    tokens, wanted = tokens_of(trace), tokens_of(reference.timeline.trace)
    computing, waiting, moving = (sum(getattr(row, kind) for row in rows) / n
                                  for kind in ("computing", "waiting", "moving"))
    return Entry(
        name=run.name, ranks=run_info["ranks"], world=plain(run_info.get("world", "?"), 20),
        cores=run_info["cores"] if type(run_info.get("cores")) is int else None, crowded=crowded(trace), tokens=tokens,
        differs=first_difference(tokens, wanted) if tokens and wanted else None,
        logits=_largest(run.logits, reference.logits), memory=memory_of(trace),
        sync_points=(sum(row.sync_points for row in steps) // n if steps
                     else max((row.sync_points for row in rows), default=0)),
        time=(_spans(steps) if steps else _wall(rows, passes.work)) / n,
        computing=computing, waiting=waiting, moving=moving, blas=_blas(run_info.get("blas_threads")),
        broken=was_broken(run_info), unit="step" if steps else "token",
        loss=_apart(losses_of(run_info), losses_of(reference.timeline.trace.run)))


def _blas(threads: Any) -> int | None:
    known = isinstance(threads, list) and threads and all(type(n) is int for n in threads)
    return max(threads) if known else None


def _wall(rows: list[Pass], tokens: list[Pass]) -> float:
    """From the end of the pass before the first to the end of the last: what a reader of the text waits."""
    if not rows:
        return 0.0
    before = [row.end for row in tokens if row.number < rows[0].number]
    return max(row.end for row in rows) - (before[-1] if before else rows[0].begin)


def _spans(steps: list[Pass]) -> float:
    """The wall clock of training steps, each from its first pass's begin to its last one's end."""
    by_step: dict[int | None, list[Pass]] = {}
    for row in steps:
        by_step.setdefault(row.step, []).append(row)
    return float(sum(max(row.end for row in rows) - min(row.begin for row in rows) for rows in by_step.values()))


def losses_of(run: dict[str, Any]) -> list[float]:
    """The recorded steps' losses; [] where the header, which may be a stranger's, has none."""
    losses = run.get("losses")
    known = isinstance(losses, list) and all(type(loss) is float and math.isfinite(loss) for loss in losses)
    return losses if isinstance(losses, list) and known else []


def _apart(losses: list[float], wanted: list[float]) -> float | None:
    if not losses or len(losses) != len(wanted):
        return None
    return max(abs(one - other) / (abs(other) or 1.0) for one, other in zip(losses, wanted, strict=True))


def tokens_of(trace: Trace) -> list[int]:
    """The new tokens of all prompts in a row; [] where the header, which may be a stranger's, has none."""
    tokens: Any = trace.run.get("tokens")
    if not isinstance(tokens, list):
        return []
    flat = [one for row in tokens for one in (row if isinstance(row, list) else [row])]
    return flat if all(type(token) is int for token in flat) else []


def first_difference(one: Sequence[int], other: Sequence[int]) -> int:
    """Index of the first place where they differ, -1 if nowhere; a shorter one differs where it ends."""
    place = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), -1)
    return place if place >= 0 or len(one) == len(other) else min(len(one), len(other))


def _largest(one: np.ndarray | None, other: np.ndarray | None) -> float | None:
    if one is None or other is None or one.shape != other.shape:
        return None
    return float(np.abs(one - other).max(initial=0))


def memory_of(trace: Trace) -> tuple[int, int] | None:
    """Bytes of weights on the emptiest and the fullest rank, from the placement; None where it isn't known."""
    what = part(trace.run, "training") or part(trace.run, "generation")
    placement, dtype = placement_of(trace.run), what.get("dtype")
    if placement is None or dtype not in DTYPES:
        return None
    held = [placement.elements(rank) * np.dtype(dtype).itemsize for rank in range(placement.ranks)]
    return min(held), max(held)


# --- words --------------------------------------------------------------------------------------------------------


def verdict(entries: Sequence[Entry]) -> str:
    """Did all runs give the same?"""
    if len(entries) < 2:
        return "One run alone: pick another number of ranks to compare it with."
    reference, others = entries[0], entries[1:]
    if reference.unit == "step":
        return _losses_in_words(entries)
    wrong = [entry for entry in others if entry.differs not in (-1, None)]
    known = [entry for entry in others if entry.differs is not None]
    if wrong:
        first = wrong[0]
        said = (f"{first.name} on {count(first.ranks, 'rank')} gives another token at place {first.differs} than "
                f"{reference.name} on {count(reference.ranks, 'rank')}.")
        broken = [entry.name for entry in entries if entry.broken]
        said += f" Sums were skipped on purpose in {', '.join(broken)}." if broken else ""
    elif known:
        said = (f"The same {count(len(reference.tokens), 'token')} on "
                f"{', '.join(str(entry.ranks) for entry in entries)} ranks.")
    else:
        said = "These traces don't say which tokens came out."
    kept = [entry.logits for entry in others if entry.logits is not None]
    if kept:
        return (f"{said} The logits differ by {max(kept):.2g} at most: sums are added in another order, and float "
                "addition is not associative.")
    return f"{said} Logits are not kept in a trace, so only tokens can be compared here."


def _losses_in_words(entries: Sequence[Entry]) -> str:
    known = [entry.loss for entry in entries[1:] if entry.loss is not None]
    if not known:
        return "These traces don't say what the losses were."
    ranks = ", ".join(str(entry.ranks) for entry in entries)
    if max(known) > SAME_LOSS:
        return f"The losses on {ranks} ranks differ by up to {max(known):.2g} of their size: not the same training."
    return (f"The same losses on {ranks} ranks, but for {max(known):.2g} of their size at most: sums are added in "
            "another order, and float addition is not associative.")


def why_slower(entries: Sequence[Entry]) -> list[str]:
    """What the numbers show about speed, and what they can't."""
    lines = []
    threads = [entry for entry in entries if not entry.is_speed]
    if threads:
        lines.append("Ranks that are threads of one process show how a model is split, not how fast it is: read their "
                     "times as shares, not as a speed.")
    tight = [entry for entry in entries if entry.crowded and entry.cores]
    if tight:
        worst = max(tight, key=lambda entry: entry.ranks)
        lines.append(f"{count(worst.ranks, 'rank')} shared {count(worst.cores or 1, 'core')}: they take turns on a "
                     "core, so their computing doesn't run at the same time, and every sync waits for the rank whose "
                     "turn comes last. More ranks than cores show the split, never a gain.")
    measured = [entry for entry in entries if entry.is_speed and entry.time]
    lines += [_against(measured[0], entry) for entry in measured[1:]]
    known = [(entry.ranks, entry.memory[1]) for entry in entries if entry.memory]
    if len(known) > 1:
        (fewest, alone), (most, shared) = known[0], known[-1]
        lines.append(f"What always shrinks is memory: {size(alone)} of weights on the fullest rank of {fewest}, "
                     f"{size(shared)} of {most}.")
    return lines


def _against(first: Entry, entry: Entry) -> str:
    """One run's time per token beside the reference's, and where it went."""
    ratio = first.time / entry.time
    word = f"{ratio:.2g} times as fast as" if ratio > 1 else f"{1 / ratio:.2g} times as long as"
    even = first.computing * first.ranks / entry.ranks
    said = (f"On {count(entry.ranks, 'rank')} a {entry.unit} takes {duration(entry.time)}, {word} on "
            f"{count(first.ranks, 'rank')}: {share(entry.waiting, entry.parts)} of it is waiting and "
            f"{share(entry.moving, entry.parts)} moving.")
    if entry.computing > 1.25 * even:
        said += f" A rank computes {duration(entry.computing)} of it; an even split would be {duration(even)}"
        said += (f", but {first.blas} BLAS threads had shared the work on {count(first.ranks, 'rank')} before."
                 if entry.blas and first.blas and first.blas > entry.blas else ".")
    return said
