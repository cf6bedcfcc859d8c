"""Of networks: a sync point on each link, why tensor parallelism stays in a machine, a switch, a star of small "
"nodes."""
from dataclasses import replace

from minitp.plan import catalogue, network, units
from minitp.plan.job import Inference, Training
from minitp.plan.layout import Layout
from minitp.plan.links import LINKS
from minitp.plan.machine import Machine
from minitp.plan.model import PlannedModel
from minitp.plan.network import curve, sync_cost
from minitp.plan.network.sync_cost import SyncRow
from minitp.plan.questions.base import Answer, Question, Table, WhatIf
from minitp.plan.questions.parts import MODELED, floats, gb, several, some, sources
from minitp.plan.speed import decode, step, traffic

MACHINE, MIDDLE, SMALL, GPT3 = "8xa100-80", "llama-2-70b", "llama-2-7b", "gpt-3-175b"
RANKS = (2, 4, 8)
TCP, RDMA = "ethernet-10g", "ib-hdr"


def sync_point_cost(what: WhatIf) -> Answer:
    """What one all-reduce takes on each link."""
    model, tokens = what.the_model(MIDDLE), what.batch or 1
    payload, count = curve.sync_point(model, tokens)[1], curve.sync_points(model)
    links = (catalogue.link(what.link), *LINKS) if what.link else LINKS
    ranks = (several(what.devices),) if what.devices else RANKS
    rows = sync_cost.on_links(payload, count, ranks, links)
    machine = what.the_machine(MACHINE)
    members = min(8, machine.devices)
    policy = "nccl" if machine.device.kind == "gpu" else "best"
    own = network.price("all_reduce", payload, machine.meeting(members), machine, policy=policy)
    numbers = {"payload": payload, "syncs": count, "library s": own.seconds}
    numbers |= {f"{row.link} {row.ranks} {row.algorithm}": row.once_s for row in rows}
    slow = max(rows, key=lambda row: row.once_s)
    fast = min(rows, key=lambda row: row.once_s)
    half = max((row.seconds for row in own.alternatives), default=own.seconds)
    return Answer(
        f"It waits, it doesn't carry: {units.both(payload)} take from {units.duration(fast.once_s)} ({fast.link}, "
        f"{fast.ranks} ranks) to {units.duration(slow.once_s)} ({slow.link}, {slow.ranks}, {slow.algorithm}), nearly "
        "all of it latency.",
        (f"A sync point of {model.name} with {some(tokens, 'token')} at once sums {units.both(payload)}, and a pass "
         f"has {count}. On such sizes the number of messages that follow one another counts: recursive doubling "
         "needs lg p, a ring 2(p − 1). For training's megabytes it is the other way round, as the ring sends the "
         "fewest bytes.",
         f"Libraries have costs of their own. NCCL's own model for {members} cards of {machine.name} says "
         f"{units.duration(own.seconds)} ({own.algorithm}); its other ways up to {units.duration(half)}. A benchmark "
         "that starts each call by itself shows two to three times that; kernels started as one graph come close."),
        (Table(f"An all-reduce of {units.both(payload)} (a model: α and β of the link)", (
            "link", "ranks", "algorithm", "messages in a row", "once", f"{count} times, a token"),
            tuple(_sync_row(row) for row in rows), (1, 3, 4, 5)),),
        ("Once = messages · α + bytes on the longest path · β: ring 2(p − 1)·α + 2n(p − 1)/p·β, doubling lg p·(α + nβ) "
         "(Thakur, Rabenseifner & Gropp 2005).", MODELED), sources(model, links), floats(numbers))


def _sync_row(row: SyncRow) -> tuple[str, ...]:
    return (row.link, f"{row.ranks}", row.algorithm, f"{row.messages}", units.duration(row.once_s),
            units.duration(row.token_s))


# --- inside a machine -----------------------------------------------------------------------------------------------


