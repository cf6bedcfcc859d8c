"""Of networks: a sync point on each link, why tensor parallelism stays in a machine, a switch."""
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from minitp.plan import catalogue, units
from minitp.plan.job import Inference, Training
from minitp.plan.layout import Layout
from minitp.plan.links import LINKS, Link, Switch
from minitp.plan.machine import Level, Machine
from minitp.plan.model import PlannedModel
from minitp.plan.network import curve, sync_cost
from minitp.plan.network.sync_cost import SyncRow
from minitp.plan.questions.base import Answer, Question, Table, WhatIf
from minitp.plan.questions.parts import MODELED, floats, gb, several, some, sources
from minitp.plan.speed import decode, step, traffic

MACHINE, MIDDLE, GPT3 = "8xa100-80", "llama-2-70b", "gpt-3-175b"
RANKS, CARDS = (2, 4, 8), 8
TCP, RDMA = "ethernet-10g", "ib-hdr"
BARE = "a bare link, without what a library needs to start: a model"
LIBRARY = "as a machine's library does it: a model, as in every plan"


class Waiting(NamedTuple):
    """A token's sync points over some cards, at the price that every plan has for them."""
    link: str
    cards: int
    time: decode.PassTime

    @property
    def token_s(self) -> float:
        return self.time.network_s

    @property
    def once_s(self) -> float:
        return self.time.network_s / self.time.syncs

    def row(self) -> tuple[str, ...]:
        return (self.link, f"{self.cards}", units.duration(self.once_s), units.duration(self.token_s),
                units.percent(self.time.latency_s / self.time.network_s))


HEADS = ("cards meet over", "cards", "a sync point, on average", "a token", "of it latency")


def inside(model: PlannedModel, batch: int, machine: Machine, n: int) -> Waiting:
    """On `n` cards of a machine as it is."""
    time = decode.token(model, Layout(tp=n), Inference(batch), machine)
    return Waiting(f"{machine.levels[0].link.name}, inside {machine.name}", n, time)


def across(model: PlannedModel, batch: int, machine: Machine, n: int, links: Iterable[Link]) -> list[Waiting]:
    """On `n` such cards, each in a machine of its own, that meet over each of `links`."""
    alone, found = replace(machine.levels[0], size=1, tables={}, sources={}), []
    for link in links:
        apart = replace(machine, levels=(alone, Level("between machines", n, link)), measured={})
        found.append(Waiting(link.name, n, decode.token(model, Layout(tp=n), Inference(batch), apart)))
    return found


# --- a sync point on each link --------------------------------------------------------------------------------------


def sync_point_cost(what: WhatIf) -> Answer:
    """What one all-reduce takes on each link."""
    model, tokens = what.the_model(MIDDLE), what.batch or 1
    payload, count = curve.sync_point(model, tokens)[1], curve.sync_points(model)
    links = (catalogue.link(what.link), *LINKS) if what.link else LINKS
    machine = what.the_machine(MACHINE)
    n = several(what.devices or min(CARDS, machine.devices))
    rows = sync_cost.on_links(payload, count, (n,) if what.devices else RANKS, links)
    waits = [inside(model, tokens, machine, n), *across(model, tokens, machine, n, links[1:])]
    own, slow = waits[0], max(waits, key=lambda one: one.once_s)
    bare = min((row for row in rows if row.ranks == n and row.link == LINKS[0].name), key=lambda row: row.once_s)
    numbers = {"payload": payload, "syncs": count, "library s": own.once_s, "library token s": own.token_s}
    numbers |= {f"{row.link} {row.ranks} {row.algorithm}": row.once_s for row in rows}
    numbers |= {f"{one.link} library": one.once_s for one in waits[1:]}
    return Answer(
        f"It waits, it doesn't carry: {units.both(payload)} take {units.duration(own.once_s)} over {own.cards} cards "
        f"on {own.link}, {units.percent(own.time.latency_s / own.time.network_s)} of it latency, and the {count} of a "
        f"token {units.duration(own.token_s)}; on {slow.link} it is {units.duration(slow.once_s)} and "
        f"{units.duration(slow.token_s)}.",
        (f"A sync point of {model.name} with {some(tokens, 'token')} at once sums {units.both(payload)}, and a pass "
         f"has {count}, of which the last gathers logits. On such sizes the number of messages that follow one another "
         "counts: recursive doubling needs lg p of them over p ranks, a ring 2(p − 1). For training's megabytes it is "
         "the other way round, as the ring sends the fewest bytes.",
         f"Libraries have costs of their own: kernels to start, and flags to wait for. On {bare.link} alone, by "
         f"{bare.algorithm}, it would be {units.duration(bare.once_s)}; a plan reckons with "
         f"{own.once_s / bare.once_s:.1f} times as much. A benchmark that starts each call by "
         "itself shows up to twice that; kernels started as one graph come close to the plan."),
        (Table(f"A sync point of {model.name} ({LIBRARY})", HEADS, tuple(one.row() for one in waits), (1, 2, 3, 4)),
         Table(f"An all-reduce of {units.both(payload)} ({BARE})", (
            "link", "ranks", "algorithm", "messages in a row", "once", f"{count} times, a token"),
            tuple(_sync_row(row) for row in rows), (1, 3, 4, 5))),
        ("A bare link: messages · α + bytes on the longest path · β, α seconds a message and β a byte: ring 2(p − 1)·α "
         "+ 2n(p − 1)/p·β, doubling lg p·(α + nβ) for n bytes (Thakur, Rabenseifner & Gropp 2005). Other links of the "
         "first table join machines of one card each.", MODELED), sources(model, machine, links), floats(numbers))


