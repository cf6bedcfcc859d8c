"""Which runs can be held against each other: those that were asked the same, on other numbers of ranks."""
import json
from collections.abc import Mapping, Sequence
from typing import Any

from minitp.runs import training_steps
from minitp.trace.failed import is_failed
from minitp.trace.simulated import is_simulated
from minitp.trace.wording import count, plain
from minitp.train.config import OptimizerSettings, StepSettings
from minitp.view.header import part

_MOST = 60                         # settings of a header that are looked at; minitp writes fewer
_SAID = ("batch", "tokens", "dtype", "seed")       # always named, not only where they are unusual


def settings_of(run: dict[str, Any]) -> dict[str, str | int | float]:
    """What a training was asked for, as far as it is plain words and numbers; {} where the header doesn't say."""
    given = part(part(run, "training"), "settings")
    return {plain(key, 40): value if type(value) is not str else plain(value, 200)
            for key, value in list(given.items())[:_MOST] if type(value) in (str, int, float, bool)}


def precision_of(run: dict[str, Any]) -> str:
    """float32, float64 or bf16: of a training what was asked for, as bf16 computes in float32."""
    return plain(settings_of(run).get("dtype") or part(run, "training").get("dtype") or "", 20)


def question_of(run: dict[str, Any]) -> str | None:
    """The same for runs that can be compared: model, dtype, and prompt and batch, or all that decides a training's
    losses and its steps; None where the header doesn't say, the run is a model's, or it failed and is cut off."""
    if is_simulated(run) or is_failed(run):
        return None
    what, model, training = part(run, "generation"), part(run, "model"), part(run, "training")
    if training and model and type(run.get("ranks")) is int:
        steps = _first_steps(training)
        return json.dumps([model, run.get("trained_on"), training.get("dtype"), training.get("recompute"),
                           settings_of(run), training_steps(run), (steps.get("steps") or [None])[0],
                           steps.get("micro_batches")], sort_keys=True)
    if not (what and model and "prompts" in run and "tokens" in run and type(run.get("ranks")) is int):
        return None
    return json.dumps([model, run["prompts"], what.get("dtype"), what.get("batch")], sort_keys=True)


def _first_steps(training: dict[str, Any]) -> dict[str, Any]:
    """The first segment of training steps."""
    segments = training.get("segments")
    found = [one for one in segments if isinstance(one, dict) and isinstance(one.get("steps"), list)] \
        if isinstance(segments, list) else []
    return found[0] if found else {}


def training_in_words(run: dict[str, Any]) -> str:
    """What the runs of a group of trainings share: 2 training steps · tiny · 16×64 tokens, bf16, seed 0, dropout 0.1;
    of the settings that a run may leave out those that aren't as usual."""
    settings, model = settings_of(run), part(run, "model")
    parts = [count(training_steps(run), "training step"), plain(model.get("name") or "", 40),
             plain(part(run, "trained_on").get("name") or "", 40)]
    said = [f"{plain(settings['batch'], 12)}×{plain(settings['tokens'], 12)} tokens"] \
        if {"batch", "tokens"} <= settings.keys() else []
    said += [precision_of(run)]
    said += [f"seed {plain(settings['seed'], 20)}"] if "seed" in settings else []
    said += [f"from {plain(settings['from'], 40)}"] if "from" in settings else []
    usual = vars(StepSettings()) | vars(OptimizerSettings())
    said += [f"{key.replace('_', ' ')} {plain(value, 20)}" for key, value in settings.items()
             if key in usual and key not in _SAID and value != usual[key]]
    return " · ".join(filter(None, [*parts, ", ".join(filter(None, said))]))


def groups(headers: Mapping[str, dict[str, Any]]) -> list[list[str]]:
    """Of runs by name, those that were asked the same, few ranks first; the largest group first; no lone ones."""
    found: dict[str, list[tuple[int, str]]] = {}
    for name, run in headers.items():
        question = question_of(run)
        if question is not None:
            found.setdefault(question, []).append((run["ranks"], name))
    return sorted(([name for _, name in sorted(group)] for group in found.values() if len(group) > 1),
                  key=len, reverse=True)


def was_broken(run: dict[str, Any]) -> bool:
    """Whether the header says that syncs were skipped on purpose."""
    return bool(part(run, "generation").get("broken"))


def newest(group: Sequence[str], headers: Mapping[str, dict[str, Any]]) -> list[str]:
    """One run per number of ranks and world: the one made last; one that was broken on purpose where there is no other.
    """
    chosen: dict[tuple, str] = {}
    for name in sorted(group, key=lambda name: (not was_broken(headers[name]), str(headers[name].get("created", "")))):
        chosen[headers[name]["ranks"], str(headers[name].get("world", ""))] = name
    return [name for name in group if name in chosen.values()]