def inside_a_machine(what: WhatIf) -> Answer:
    """C14."""
    model, trained = what.the_model(MIDDLE), what.the_model(GPT3)
    machine = what.the_machine(MACHINE)
    payload, layers = curve.sync_point(model, what.batch or 1)[1], 2 * model.config.layers
    inside = machine.levels[0].link
    links = (replace(inside, name=f"{inside.name} (inside)"), *LINKS[1:])
    n = several(machine.per_machine)
    rows = sync_cost.on_links(payload, layers, (n,), links)
    best = {row.link: row.token_s for row in sorted(rows, key=lambda row: -row.token_s)}
    numbers = {"all-reduces": layers, "payload": payload}
    numbers |= {f"{row.link} {row.algorithm}": row.token_s for row in rows}
    steps = _placements(trained, machine, what)
    numbers |= {f"{name} {what_of}": value for name, time, sent in steps
                for what_of, value in (("step s", time.seconds), ("between", sent))}
    reading = decode.token(model, Layout(tp=n), Inference(), machine).memory_s
    numbers["reading s"] = reading
    slowest, fastest = max(best, key=lambda link: best[link]), min(best, key=lambda link: best[link])
    (_, near, near_sent), (_, far, far_sent) = steps
    return Answer(
        f"Right: {layers} all-reduces a token over {n} ranks take {units.duration(best[fastest])} on {fastest} and "
        f"{units.duration(best[slowest])} on {slowest}. So tensor parallelism stays inside a machine, pipelines and "
        "data parallelism go between.",
        (f"{model.name}: two sums a layer, {units.both(payload)} each, one after the other; the weights are read in "
         f"{units.duration(reading)} meanwhile. What is lost to a slower link is latency, not bytes: bandwidth "
         "doesn't buy it back.",
         f"Training shows the bytes. {trained.name} on {some(machine.devices * TWO, 'card')}: with tensor parallelism "
         f"inside each machine and a pipeline between, a card sends {units.both(near_sent)} through its port to the "
         f"other machine in a step, and the step takes {units.duration(near.seconds)}; laid the other way, with tensor "
         f"parallelism across both, {units.both(far_sent)} and {units.duration(far.seconds)}.",
         "ZeRO cuts states over replicas to make a model fit; it does not spare the network, and stage 3 moves "
         "parameters: `minitp plan ask zero`."),
        (Table(f"{layers} all-reduces of {units.both(payload)} over {n} ranks (a model)", (
            "link", "algorithm", "once", "a token"), tuple((row.link, row.algorithm, units.duration(row.once_s),
                                                           units.duration(row.token_s)) for row in rows), (2, 3)),
         Table(f"A training step of {trained.name} (a model; whether it fits isn't asked)", (
             "layout", "between machines, GB (GiB) a card", "step"),
             tuple((name, gb(sent), units.duration(time.seconds)) for name, time, sent in steps), (1, 2))),
        (f"Ring: {layers} · (2(p − 1)·α + 2n(p − 1)/p·β), doubling: {layers} · lg p·(α + nβ), p = {n}.", MODELED),
        sources(model, machine, LINKS), floats(numbers))


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
    model, n = what.the_model(MIDDLE), several(what.devices or 8)
    payload, count = curve.sync_point(model, what.batch or 1)[1], curve.sync_points(model)
    link, stack = catalogue.link(what.link or RDMA), catalogue.link(TCP)
    switches = {name: one for name, one in catalogue.switches().items() if one.latency_s < link.latency_s + 1e-6}
    rows = sync_cost.switch_hop(payload, count, n, link, stack, [one.latency_s for one in switches.values()])
    plain_row, added, slow = rows[0], rows[1:-1], rows[-1]
    worst = max(added, key=lambda row: row.token_s)
    same_wire = replace(stack, name=f"{link.name}'s wire with TCP's latency", bytes_per_s=link.bytes_per_s)
    wire = sync_cost.switch_hop(payload, count, n, same_wire, stack, ())[0]
    numbers = {"plain s": plain_row.token_s, "with a switch s": worst.token_s, "tcp s": slow.token_s, "syncs": count,
               "tcp on the same wire s": wire.token_s, "hop s": worst.token_s - plain_row.token_s}
    nv = catalogue.switches()["nvswitch"]
    return Answer(
        f"No: a switch adds {units.duration(worst.token_s - plain_row.token_s)} to a token's "
        f"{units.duration(plain_row.token_s)} of waiting. What makes toast of it is software: over TCP it is "
        f"{units.duration(slow.token_s)}.",
        (f"{model.name} waits for {count} sync points a token, each of {worst.messages} messages in a row over {n} "
         f"ranks. A switch passes a message on in {_range([one.latency_s for one in switches.values()])}; sending it "
         f"takes {units.duration(link.latency_s)} from program to program as it is. A stack of sockets and "
         f"interrupts takes {units.duration(stack.latency_s)} a message, on whatever wire: the same rate as "
         f"{link.name} with that latency would still be {units.duration(wire.token_s)} a token.",
         f"Right is that latency decides, not bandwidth. But inside an 8-GPU machine the cards already talk through a "
         f"switch, NVSwitch, at about {units.duration(nv.latency_s)} a pass. Switches hurt when many talk at once and "
         "wait in their queues, which no number here has in it."),
        (Table(f"{count} sync points of {units.both(payload)} over {n} ranks (a model)", (
            "link", "algorithm", "messages in a row", "a sync point", "a token"),
            tuple((row.link, row.algorithm, f"{row.messages}", units.duration(row.once_s), units.duration(row.token_s))
                  for row in (*rows, wire)), (2, 3, 4)),),
        (f"Token = {count} · messages · (α + switch) + bytes. With {worst.messages} messages: "
         f"{count} · {worst.messages} · {units.duration(max(one.latency_s for one in switches.values()))} = "
         f"{units.duration(worst.token_s - plain_row.token_s)} more.", MODELED),
        sources(model, link, stack, list(switches.values()), nv), floats(numbers))


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