def _sync_row(row: SyncRow) -> tuple[str, ...]:
    return (row.link, f"{row.ranks}", row.algorithm, f"{row.messages}", units.duration(row.once_s),
            units.duration(row.token_s))


# --- inside a machine -----------------------------------------------------------------------------------------------


def inside_a_machine(what: WhatIf) -> Answer:
    """C14."""
    model, trained = what.the_model(MIDDLE), what.the_model(GPT3)
    machine, tokens = what.the_machine(MACHINE), what.batch or 1
    payload, layers = curve.sync_point(model, tokens)[1], 2 * model.config.layers
    n, within = several(machine.per_machine), machine.levels[0].link
    rows = sync_cost.on_links(payload, layers, (n,), (replace(within, name=f"{within.name} (inside)"), *LINKS[1:]))
    near = inside(model, tokens, machine, n)
    waits = [near, *across(model, tokens, machine, n, LINKS[1:])]
    far, steps = max(waits, key=lambda one: one.token_s), _placements(trained, machine, what)
    numbers = {"all-reduces": layers, "payload": payload, "syncs": near.time.syncs, "inside s": near.token_s,
               "reading s": near.time.memory_s} | {f"{row.link} {row.algorithm}": row.token_s for row in rows}
    numbers |= {f"{one.link} library": one.token_s for one in waits[1:]}
    numbers |= {f"{name} {what_of}": value for name, time, sent in steps
                for what_of, value in (("step s", time.seconds), ("between", sent))}
    return Answer(
        f"Right: the {near.time.syncs} sync points of a token over {n} cards take {units.duration(near.token_s)} on "
        f"{near.link} and {units.duration(far.token_s)} on {far.link}, {far.token_s / near.token_s:.3g} times as long. "
        "So tensor parallelism stays inside a machine, pipelines and data parallelism go between.",
        (f"{model.name}: two sums a layer, {units.both(payload)} each, one after the other; the weights are read in "
         f"{units.duration(near.time.memory_s)} meanwhile. On {far.link} "
         f"{units.percent(far.time.latency_s / far.token_s)} of the wait is latency, which no bandwidth buys back.",
         _training_bytes(trained, machine, steps),
         "ZeRO cuts states over replicas to make a model fit; it does not spare the network, and stage 3 moves "
         "parameters: `minitp plan ask zero`."),
        (Table(f"The sync points of a token of {model.name} ({LIBRARY})", HEADS, tuple(one.row() for one in waits),
               (1, 2, 3, 4)),
         Table(f"{layers} all-reduces of {units.both(payload)} over {n} ranks ({BARE})", (
             "link", "algorithm", "once", "a token"), tuple((row.link, row.algorithm, units.duration(row.once_s),
                                                            units.duration(row.token_s)) for row in rows), (2, 3)),
         Table(f"A training step of {trained.name} (a model; whether it fits isn't asked)", (
             "layout", "between machines, GB (GiB) a card", "step"),
             tuple((name, gb(sent), units.duration(time.seconds)) for name, time, sent in steps), (1, 2))),
        (f"A bare link: ring {layers} · (2(p − 1)·α + 2n(p − 1)/p·β), doubling {layers} · lg p·(α + nβ), with p = {n} "
         "ranks, n bytes, α seconds a message and β a byte. Other links of the first table join machines of one card "
         "each.", MODELED), sources(model, machine, LINKS), floats(numbers))


Placed = list[tuple[str, step.StepTime, float]]


def _training_bytes(model: PlannedModel, machine: Machine, steps: Placed) -> str:
    (_, near, near_sent), (_, far, far_sent) = steps
    return (f"Training shows the bytes. {model.name} on {some(machine.devices * TWO, 'card')}: with tensor parallelism "
            f"inside each machine and a pipeline between, a card sends {units.both(near_sent)} through its port to the "
            f"other machine in a step, and the step takes {units.duration(near.seconds)}; laid the other way, with "
            f"tensor parallelism across both, {units.both(far_sent)} and {units.duration(far.seconds)}.")


TWO = 2


