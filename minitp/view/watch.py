"""The play: what the Watch page and the exported HTML show of a run, as plain data.

Every number of the picture is made here, from the trace alone; the player draws it. Columns are lists, or base64 of
little-endian numbers; words and shapes stand once, in `strings` and `shapes`. A trace may be a stranger's: its text is
only ever passed on as text, and what can't be shown is left out with a note.
"""
import json
import re
from typing import Any

import numpy as np

from minitp.trace.failed import failed_line, is_failed
from minitp.trace.file import Trace
from minitp.trace.simulated import WORLD, is_simulated
from minitp.trace.summary import broken_sites, crowded
from minitp.trace.timeline import Timeline
from minitp.trace.wording import count as counted
from minitp.trace.wording import plain
from minitp.view.failed import never_ended
from minitp.view.header import Words, model_of, part, placement_of, words_of
from minitp.view.notes import notes
from minitp.view.packing import LONGEST, Strings, base64_of
from minitp.view.simulated import MESSAGE, banner, lanes, meetings
from minitp.view.slots import Layouts
from minitp.view.source import line_of
from minitp.view.step_words import learns, losses
from minitp.view.steps import Steps
from minitp.view.sync_arrays import SyncArrays, detail_of
from minitp.view.tour import tour
from minitp.view.training_arrays import part_of_site as part_of_training
from minitp.view.weights import weights
from minitp.view.window import MOST_SYNCS, ROOM, Window, last_window, window

FORMAT, VERSION = "minitp play", 1
MOST_BROKEN = 100                  # sites that are named
MOST_WORDS = 2_000                 # of a prompt
OTHERS = 25_000                    # bytes: about what the header, the tour and the sites take


