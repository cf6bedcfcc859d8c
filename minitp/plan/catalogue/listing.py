"""The catalogue as plain rows: what a table, a page or a JSON file shows of it, each with its source."""
from collections.abc import Callable
from typing import Any, Literal, get_args

from minitp.plan.catalogue.devices import devices
from minitp.plan.catalogue.machines import machines
from minitp.plan.catalogue.models import models
from minitp.plan.catalogue.runs import PUBLISHED, runs
from minitp.plan.links import links, switches
from minitp.plan.machine import Level

Kind = Literal["models", "devices", "machines", "links", "runs"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Row = dict[str, Any]


def listing(kind: Kind, word: str = "") -> list[Row]:
    """The rows of a kind, or those with `word` in their name. Numbers are plain: bytes, bytes/s, FLOP/s, seconds."""
    rows = _ROWS[kind]()
    return [row for row in rows if word.strip().lower() in row["name"].lower()]


def _models() -> list[Row]:
    return [{"name": model.name, "parameters": model.parameters, "active": model.active_parameters,
             "published": model.published or None, "layers": model.config.layers, "hidden": model.config.hidden,
             "heads": model.config.heads, "kv_heads": model.config.kv_heads, "head_size": model.config.head_size,
             "ffn": model.config.ffn, "vocab": model.config.vocab, "positions": model.config.positions,
             "experts": model.experts, "model_parallel": model.model_parallel or None,
             "trained_on": model.trained_on or None, "note": model.note, "source": model.source}
            for model in models().values()]


def _devices() -> list[Row]:
    return [{"name": device.name, "kind": device.kind, "memory": device.memory, "memory_real": device.memory_real,
             "memory_kind": device.memory_kind, "bandwidth": device.bandwidth,
             "bandwidth_reached": device.bandwidth_reached, "flops": dict(device.flops),
             "flops_reached": device.flops_reached, "note": "", "source": device.source}
            for device in devices().values()]


def _machines() -> list[Row]:
    return [{"name": name, "devices": machine.devices, "device": machine.device.name,
             "memory": machine.devices * machine.device.memory,
             "memory_real": machine.devices * machine.device.memory_real, "host_memory": machine.host_memory or None,
             "levels": [_level(level) for level in machine.levels], "note": machine.note, "source": machine.source}
            for name, machine in machines().items()]


def _level(level: Level) -> Row:
    return {"name": level.name, "size": level.size, "link": level.link.name, "ports": level.ports,
            "latency_s": level.link.latency_s, "bytes_per_s": level.link.bytes_per_s,
            "tables": [f"{op} over {ranks}" for op, ranks in level.tables]}


def _links() -> list[Row]:
    rows = [{"name": link.name, "kind": "link", "latency_s": link.latency_s, "bytes_per_s": link.bytes_per_s,
             "data_sheet": link.data_sheet or None, "note": "", "source": link.source}
            for link in {link.name: link for link in links().values()}.values()]
    return rows + [{"name": switch.name, "kind": "one more switch", "latency_s": switch.latency_s, "bytes_per_s": None,
                    "data_sheet": None, "note": "", "source": switch.source} for switch in switches().values()]


def _runs() -> list[Row]:
    return [{"name": run.name, "model": run.model.name, "machine": run.machine.name, "devices": run.machine.devices,
             "layout": str(run.layout) if run.layout else None, "batch": run.training.batch, "seq": run.training.seq,
             "micro_batch": run.training.micro_batch, "recompute": run.training.recompute,
             "tokens": run.training.tokens or None, "published": dict(run.published),
             "units": {key: PUBLISHED[key] for key in run.published}, "note": run.note, "source": run.source}
            for run in runs().values()]


_ROWS: dict[Kind, Callable[[], list[Row]]] = {
    "models": _models, "devices": _devices, "machines": _machines, "links": _links, "runs": _runs}