def _placements(model: PlannedModel, machine: Machine,
                what: WhatIf) -> list[tuple[str, step.StepTime, float]]:
    """A training on two machines with tensor parallelism inside, and across both: name, step, bytes between a card."""
    n = machine.devices
    two = machine.with_devices(TWO * n) if len(machine.levels) > 1 else replace(
        machine, levels=(machine.levels[0], replace(machine.levels[0], name="between", size=TWO,
                                                    link=catalogue.link(what.between or TCP))))
    job = Training(32 * (what.batch or 1), min(2048, model.config.positions), what.batch or 1, recompute="full")
    found = []
    for layout in (Layout(tp=n, pp=TWO), Layout(tp=TWO * n)):
        moved = traffic.step(model, layout, job, two)
        between = sum(size for row in moved for level, size in row.wire.items() if level != two.levels[0].name)
        found.append((f"{layout}", step.training_step(model, layout, job, two), between))
    return found


# --- a switch -------------------------------------------------------------------------------------------------------


def switch(what: WhatIf) -> Answer:
    """C17."""
    model, n, tokens = what.the_model(MIDDLE), several(what.devices or CARDS), what.batch or 1
    payload, count = curve.sync_point(model, tokens)[1], curve.sync_points(model)
    link, stack, nv = catalogue.link(what.link or RDMA), catalogue.link(TCP), catalogue.switches()["nvswitch"]
    switches = [one for one in catalogue.switches().values() if one.latency_s < link.latency_s + 1e-6]
    same_wire = replace(stack, name=f"{link.name}'s wire with TCP's latency", bytes_per_s=link.bytes_per_s)
    links = [link, *(_behind(link, one) for one in switches), stack, same_wire]
    waits = across(model, tokens, catalogue.machine(MACHINE), n, links)
    bare = [*sync_cost.switch_hop(payload, count, n, link, stack, [one.latency_s for one in switches]),
            sync_cost.switch_hop(payload, count, n, same_wire, stack, ())[0]]
    plain, slow, wire, worst = waits[0], waits[-2], waits[-1], max(waits[1:-2], key=lambda one: one.token_s)
    hop, one = worst.token_s - plain.token_s, max(bare[1:-2], key=lambda row: row.token_s)
    numbers = {"plain s": plain.token_s, "with a switch s": worst.token_s, "tcp s": slow.token_s, "syncs": count,
               "tcp on the same wire s": wire.token_s, "hop s": hop, "bare plain s": bare[0].token_s,
               "bare hop s": one.token_s - bare[0].token_s, "bare tcp s": bare[-2].token_s,
               "bare tcp on the same wire s": bare[-1].token_s}
    return Answer(
        f"No: a switch adds {units.duration(hop)} to the {units.duration(plain.token_s)} that a token waits. What "
        f"makes toast of it is software: over TCP it is {units.duration(slow.token_s)}.",
        (f"{model.name} waits for {count} sync points a token over {n} cards, one to a machine. A switch passes a "
         f"message on in {_range([each.latency_s for each in switches])}; sending it takes "
         f"{units.duration(link.latency_s)} from program to program as it is. A stack of sockets and interrupts takes "
         f"{units.duration(stack.latency_s)} a message, on whatever wire: the same rate as {link.name} with that "
         f"latency would still be {units.duration(wire.token_s)} a token.",
         f"Right is that latency decides, not bandwidth. But inside an 8-GPU machine the cards already talk through a "
         f"switch, NVSwitch, at about {units.duration(nv.latency_s)} a pass. Switches hurt when many talk at once and "
         "wait in their queues, which no number here has in it."),
        (Table(f"The sync points of a token ({LIBRARY})", HEADS, tuple(each.row() for each in waits), (1, 2, 3, 4)),
         Table(f"{count} all-reduces of {units.both(payload)} over {n} ranks ({BARE})", (
             "link", "algorithm", "messages in a row", "once", "a token"),
             tuple((row.link, row.algorithm, f"{row.messages}", units.duration(row.once_s),
                    units.duration(row.token_s)) for row in bare), (2, 3, 4))),
        (f"A bare link: {count} · messages · (α + switch) + bytes. With {one.messages} messages in a row "
         f"{count} · {one.messages} · {units.duration(max(each.latency_s for each in switches))} = "
         f"{units.duration(one.token_s - bare[0].token_s)} more. A library's messages are more, or others.", MODELED),
        sources(model, link, stack, switches, nv), floats(numbers))


def _behind(link: Link, one: Switch) -> Link:
    """The link with a switch on the way."""
    return replace(link, name=f"{link.name} + {one.name}", latency_s=link.latency_s + one.latency_s)


def _range(values: list[float]) -> str:
    low, high = units.duration(min(values)), units.duration(max(values))
    return low if low == high else f"{low} to {high}"


QUESTIONS = (
    Question("sync-cost", "What does one sync point cost on each link?", sync_point_cost, (),
             ("model", "machine", "devices", "link", "batch")),
    Question("inside-a-machine", "Must the right data travel over the right link, and why stay inside 640 GB?",
             inside_a_machine, ("C14",), ("model", "machine", "devices", "link", "between", "batch")),
    Question("switch", "RDMA is fast, but with a switch in between you are toast?", switch, ("C17",),
             ("model", "devices", "link", "batch")),
)