def play(trace: Trace, *, first: int | None = None, count: int | None = None,
         timeline: Timeline | None = None) -> dict[str, Any]:
    """The play of the passes `first` … `first + count - 1`: by default of as many as fit into about 1 MB, the first of
    the run, or the last of one that failed.

    timeline: that of `trace`, where it is there already. The window is clamped to the passes that there are. Never
    raises on a trace that `Trace.read` accepted.
    """
    steps = Steps.of(timeline or Timeline.of(trace))
    placement, words = placement_of(trace.run), words_of(trace.run)
    parts = parts_of(steps)
    arrays = SyncArrays(steps, placement, words, parts)
    held, weight_blob = weights(placement, steps.ranks, trace, ROOM // 8)
    prompt = words.prompt[-MOST_WORDS:]
    used = len(json.dumps([held, prompt, prompt, weight_blob.text()])) + OTHERS
    room = max(ROOM - used, ROOM // 2)
    shown_passes = (last_window(steps, arrays.of, room) if first is count is None and is_failed(trace.run) else
                    window(steps, arrays.of, first, count, room))
    shown = steps.part(shown_passes.first, shown_passes.count, MOST_SYNCS)
    strings, layouts = Strings(), Layouts(shown_passes.detail)
    start = int(steps.passes.first[shown_passes.first]) if len(steps) else 0
    columns, shapes = _syncs(shown, parts[start:start + len(shown)], strings)
    columns["layout"] = [layouts.add(some) for some in shown_passes.slots]
    run, never = _run(steps, detail_of(trace), shown_passes), never_ended(shown)
    run["notes"] = notes(steps, shown, shown_passes, run["values"], run["broken"],
                         layouts.blob.holes or weight_blob.holes)
    if len(prompt) < len(words.prompt):
        run["notes"].append(f"Of the prompt the last {len(prompt):,} of {len(words.prompt):,} tokens are shown.")
    made = {
        "format": FORMAT, "version": VERSION, "run": run, "strings": strings.table, "shapes": shapes,
        "passes": _passes(shown, words, strings, bool(steps.passes.micro_batch.max(initial=0) > 0))
                  | {"loss": losses(steps, shown), "learns": [strings.number(text) for text in learns(shown, words)]},
        "prompt": prompt, "pieces": words.by_id(_mentioned(shown, shown_passes, words)),
        "syncs": columns, "times": base64_of(_times(shown), "<i4"),
        "layouts": layouts.table, "blob": layouts.blob.text(),
        "weights": held, "weight_blob": weight_blob.text(),
    }
    if never:
        made["never"] = never
    return made | {"tour": tour(made)}


def _mentioned(shown: Steps, window: Window, words: Words) -> set[int]:
    """The ids of the tokens that these passes read, wrote, or that ranks offered in them."""
    offered = {int(number) for slots in window.slots for slot in slots if slot.name in ("best", "token")
               for number in slot.matrix[:, 0].tolist() if np.isfinite(number)}
    written = {words.ids[k] for step in shown.passes.step.tolist() for k in (step - 1, step) if 0 <= k < len(words.ids)}
    return offered | written | set(words.prompt_ids[-MOST_WORDS:])


def parts_of(steps: Steps) -> list[str]:
    """Which part of the model each sync belongs to."""
    trace = steps.trace
    parallel = part(trace.run, "model").get("parallel_block") is True
    named: dict[tuple[str, int], str] = {}
    found = []
    for plane, phase, site in zip(*(column[steps.event].tolist() for column in (
            trace.words("plane"), trace.words("phase"), trace.events["site"])), strict=True):
        if (phase, site) not in named:
            named[phase, site] = _part_of_site(trace.strings[site], phase, parallel)
        sampled = plane == "sample" and named[phase, site] != MESSAGE
        found.append("sample" if sampled else "load" if phase == "load" else named[phase, site])
    return found


def _part_of_site(site: str, phase: str, parallel: bool) -> str:
    if site.startswith("pipeline."):
        return MESSAGE
    trained = part_of_training(site, phase)
    if trained is not None:
        return "d_block" if parallel and trained == "d_mlp" else trained
    if re.match(r"layers\.\d+\.attention(\.|$)", site):
        return "attention"
    if re.match(r"layers\.\d+\.mlp(\.|$)", site):
        return "block" if parallel else "mlp"
    return {"embedding": "embedding", "head": "head", "logits": "head"}.get(site, "other")


def _run(steps: Steps, detail: str, shown: Window) -> dict[str, Any]:
    trace, run = steps.trace, steps.trace.run
    cores = run.get("cores")
    return {
        "id": plain(run.get("id", ""), 40), "title": title(trace),
        "world": WORLD if is_simulated(run) else plain(run.get("world", ""), 20),
        "ranks": steps.ranks, "created": plain(run.get("created", ""), 30),
        "cores": cores if type(cores) is int and 0 <= cores < 2**31 else 0, "crowded": crowded(trace),
        "model": model_of(run),
        "embedding": "hidden" if part(run, "placement").get("embedding") == "hidden" else "vocab",
        "gathered": part(run, "generation").get("gathered") is not False,
        "broken": broken_sites(trace)[:MOST_BROKEN], "values": detail,
        "banner": [*filter(None, [failed_line(run)]), *banner(run)], "lanes": lanes(run)[:steps.ranks],
        "window": {"first": shown.first, "count": shown.count, "of": shown.of},
    }


def title(trace: Trace) -> str:
    name, run = model_of(trace.run)["name"] or "a run", trace.run
    about = [", simulated"] * is_simulated(run) + [", failed"] * is_failed(run)
    return f"{name} on {counted(run['ranks'], 'rank')}{''.join(about)}"


def _passes(steps: Steps, words: Words, strings: Strings, several: bool) -> dict[str, list[int]]:
    """The columns of the passes; `several`: some step of the run has more than one micro-batch."""
    passes = steps.passes
    names = [plain(steps.trace.strings[i], 20) for i in passes.phase.tolist()]
    made, read = [], []
    for phase, step in zip(names, passes.step.tolist(), strict=True):
        generates = phase in ("prefill", "decode") and 0 <= step < len(words.pieces)
        made.append(words.pieces[step] if generates else "")
        before = [*words.prompt[-1:], *words.pieces] if words.prompt else ["", *words.pieces]
        read.append(before[step] if phase in ("prefill", "decode") and 0 <= step < len(before) else "")
    return {"phase": [strings.number(name) for name in names], "step": passes.step.tolist(),
            "micro": passes.micro_batch.tolist() if several else [-1] * len(passes),
            "text": [strings.number(text) for text in made], "input": [strings.number(text) for text in read],
            "first": passes.first.tolist(), "count": passes.count.tolist(),
            "begin": passes.begin.tolist(), "end": passes.end.tolist(), "tick": ticks(steps).tolist()}


def _syncs(steps: Steps, parts: list[str], strings: Strings) -> tuple[dict[str, list[int]], list[list[int]]]:
    """The columns of the syncs, and the shapes that they give by number."""
    trace, at = steps.trace, steps.event
    plain_word = {i: strings.number(plain(trace.strings[i], LONGEST)) for i in
                  np.unique([trace.events[name][at] for name in ("op", "site", "reason", "before", "after", "dtype",
                                                                 "plane", "caller")]).tolist()}
    columns = {name: [plain_word[i] for i in trace.events[name][at].tolist()]
               for name in ("op", "site", "reason", "before", "after", "dtype", "plane", "caller")}
    layers = [re.match(r"layers\.(\d{1,6})\.", word) for word in trace.strings]
    code = {i: strings.number(line_of(trace.strings[i])) for i in np.unique(trace.events["caller"][at]).tolist()}
    among, groups = meetings(trace, at.tolist())
    shapes, shape = np.unique(trace.events["shape"][at], return_inverse=True)
    return columns | {
        "pass": steps.pass_of.tolist(), "part": [strings.number(word) for word in parts],
        "layer": [int(found[1]) if (found := layers[i]) else -1 for i in trace.events["site"][at].tolist()],
        "shape": shape.tolist(), "payload": trace.events["payload"][at].tolist(),
        "root": steps.root.tolist(), "broken": trace.events["broken"][at].astype(int).tolist(),
        "code": [code[i] for i in trace.events["caller"][at].tolist()], "last": steps.last.tolist(),
        "among": among, "group": [strings.number(words) for words in groups],
    }, [list(trace.shapes[i]) for i in shapes.tolist()]


def ticks(steps: Steps) -> np.ndarray:
    """For each pass, how many ns one unit of `times` is: 1, or the power of ten that lets int32 hold the pass."""
    last = np.zeros(len(steps.passes), np.int64)
    np.maximum.at(last, steps.pass_of, steps.leave.max(axis=1, initial=0))
    longest = np.maximum(last - steps.passes.begin, steps.passes.end - steps.passes.begin)
    return 10 ** np.ceil(np.log10(np.maximum(longest / (2**31 - 1), 1))).astype(np.int64)


def _times(steps: Steps) -> np.ndarray:
    """(syncs, ranks, 5): compute begin, enter, ready, leave, in ticks since the pass began; whether the rank came."""
    there = steps.cell >= 0
    since, tick = steps.passes.begin[steps.pass_of][:, None], ticks(steps)[steps.pass_of][:, None]
    times = [np.where(there, np.clip((column - since) // tick, 0, 2**31 - 1), 0)
             for column in (steps.begin, steps.enter, steps.ready, steps.leave)]
    return np.stack([*times, there], axis=-1)
