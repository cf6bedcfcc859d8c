"""The play: what the Watch page and the exported HTML show of a run, as plain data.

Every number of the picture is made here, from the trace alone; the player draws it. Columns are lists, or base64 of
little-endian numbers; words and shapes stand once, in `strings` and `shapes`. A trace may be a stranger's: its text is
only ever passed on as text, and what can't be shown is left out with a note.
"""
import re
from typing import Any

import numpy as np

from minitp.trace.file import Trace
from minitp.trace.summary import crowded
from minitp.trace.timeline import Timeline
from minitp.trace.wording import count as counted
from minitp.trace.wording import plain
from minitp.view.header import model_of, part, placement_of, words_of
from minitp.view.packing import LONGEST, Strings, base64_of
from minitp.view.slots import Layouts, Slots
from minitp.view.steps import Steps
from minitp.view.weights import weights

FORMAT, VERSION = "minitp play", 1


def play(trace: Trace, *, first: int | None = None, count: int | None = None) -> dict[str, Any]:
    """The play of the passes `first` … `first + count - 1`: by default of as many as fit into about 1 MB.

    The window is clamped to the passes that there are. Never raises on a trace that `Trace.read` accepted.
    """
    steps = Steps.of(Timeline.of(trace))
    placement, words = placement_of(trace.run), words_of(trace.run)
    parts = parts_of(steps)
    slots = Slots(steps, placement, words, parts)
    strings = Strings()
    layouts = Layouts(64)
    columns = _syncs(steps, parts, strings)
    columns["layout"] = [layouts.add(slots.of(k)) for k in range(len(steps))]
    held, weight_blob = weights(placement, steps.ranks, {}, 32)
    return {
        "format": FORMAT, "version": VERSION,
        "run": _run(trace, steps, slots),
        "strings": strings.table, "shapes": [list(shape) for shape in trace.shapes],
        "passes": _passes(steps, words, strings),
        "prompt": words.prompt, "pieces": words.by_id(),
        "syncs": columns, "times": base64_of(_times(steps), "<i4"),
        "layouts": layouts.table, "blob": layouts.blob.text(),
        "weights": held, "weight_blob": weight_blob.text(),
        "tour": [],
    }


def parts_of(steps: Steps) -> list[str]:
    """Which part of the model each sync belongs to."""
    trace = steps.trace
    parallel = part(trace.run, "model").get("parallel_block") is True
    named = [_part_of_site(word, parallel) for word in trace.strings]
    return ["sample" if plane == "sample" else "load" if phase == "load" else named[site] for plane, phase, site in
            zip(*(column[steps.event].tolist() for column in
                  (trace.words("plane"), trace.words("phase"), trace.events["site"])), strict=True)]


def _part_of_site(site: str, parallel: bool) -> str:
    if re.match(r"layers\.\d+\.attention(\.|$)", site):
        return "attention"
    if re.match(r"layers\.\d+\.mlp(\.|$)", site):
        return "block" if parallel else "mlp"
    return {"embedding": "embedding", "head": "head", "logits": "head"}.get(site, "other")


def _run(trace: Trace, steps: Steps, slots: Slots) -> dict[str, Any]:
    run = trace.run
    cores = run.get("cores")
    broken = np.flatnonzero(trace.events["broken"])
    return {
        "id": plain(run.get("id", ""), 40), "title": title(trace), "world": plain(run.get("world", ""), 20),
        "ranks": steps.ranks, "created": plain(run.get("created", ""), 30),
        "cores": cores if type(cores) is int and 0 <= cores < 2**31 else 0, "crowded": crowded(trace), "notes": [],
        "model": model_of(run), "embedding": "hidden" if part(run, "placement").get("embedding") == "hidden" else "vocab",
        "gathered": part(run, "generation").get("gathered") is not False,
        "broken": list(dict.fromkeys(plain(site) for site in trace.words("site")[broken].tolist())),
        "values": slots.kept.detail(),
        "window": {"first": 0, "count": len(steps.passes), "of": len(steps.passes)},
    }


def title(trace: Trace) -> str:
    name = model_of(trace.run)["name"] or "a run"
    return f"{name} on {counted(trace.run['ranks'], 'rank')}"


def _passes(steps: Steps, words: Any, strings: Strings) -> dict[str, list[int]]:
    passes = steps.passes
    names = [plain(steps.trace.strings[i], 20) for i in passes.phase.tolist()]
    made, read = [], []
    for phase, step in zip(names, passes.step.tolist(), strict=True):
        generates = phase in ("prefill", "decode") and 0 <= step < len(words.pieces)
        made.append(words.pieces[step] if generates else "")
        before = [*words.prompt[-1:], *words.pieces] if words.prompt else ["", *words.pieces]
        read.append(before[step] if phase in ("prefill", "decode") and 0 <= step < len(before) else "")
    return {"phase": [strings.number(name) for name in names], "step": passes.step.tolist(),
            "text": [strings.number(text) for text in made], "input": [strings.number(text) for text in read],
            "first": passes.first.tolist(), "count": passes.count.tolist(),
            "begin": passes.begin.tolist(), "end": passes.end.tolist()}


def _syncs(steps: Steps, parts: list[str], strings: Strings) -> dict[str, list[int]]:
    trace, at = steps.trace, steps.event
    plain_word = {i: strings.number(plain(trace.strings[i], LONGEST)) for i in
                  np.unique([trace.events[name][at] for name in ("op", "site", "reason", "before", "after", "dtype",
                                                                 "plane", "caller")]).tolist()}
    columns = {name: [plain_word[i] for i in trace.events[name][at].tolist()]
               for name in ("op", "site", "reason", "before", "after", "dtype", "plane", "caller")}
    layers = [re.match(r"layers\.(\d{1,6})\.", word) for word in trace.strings]
    return columns | {
        "pass": steps.pass_of.tolist(), "part": [strings.number(word) for word in parts],
        "layer": [int(found[1]) if (found := layers[i]) else -1 for i in trace.events["site"][at].tolist()],
        "shape": trace.events["shape"][at].tolist(), "payload": trace.events["payload"][at].tolist(),
        "root": steps.root.tolist(), "broken": trace.events["broken"][at].astype(int).tolist(),
        "code": [strings.number("")] * len(steps), "last": steps.last.tolist()}


def _times(steps: Steps) -> np.ndarray:
    """(syncs, ranks, 5): compute begin, enter, ready, leave, in ns since the pass began; whether the rank took part."""
    there = steps.cell >= 0
    since = steps.passes.begin[steps.pass_of][:, None]
    times = [np.where(there, np.clip(column - since, 0, 2**31 - 1), 0)
             for column in (steps.begin, steps.enter, steps.ready, steps.leave)]
    return np.stack([*times, there], axis=-1)
