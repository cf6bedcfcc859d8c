"""Of networks: a sync point on each link, why tensor parallelism stays in a machine, a switch, a star of small "
"nodes."""
from dataclasses import replace

from minitp.plan import catalogue, network, units
from minitp.plan.job import Inference, Training, bytes_of
from minitp.plan.layout import Layout
from minitp.plan.links import LINKS, Link
from minitp.plan.machine import Machine
from minitp.plan.model import PlannedModel
from minitp.plan.network import curve, sync_cost
from minitp.plan.network.sync_cost import SyncRow
from minitp.plan.published import dllama
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


# --- a star ---------------------------------------------------------------------------------------------------------

PIS, NODE = "raspberry-pi-cluster", "RasPi4B"
NODES, POLICIES = (1, 2, 4, 8), ("star", "ring", "doubling")
WEIGHTS, BUFFERS = "q40", "q80"


def raspberry_pis(what: WhatIf) -> Answer:
    """Why 4 beat 8: distributed-llama's star, and what a ring or doubling would be."""
    model, dtype = what.the_model(SMALL), what.weights or WEIGHTS
    c, node = model.config, dllama.node(NODE)
    layers = dllama.Layers(c.layers, c.hidden, c.ffn, c.kv_heads * c.head_size)
    job = Inference(weights=dtype, activations="float32")
    known = dllama.measured(node.name, model.name) if dtype == WEIGHTS else {}
    rows, numbers = [], dict[str, float]()
    for n in NODES:
        fitted = dllama.token_seconds(node, layers, model.parameters - c.vocab * c.hidden, n, dtype, BUFFERS)
        moved = dllama.transferred(node.version, layers, n, bytes_of(BUFFERS))
        ours = {policy: _token(model, job, what.the_machine(PIS, n), n, policy) for policy in POLICIES}
        rows.append((f"{n}", _measured(known.get(n)), units.duration(fitted), units.both(moved),
                     *(units.duration(ours[policy]) for policy in POLICIES)))
        numbers |= {f"fitted {n}": fitted, f"moved {n}": moved, **{f"{p} {n}": value for p, value in ours.items()}}
    numbers |= {f"measured {n}": one.token for n, one in known.items()}
    link: Link = what.the_machine(PIS).levels[0].link
    few, many = NODES[-2:]
    return Answer(
        f"Because every byte passes the root{_few_and_many(known)}. Summed as minitp does it, {many} take "
        f"{units.duration(numbers[f'star {many}'])} through a star and {units.duration(numbers[f'doubling {many}'])} "
        f"by doubling, {few} {units.duration(numbers[f'doubling {few}'])}: a model.",
        (f"distributed-llama {node.version} cuts every matrix by its outputs. The root sends inputs to each of n − 1 "
         "nodes and gathers each output, so what passes its link grows with n: "
         f"{units.both(numbers[f'moved {few}'])} a token with {few}, {units.both(numbers[f'moved {many}'])} with "
         f"{many}, while each node's share of the work halves.{_more_than_bytes(known, numbers)}",
         "Column cut then row cut needs two sums a layer and no gathers. Through a star each costs 2(n − 1) messages "
         f"at the root, by a ring 2(n − 1) in a row of 1/n each, by doubling lg n. On {link.name} a message costs "
         f"{units.duration(link.latency_s)} whatever its size, so few messages win."),
        (Table(f"A token of {model.name}, weights {dtype}", (
            "nodes", "measured, published", "fitted to that", "through the root", "minitp: star", "ring", "doubling"),
            tuple(rows), (0, 1, 2, 3, 4, 5, 6)),),
        ("Root: L(n − 1)(3h + F(n − 1)/n)·w sent and L(3h + 2·kv + F)(n − 1)/n·w received, w = "
         f"{bytes_of(BUFFERS):g} B ({BUFFERS}), as in its README to 0.3 %. Measured: inference + transfer. The fit "
         f"is off by {units.percent(node.error)} at most; both are of {node.name} on 1 GbE and don't follow --machine "
         "or --link. The last three columns are a model.",
         MODELED), sources(model, node, [one.source for one in known.values()], what.the_machine(PIS)), floats(numbers))


def _measured(one: dllama.Measured | None) -> str:
    if one is None:
        return "–"
    return f"{units.duration(one.token)} ({units.duration(one.inference)} + {units.duration(one.transfer)})"


def _few_and_many(known: dict[int, dllama.Measured]) -> str:
    """What was measured with 4 and with 8."""
    few, many = NODES[-2:]
    if few not in known or many not in known:
        return ""
    return (f": measured are {units.duration(known[few].token)} with {few} and "
            f"{units.duration(known[many].token)} with {many}")


def _more_than_bytes(known: dict[int, dllama.Measured], numbers: dict[str, float]) -> str:
    """How bytes and times of transfer compare."""
    few, many = NODES[-2:]
    if few not in known or many not in known:
        return ""
    return (f" Transfer as measured takes {known[many].transfer / known[few].transfer:.1f} times as long for "
            f"{numbers[f'moved {many}'] / numbers[f'moved {few}']:.1f} times the bytes, so bytes alone don't explain "
            "it: the root's messages pile up. A fit with one rate for the link makes the two nearly equal.")


def _token(model: PlannedModel, job: Inference, machine: Machine, n: int, policy: str) -> float:
    return decode.token(model, Layout(tp=n), job, machine, policy=policy).seconds


QUESTIONS = (
    Question("sync-cost", "What does one sync point cost on each link?", sync_point_cost, (),
             ("model", "machine", "devices", "link", "batch")),
    Question("inside-a-machine", "Must the right data travel over the right link, and why stay inside 640 GB?",
             inside_a_machine, ("C14",), ("model", "machine", "devices", "link", "between", "batch")),
    Question("switch", "RDMA is fast, but with a switch in between you are toast?", switch, ("C17",),
             ("model", "devices", "link", "batch")),
    Question("raspberry-pis", "Why do 4 Raspberry Pis beat 8, and would another algorithm change it?", raspberry_pis,
             (), ("model", "machine", "link", "weights")),
)
