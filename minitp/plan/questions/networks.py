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
    walls = " and ".join(f"{level.link.name} {'inside' if at == 0 else 'between'}" for at, level in
                         enumerate(machine.levels[:2 if n > machine.per_machine else 1]))
    return Waiting(f"{walls} {machine.name}" if n <= machine.per_machine else f"{walls}, {machine.name}", n, time)


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
    bare = min(sync_cost.on_links(payload, count, (n,), (machine.levels[0].link,)), key=lambda row: row.once_s)
    numbers = {"payload": payload, "syncs": count, "library s": own.once_s, "library token s": own.token_s}
    numbers |= {f"{row.link} {row.ranks} {row.algorithm}": row.once_s for row in rows}
    numbers |= {f"{one.link} library": one.once_s for one in waits[1:]}
    return Answer(
        f"{_waits(own)}: {units.both(payload)} take {units.duration(own.once_s)} over {own.cards} cards "
        f"on {own.link}, {units.percent(own.time.latency_s / own.time.network_s)} of it latency, and the {count} of a "
        f"token {units.duration(own.token_s)}; on {slow.link} it is {units.duration(slow.once_s)} and "
        f"{units.duration(slow.token_s)}.",
        (f"A sync point of {model.name} with {some(tokens, 'token')} at once sums {units.both(payload)}, and a pass "
         f"has {count}, of which the last gathers logits. On small sizes the number of messages that follow one "
         "another counts: recursive doubling needs lg p of them over p ranks, a ring 2(p − 1). For training's "
         "megabytes it is the other way round, as the ring sends the fewest bytes.",
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


def _waits(one: Waiting) -> str:
    """What most of a sync point is."""
    return "It waits, it doesn't carry" if one.time.latency_s > one.time.network_s / 2 else (
        "It carries more than it waits")


# --- inside a machine -----------------------------------------------------------------------------------------------


def inside_a_machine(what: WhatIf) -> Answer:
    """C14."""
    model, trained = what.the_model(MIDDLE), what.the_model(GPT3)
    machine, tokens = what.the_machine(MACHINE), what.batch or 1
    payload, layers = curve.sync_point(model, tokens)[1], curve.sync_points(model) - 2
    n, within = several(machine.per_machine), machine.levels[0].link
    others = ((catalogue.link(what.between),) if what.between else ()) + LINKS[1:]
    rows = sync_cost.on_links(payload, layers, (n,), (replace(within, name=f"{within.name} (inside)"), *others))
    near = inside(model, tokens, machine, n)
    waits = [near, *across(model, tokens, machine, n, others)]
    far = waits[1] if what.between else max(waits[1:], key=lambda one: one.token_s)
    steps = _placements(trained, machine, what)
    numbers = {"all-reduces": layers, "payload": payload, "syncs": near.time.syncs, "inside s": near.token_s,
               "reading s": near.time.memory_s} | {f"{row.link} {row.algorithm}": row.token_s for row in rows}
    numbers |= {f"{one.link} library": one.token_s for one in waits[1:]}
    numbers |= {f"{name} {what_of}": value for name, time, sent in steps
                for what_of, value in (("step s", time.seconds), ("between", sent))}
    return Answer(
        f"{'Right' if far.token_s > near.token_s else 'Not by these links'}: the {near.time.syncs} sync points of a "
        f"token over {n} cards take {units.duration(near.token_s)} on {near.link} and {units.duration(far.token_s)} on "
        f"{far.link} between machines, {far.token_s / near.token_s:.3g} times as long. {_so(near, far)}",
        (f"{model.name}: {'one sum' if model.config.parallel_block else 'two sums'} a layer, {units.both(payload)} "
         f"each, one after the other; the weights are read in {units.duration(near.time.memory_s)} meanwhile. On "
         f"{far.link} {units.percent(far.time.latency_s / far.token_s)} of the wait is latency, which no "
         "bandwidth buys back.",
         _training_bytes(trained, machine, steps, what),
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


def _so(near: Waiting, far: Waiting) -> str:
    if far.token_s > near.token_s:
        return "So tensor parallelism stays inside a machine, pipelines and data parallelism go between."
    return "Where the link inside is no quicker, tensor parallelism may as well go between."


Placed = list[tuple[str, step.StepTime, float]]


def _training_bytes(model: PlannedModel, machine: Machine, steps: Placed, what: WhatIf) -> str:
    (_, near, near_sent), (_, far, far_sent) = steps
    link = _two(machine, what).levels[1].link
    return (f"Training shows the bytes. {model.name} on {some(machine.per_machine * TWO, 'card')} of two machines that "
            f"meet over {link.name}: with tensor parallelism "
            f"inside each machine and a pipeline between, a card sends {units.both(near_sent)} through its port to the "
            f"other machine in a step, and the step takes {units.duration(near.seconds)}; laid the other way, with "
            f"tensor parallelism across both, {units.both(far_sent)} and {units.duration(far.seconds)}.")


TWO = 2


def _two(machine: Machine, what: WhatIf) -> Machine:
    """Two such machines: a link between them that isn't known is slow Ethernet."""
    return machine.with_devices(TWO * machine.per_machine) if len(machine.levels) > 1 else replace(
        machine, levels=(machine.levels[0], replace(machine.levels[0], name="between", size=TWO,
                                                    link=catalogue.link(what.between or TCP))))


def _placements(model: PlannedModel, machine: Machine,
                what: WhatIf) -> list[tuple[str, step.StepTime, float]]:
    """A training on two machines with tensor parallelism inside, and across both: name, step, bytes between a card."""
    n, two = machine.per_machine, _two(machine, what)
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
    own = own_switch(link)
    same_wire = replace(stack, name=f"{link.name}'s wire with TCP's latency", bytes_per_s=link.bytes_per_s)
    links = [link, _behind(link, own), stack, same_wire]
    waits = across(model, tokens, catalogue.machine(MACHINE), n, links)
    bare = [*sync_cost.switch_hop(payload, count, n, link, stack, [own.latency_s]),
            sync_cost.switch_hop(payload, count, n, same_wire, stack, ())[0]]
    plain, behind, slow, wire = waits
    hop, one = behind.token_s - plain.token_s, bare[1]
    numbers = {"plain s": plain.token_s, "with a switch s": behind.token_s, "tcp s": slow.token_s, "syncs": count,
               "tcp on the same wire s": wire.token_s, "hop s": hop, "bare plain s": bare[0].token_s,
               "bare hop s": one.token_s - bare[0].token_s, "bare tcp s": bare[-2].token_s,
               "bare tcp on the same wire s": bare[-1].token_s}
    return Answer(
        f"{_toast(hop / plain.token_s)}: {own.name} adds {units.duration(hop) if hop > 0 else 'nothing'} to the "
        f"{units.duration(plain.token_s)} that a token waits on {link.name}, {units.percent(hop / plain.token_s)}. "
        f"{_software(plain, slow)}",
        (f"{model.name} waits for {count} sync points a token over {n} cards, one to a machine. A switch of "
         f"this kind, {own.name}, passes a message on in {units.duration(own.latency_s)}; sending it takes "
         f"{units.duration(link.latency_s)} from program to program as it is. A stack of sockets and interrupts takes "
         f"{units.duration(stack.latency_s)} a message, on whatever wire: the same rate as {link.name} with that "
         f"latency would be {units.duration(wire.token_s)} a token.",
         f"{_decides(plain)} Inside an 8-GPU machine the cards already talk through a "
         f"switch, NVSwitch, at about {units.duration(nv.latency_s)} a pass. Switches hurt when many talk at once and "
         "wait in their queues, which no number here has in it."),
        (Table(f"The sync points of a token ({LIBRARY})", HEADS, tuple(each.row() for each in waits), (1, 2, 3, 4)),
         Table(f"{count} all-reduces of {units.both(payload)} over {n} ranks ({BARE})", (
             "link", "algorithm", "messages in a row", "once", "a token"),
             tuple((row.link, row.algorithm, f"{row.messages}", units.duration(row.once_s),
                    units.duration(row.token_s)) for row in bare), (2, 3, 4))),
        (f"A bare link: {count} · messages · (α + switch) + bytes. With {one.messages} messages in a row "
         f"{count} · {one.messages} · {units.duration(own.latency_s)} = "
         f"{units.duration(one.token_s - bare[0].token_s)} more. A library's messages are more, or others.", MODELED),
        sources(model, link, stack, own, nv), floats(numbers))


def _behind(link: Link, one: Switch) -> Link:
    """The link with a switch on the way."""
    return replace(link, name=f"{link.name} + {one.name}", latency_s=link.latency_s + one.latency_s)


def own_switch(link: Link) -> Switch:
    """The kind of switch that such a link's cables end in; one given by its numbers is taken for Ethernet."""
    kinds, ethernet = catalogue.switches(), "ethernet" in link.name
    if link.kind in ("nvlink", "rdma") and not ethernet:
        return kinds["nvswitch" if link.kind == "nvlink" else "infiniband-switch"]
    return kinds["ethernet-1g-switch" if link.bytes_per_s <= SLOWEST else "ethernet-switch"]


SLOWEST = 1e9 / 8                           # bytes/s of a link whose switch is small: 1 Gb/s
MUCH = 0.25                                 # share of a wait from which on a switch is told to hurt


def _toast(share: float) -> str:
    """Whether a switch hurts."""
    return "No" if share < MUCH else "It hurts" if share < 1 else "Yes"


def _software(plain: Waiting, slow: Waiting) -> str:
    """What TCP is beside it."""
    if slow.token_s > plain.token_s:
        return (f"What makes toast of it is software: over TCP ({slow.link}) it is {units.duration(slow.token_s)}, "
                f"{slow.token_s / plain.token_s:.3g} times as long.")
    return (f"Over TCP ({slow.link}) it is {units.duration(slow.token_s)}, "
            f"{slow.token_s / plain.token_s:.3g} times as long.")


def _decides(plain: Waiting) -> str:
    """Latency or bandwidth."""
    share = plain.time.latency_s / plain.token_s
    told = f"{units.percent(share)} of the wait on {plain.link} is latency."
    return (f"Right is that latency decides, not bandwidth: {told}" if share > 1 / 2 else
            f"Here bandwidth decides as much or more: {told}")


QUESTIONS = (
    Question("sync-cost", "What does one sync point cost on each link?", sync_point_cost, (),
             ("model", "machine", "devices", "link", "batch")),
    Question("inside-a-machine", "Must the right data travel over the right link, and why stay inside 640 GB?",
             inside_a_machine, ("C14",), ("model", "machine", "devices", "link", "between", "batch"),
             "Must the right data travel over the right link, and why stay inside a machine?"),
    Question("switch", "RDMA is fast, but with a switch in between you are toast?", switch, ("C17",),
             ("model", "devices", "link", "batch"), "The link is fast, but with a switch in between you are toast?"),
)
