"""runs.toml: published runs, each with its model, machine and layout, and what was published of it."""
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from minitp.errors import ConfigError
from minitp.plan.catalogue.machines import machine
from minitp.plan.catalogue.models import model
from minitp.plan.data_file import Entry, flag, named, read, texts, unknown, whole
from minitp.plan.job import PRECISIONS, Training
from minitp.plan.layout import Layout
from minitp.plan.machine import Machine
from minitp.plan.model import PlannedModel
from minitp.plan.units import parse_count

FILE = Path(__file__).parent / "runs.toml"
PUBLISHED = {"step_seconds": "s", "tflops": "TFLOP/s a device", "days": "days", "gpu_hours": "device hours",
             "mfu": "share", "hfu": "share", "tokens_per_s_gpu": "tokens/s a device", "memory_gb": "GB a device"}
"""What may be published of a run, and its unit."""


@dataclass(frozen=True)
class PublishedRun:
    """A training that somebody did and described.

    layout      None where it wasn't published
    published   quantity → value, by the names and in the units of PUBLISHED: measured by others, never planned
    """
    name: str
    model: PlannedModel
    machine: Machine
    layout: Layout | None
    training: Training
    source: str
    note: str = ""
    published: Mapping[str, float] = field(default_factory=dict, hash=False)


def run_of(name: str, entry: Entry) -> PublishedRun:
    """A row of the data file as a run. ConfigError for a row that breaks a rule."""
    made = PublishedRun(name, entry.take("model", model), entry.take("machine", machine),
                        entry.take("layout", _layout, None), entry.take("training", _training), entry.source(),
                        entry.text("note", ""), entry.take("published", _published, {}))
    entry.take("aliases", texts, ())
    entry.done()
    if made.layout and made.layout.devices > made.machine.devices:
        raise entry.error(f"its layout has {made.layout.devices:,} devices, its machine {made.machine.devices:,}")
    return made


@cache
def _shipped() -> dict[str, PublishedRun]:
    found: dict[str, PublishedRun] = {}
    for name, entry in named(read(FILE, "run")["run"]):
        made = run_of(name, entry)
        for called in (name, *entry.take("aliases", texts, ())):
            found[called] = made
    return found


def runs() -> dict[str, PublishedRun]:
    """The published runs by name (without aliases)."""
    return {run.name: run for run in _shipped().values()}


def run(name: str) -> PublishedRun:
    """A published run by name; ConfigError with near names where there is none."""
    found = _shipped().get(name.strip().lower())
    if found is None:
        raise unknown("published run", name, list(runs()), part="runs")
    return found


def _layout(value: Any) -> Layout:
    entry = _table(value)
    degrees: dict[str, Any] = {axis: entry.take(axis, whole(), 1) for axis in ("tp", "pp", "dp", "cp", "ep", "chunks")}
    made = Layout(**degrees, sequence=entry.take("sequence", flag, False), zero=entry.take("zero", _as_is, 0),
                  schedule=entry.take("schedule", _as_is, "1f1b"),
                  stage_layers=entry.take("stage_layers", tuple, None))
    entry.done()
    return made


def _training(value: Any) -> Training:
    entry = _table(value)
    made = Training(batch=entry.take("batch", whole()), seq=entry.take("seq", whole()),
                    micro_batch=entry.take("micro_batch", whole(), 1),
                    recompute=entry.take("recompute", _as_is, "none"),
                    precision=entry.take("precision", PRECISIONS.__getitem__, PRECISIONS["mixed"]),
                    stored=entry.take("stored", flag, False), dropout=entry.take("dropout", flag, False),
                    tokens=entry.take("tokens", parse_count, 0))
    entry.done()
    return made


def _published(value: Any) -> Mapping[str, float]:
    entry = _table(value)
    found = {key: entry.take(key, float) for key in PUBLISHED if key in entry}
    entry.done()
    return found


def _table(value: Any) -> Entry:
    if not isinstance(value, dict):
        raise ConfigError("must be a table, {key = value, …}")
    return Entry("", "table", 1, value)


def _as_is(value: Any) -> Any:
    """A value that its class checks itself."""
    return value
