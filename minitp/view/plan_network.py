"""The network of a plan for a page: what a collective takes at every size, and what the syncs of one token cost.

All times are those of `curve` and `sync_cost` of `minitp.plan.network`: a model, but for the points that a machine's
description has measured, which stay marks of their own. The chart's are the prices of plans, the links' are bare.
"""
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from minitp.plan import memory
from minitp.plan.job import Inference, bytes_of
from minitp.plan.machine import Machine
from minitp.plan.model import PlannedModel
from minitp.plan.network.curve import SIZES, Curve, curve, sync_point, sync_points
from minitp.plan.network.sync_cost import BARE, SyncRow, on_links
from minitp.plan.rows import by_kind
from minitp.plan.units import both, duration, percent, rate
from minitp.trace.wording import count
from minitp.view.plan import Asked

RANKS = (2, 4, 8)                      # of the comparison of links


@dataclass(frozen=True)
class Group:
    """Ranks that meet in a collective: how many, how far apart, and which they are in words."""
    members: int
    stride: int
    words: str


@dataclass(frozen=True)
class Network:
    """All that the section shows. `token`: the payload of one of a token's syncs, in bytes, `syncs` of which it needs.
    """
    machine: Machine
    group: Group
    curve: Curve
    token: float
    syncs: int
    layers: int
    links: list[SyncRow]


def group_of(asked: Asked, machine: Machine) -> Group:
    """The group that was asked for; where it is of one rank, which moves nothing, the devices of one box."""
    layout = asked.layout()
    if asked.group in ("tp", "dp") and getattr(layout, asked.group) > 1:
        axis = asked.group
        return Group(getattr(layout, axis), layout.strides[axis], f"a {axis} group of {layout}")
    if asked.group == "all" and machine.devices > 1:
        return Group(machine.devices, 1, "all devices")
    if machine.per_machine > 1:
        return Group(machine.per_machine, 1, "the devices of one box")
    return Group(max(machine.devices, 2), 1, "all devices")


def network(asked: Asked) -> Network:
    """The chart's data. ConfigError for a collective that has no price there."""
    model, machine = asked.planned(), asked.described()
    group = group_of(asked, machine)
    machine = machine if machine.devices >= group.members * group.stride else machine.with_devices(group.members)
    payload, each = sync_point(model, *_batch(asked))[1], sync_points(model)
    ranks = sorted({*RANKS, group.members} if group.members <= 64 else set(RANKS))
    drawn = curve(machine, asked.op, group.members, stride=group.stride, sizes=SIZES, marks=marks(asked, model),
                  devices=asked.layout().devices)
    return Network(machine, group, drawn, payload, each, model.config.layers, on_links(payload, each, ranks))


def _batch(asked: Asked) -> tuple[int, float]:
    """Tokens that go through together while decoding, and bytes of each number."""
    job = asked.job()
    if isinstance(job, Inference):
        return ceil(job.batch / asked.dp), bytes_of(job.activations)
    return job.micro_batch * ceil(job.seq / asked.cp), job.precision.activations


def marks(asked: Asked, model: PlannedModel) -> list[tuple[str, float]]:
    """The payloads of the job's own collectives: a sync while decoding, one of a prompt, one of a training step, and
    the gradients."""
    job, (tokens, each) = asked.job(), _batch(asked)
    if isinstance(job, Inference):
        prompt = sync_point(model, tokens * job.prompt, each)[1]
        return [(f"decode: {count(tokens, 'token')}", sync_point(model, tokens, each)[1]),
                (f"prompt: {count(tokens * job.prompt, 'token')}", prompt)]
    held = by_kind(memory.worst(model, replace(asked.layout(), zero=0), job)[1])
    return [(f"training: {count(tokens, 'token')}", sync_point(model, tokens, each)[1]),
            ("gradients: all of a rank", float(held["gradients"]))]


def lines(found: Network) -> list[str]:
    """What is to be seen, in sentences."""
    one = found.curve
    said = [f"{one.op.replace('_', '-')} over {count(one.members, 'rank')}, {found.group.words} of "
            f"{found.machine.name}: "
            + "; ".join(_level(found.machine, at, meet) for at, meet in enumerate(one.meeting) if meet > 1) + "."]
    if one.half is not None:
        said.append(f"Below n½ = {both(one.half)} half the bytes would take nearly as long: latency counts. Above, "
                    "bytes count.")
    said += [f"{mark.name}, {both(mark.payload)}: {duration(mark.seconds)} by {named(mark.algorithm)}, "
             f"{percent(mark.latency_share)} of it latency." for mark in one.marks]
    said += [f"From {both(switch.payload)} on {named(switch.after)} takes the place of {named(switch.before)}."
             for switch in one.switches]
    return said


def named(algorithm: str) -> str:
    """An algorithm in words; `measured` is none: its times are read from a table between measured points."""
    return "the machine's measured table" if algorithm == "measured" else algorithm


def _level(machine: Machine, at: int, meet: int) -> str:
    level = machine.levels[at]
    return (f"{meet:,} meet on {level.link.name} (α {duration(level.link.latency_s)}, "
            f"{rate(level.link.bytes_per_s)})")


def curve_rows(found: Network) -> list[dict[str, Any]]:
    """The chart as a table."""
    times = dict(found.curve.measured)
    lines = [line for line in found.curve.lines if line.algorithm != "measured"]
    return [{"payload": both(size), "chosen (model)": named(name), "time (model)": duration(seconds),
             **{f"{line.algorithm} (model)": "" if (time := line.seconds[at]) is None else duration(time)
                for line in lines}, "measured": duration(times[size]) if size in times else ""}
            for at, (size, name, seconds) in enumerate(zip(found.curve.sizes, found.curve.chosen, found.curve.seconds,
                                                           strict=True))]


def link_rows(found: Network) -> list[dict[str, Any]]:
    """What one pass pays for its syncs on each link."""
    return [{"link (model)": row.link, "ranks": row.ranks, "algorithm": row.algorithm, "messages in turn": row.messages,
             "one sync (model)": duration(row.once_s), "all syncs of a pass (model)": duration(row.token_s)}
            for row in found.links]


def links_line(found: Network, training: bool) -> str:
    """The sentence above the links."""
    what = "A forward pass of a micro-batch" if training else "Each token"
    return (f"{what} waits for {found.syncs:,} syncs, one after the other: "
            f"{(found.syncs - 2) // found.layers} for each layer and 2 at the ends, of {both(found.token)} each. "
            f"Below: {BARE}.")
