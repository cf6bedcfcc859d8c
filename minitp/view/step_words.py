"""What a training step learns from, as its passes show it: the words at the position shown, the step's mean loss."""
import math

from minitp.trace.failed import is_failed
from minitp.trace.wording import plain
from minitp.view.header import Words
from minitp.view.steps import Steps

_TRAINING = ("forward", "backward", "optimizer")


def losses(steps: Steps, shown: Steps) -> list[float | None]:
    """For each pass of `shown` its step's mean loss in nats a token, as the header of the run has it; None: not known.

    The header's list has one number for each recorded step, of a run that failed for each that was over: where it has
    another length it is not believed.
    """
    listed = steps.trace.run.get("losses")
    numbers = sorted({step for phase, step in _named(steps) if phase in _TRAINING and step >= 0})
    if isinstance(listed, list) and is_failed(steps.trace.run):
        numbers = numbers[:len(listed)]
    if not isinstance(listed, list) or len(listed) != len(numbers):
        return [None] * len(shown.passes)
    known = {step: loss for step, loss in zip(numbers, listed, strict=True)
             if type(loss) is float and math.isfinite(loss)}
    return [known.get(step) if phase in _TRAINING else None for phase, step in _named(shown)]


def learns(steps: Steps, words: Words) -> list[str]:
    """For each forward pass the word at the position shown and the one that follows: “a” → “n”; "" where not kept."""
    return [_pair(steps, step, micro, words) if phase == "forward" else ""
            for (phase, step), micro in zip(_named(steps), steps.passes.micro_batch.tolist(), strict=True)]


def _named(steps: Steps) -> list[tuple[str, int]]:
    phases = [steps.trace.strings[number] for number in steps.passes.phase.tolist()]
    return list(zip(phases, steps.passes.step.tolist(), strict=True))


def _pair(steps: Steps, step: int, micro: int, words: Words) -> str:
    ids = []
    for site, name in (("embedding", "id"), ("loss", "targets")):
        kept = steps.trace.array(0, "forward", None if step < 0 else step, site, name, None if micro < 0 else micro)
        if kept is None or not kept.cells.size or not math.isfinite(kept.cells[-1, -1]) or kept.cells[-1, -1] < 0:
            return ""
        ids.append(int(kept.cells[-1, -1]))
    known = words.by_id(set(ids))
    return " → ".join(f"“{_visible(known[str(i)])}”" if str(i) in known else f"id {i}" for i in ids)


def _visible(word: str) -> str:
    return plain(word, 24) if word.strip() else {" ": "␣", "\n": "⏎", "\t": "⇥"}.get(word, "␣")
