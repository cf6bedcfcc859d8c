"""What a viewer must be told beside the picture: where a number is not what it seems, and what was left out."""

import numpy as np

from minitp.trace.emulated import emulated_line
from minitp.trace.simulated import is_simulated
from minitp.trace.summary import crowded
from minitp.trace.wording import count, duration, plain
from minitp.view.header import part, sequences
from minitp.view.steps import Steps
from minitp.view.window import Window


def notes(steps: Steps, shown: Steps, window: Window, detail: str, broken: list[str], holes: bool) -> list[str]:
    """Sentences, the weightiest first."""
    trace, run = steps.trace, steps.trace.run
    found: list[str] = []
    if not len(steps):
        found.append("This trace holds no sync point: nothing moved between ranks, so there is nothing to watch.")
    if shown.lost.any():
        found.append("The run failed at the last sync points of these passes: the key End leads there.")
    elif steps.lost.any():
        found.append("Where the run failed is behind these passes.")
    if emulated := emulated_line(run):
        found.append(emulated)
    if crowded(trace):
        found.append(f"{run['ranks']:,} ranks share {count(run['cores'], 'core')}: waits show the scheduler taking "
                     "turns, not the network.")
    if broken:
        found.append(f"Broken on purpose at {_listed(broken)}: the sync was skipped, and each rank took its own "
                     "partial sum for the whole. From there on the ranks' numbers differ; where one array is drawn for "
                     "all, it is that of the lowest rank.")
    if window.count < window.of:
        found.append(f"Passes {window.first + 1}–{window.first + window.count} of {window.of:,} are shown.")
    lost = int(steps.passes.count[window.first:window.first + window.count].sum()) - len(shown)
    if lost > 0:
        found.append(f"The last {count(lost, 'sync point')} of these passes are left out: a picture holds "
                     f"{len(shown):,}.")
    found += _of_ranks(steps)
    if sequences(run) > 1:
        found.append(f"{count(sequences(run), 'text')} ran in one batch; the arrays and words are those of the first.")
    found += _of_values(steps, detail, holes, isinstance(run.get("training"), dict))
    found += _of_control(steps)
    errors = part(run | {"clock": trace.clock}, "clock").get("error_ns", [0])
    if max(errors, default=0) > 1000 and run.get("hosts") != 1:          # one machine has one clock
        found.append(f"The ranks' clocks agree to within {duration(max(errors))}: shorter waits are not certain.")
    return found


def _of_ranks(steps: Steps) -> list[str]:
    ranks, there = steps.trace.run["ranks"], (steps.cell >= 0).any(axis=0)
    found = []
    if ranks > steps.ranks:
        found.append(f"Ranks 0–{steps.ranks - 1} of {ranks:,} are shown.")
    silent = np.flatnonzero(~there).tolist() if len(steps) else []
    if silent:
        found.append(f"{'Rank' if len(silent) == 1 else 'Ranks'} {_listed(silent)} recorded nothing.")
    return found


def _of_values(steps: Steps, detail: str, holes: bool, trains: bool) -> list[str]:
    found = []
    if detail == "none" and is_simulated(steps.trace.run):
        found.append("A simulated run has no arrays: outlines of the true shapes stand for them.")
    elif detail == "none" and len(steps):
        found.append("The run kept no arrays, so outlines of the true shapes stand for the numbers; "
                     f"`minitp {'train' if trains else 'generate'} --values --trace` keeps them.")
    elif trains:
        found.append("The numbers of a pass are those of the last position of the first sequence. Gradients of weights "
                     "are the whole step's, a cell the largest magnitude in its block.")
    if detail == "maxima":
        found.append("Of large arrays a cell is the largest magnitude in its block.")
    if holes:
        found.append("Numbers that are not finite are drawn as 0.")
    return found


def _of_control(steps: Steps) -> list[str]:
    found = []
    if steps.control:
        found.append(f"{count(steps.control, 'control message')} of each rank (the program's own, not the model's) "
                     "are not among the beads.")
    if steps.checks:
        found.append("Checked mode compared every call over the ranks first: that meeting counts as a part of its "
                     "sync.")
    return found


def _listed(names: list) -> str:
    shown = ", ".join(plain(name, 60) for name in names[:6])
    return shown + (f" and {len(names) - 6} more" if len(names) > 6 else "")
