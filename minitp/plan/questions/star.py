"""A star of small nodes: why four of them beat eight, and what another algorithm would do."""
from dataclasses import replace

from minitp.plan import units
from minitp.plan.job import Inference, bytes_of
from minitp.plan.layout import Layout
from minitp.plan.links import Link
from minitp.plan.machine import Machine
from minitp.plan.model import PlannedModel
from minitp.plan.published import dllama
from minitp.plan.questions.base import Answer, Question, Table, WhatIf
from minitp.plan.questions.parts import MODELED, floats, sources
from minitp.plan.speed import decode
from minitp.trace.wording import plain

SMALL = "llama-2-7b"
PIS, NODE = "raspberry-pi-cluster", "RasPi4B"
NODES, POLICIES = (1, 2, 4, 8), ("star", "ring", "doubling")
WEIGHTS, BUFFERS = "q40", "q80"


MEASURED = Inference(prompt=4, new=4, activations="float32")
"""A few tokens, as the published times are means over short answers: the cache is next to nothing."""


def raspberry_pis(what: WhatIf) -> Answer:
    """Why 4 beat 8: distributed-llama's star, and what a ring or doubling would be."""
    model, dtype = what.the_model(SMALL), what.weights or WEIGHTS
    node, job = dllama.node(NODE), replace(MEASURED, weights=dtype)
    known = dllama.measured(node.name, model.name) if dtype == WEIGHTS else {}
    rows, numbers = _by_nodes(model, node, job, what, known)
    link: Link = what.the_machine(PIS).levels[0].link
    few, many = NODES[-2:]
    machine = what.the_machine(PIS)
    same = not (what.machine or what.link)
    return Answer(
        f"{_few_and_many(known, numbers, node.name)} Summed as minitp does it{_where(machine, same)}, {many} take "
        f"{units.duration(numbers[f'star {many}'])} through a star and {units.duration(numbers[f'doubling {many}'])} "
        f"by doubling, {few} {units.duration(numbers[f'star {few}'])} and "
        f"{units.duration(numbers[f'doubling {few}'])}: a model"
        f"{'' if same else ', to be compared with no measurement here'}.",
        (f"On {node.name}, distributed-llama {node.version} cuts every matrix by its outputs. The root sends inputs to "
         "each of n − 1 nodes and gathers each output, so what passes its link grows with n: "
         f"{units.both(numbers[f'moved {few}'])} a token with {few}, {units.both(numbers[f'moved {many}'])} with "
         f"{many}, while each node's share of the work halves.{_more_than_bytes(known, numbers)}",
         "Column cut then row cut needs two sums a layer and no gathers. Through a star each costs 2(n − 1) messages "
         f"at the root, by a ring 2(n − 1) in a row of 1/n each, by doubling lg n. On {link.name} a message costs "
         f"{units.duration(link.latency_s)} whatever its size{_few_messages(numbers, many)}."),
        (*([Table(f"A token of {model.name}, weights {dtype}: measured, by others", (
            "nodes", "a token", "inference", "transfer"), tuple(_measured(n, one) for n, one in known.items()),
            (0, 1, 2, 3))] if known else []),
         *_tables(f"A token of {model.name}, weights {dtype}, {job.context} tokens cached", rows, node.name, machine,
                  same)),
        ("Through the root, L layers, hidden size h, F feed-forward rows, kv numbers of a key: L(n − 1)(3h + F(n − "
         f"1)/n)·w sent and L(3h + 2·kv + F)(n − 1)/n·w received, w = {bytes_of(BUFFERS):g} B ({BUFFERS}), as in its "
         "README to 0.3 %. The fit is to the measured table, and off by "
         f"{units.percent(node.error)} at most; both are of {node.name} on 1 GbE and don't follow --machine or --link. "
         f"Measured were a few tokens, so as few are planned: {job.prompt} of a prompt and {job.new} new ones.",
         MODELED), sources(model, node, [one.source for one in known.values()], what.the_machine(PIS)), floats(numbers))


def _by_nodes(model: PlannedModel, node: dllama.Node, job: Inference, what: WhatIf,
              known: dict[int, dllama.Measured]) -> tuple[tuple[tuple[str, ...], ...], dict[str, float]]:
    """The modeled table, a row for each number of nodes, and its numbers."""
    c, rows, numbers = model.config, [], {f"measured {n}": one.token for n, one in known.items()}
    layers = dllama.Layers(c.layers, c.hidden, c.ffn, c.kv_heads * c.head_size)
    for n in NODES:
        fitted = dllama.token_seconds(node, layers, model.parameters - c.vocab * c.hidden, n, job.weights, BUFFERS)
        moved = dllama.transferred(node.version, layers, n, bytes_of(BUFFERS))
        ours = {policy: _token(model, job, what.the_machine(PIS, n), n, policy) for policy in POLICIES}
        rows.append((f"{n}", units.both(moved), units.duration(fitted),
                     *(units.duration(ours[policy]) for policy in POLICIES)))
        numbers |= {f"fitted {n}": fitted, f"moved {n}": moved, **{f"{p} {n}": value for p, value in ours.items()}}
    return tuple(rows), numbers


def _measured(n: int, one: dllama.Measured) -> tuple[str, ...]:
    return (f"{n}", *map(units.duration, (one.token, one.inference, one.transfer)))


def _few_and_many(known: dict[int, dllama.Measured], numbers: dict[str, float], node: str) -> str:
    """What was measured with 4 and with 8; what the fit says where nothing was."""
    few, many = NODES[-2:]
    measured = few in known and many in known
    slow, fast = (known[n].token if measured else numbers[f"fitted {n}"] for n in (many, few))
    told = (f"{'measured' if measured else 'by the fit to their other tables'} are {units.duration(fast)} with {few} "
            f"and {units.duration(slow)} with {many} {node}")
    return f"Because every byte passes the root: {told}." if slow > fast else f"They don't here: {told}."


def _where(machine: Machine, same: bool) -> str:
    """The machine that is modeled, where it isn't the one that was measured."""
    return "" if same else f" on devices of {plain(machine.name, 60)}"


def _few_messages(numbers: dict[str, float], n: int) -> str:
    return ", so few messages win" if numbers[f"doubling {n}"] < min(numbers[f"ring {n}"], numbers[f"star {n}"]) else (
        ", and yet the fewest messages don't win here")


def _tables(title: str, rows: tuple[tuple[str, ...], ...], node: str, machine: Machine, same: bool) -> list[Table]:
    """Modeled: the fitted nodes and the sums side by side where they are of the same machine, else apart."""
    theirs, ours = ("through the root", "their program, fitted"), tuple(f"as minitp sums, {one}" for one in POLICIES)
    if same:
        return [Table(f"{title} (a model)", ("nodes", *theirs, *ours), rows, (0, 1, 2, 3, 4, 5))]
    cut = 1 + len(theirs)
    return [Table(f"{title}, on {node} (a model)", ("nodes", *theirs), tuple(row[:cut] for row in rows), (0, 1, 2)),
            Table(f"{title}, on devices of {plain(machine.name, 60)} (a model)", ("nodes", *ours),
                  tuple((row[0], *row[cut:]) for row in rows), (0, 1, 2, 3))]


def _more_than_bytes(known: dict[int, dllama.Measured], numbers: dict[str, float]) -> str:
    """How bytes and times of transfer compare."""
    few, many = NODES[-2:]
    if few not in known or many not in known:
        return ""
    return (f" Transfer as measured takes {known[many].transfer / known[few].transfer:.1f} times as long for "
            f"{numbers[f'moved {many}'] / numbers[f'moved {few}']:.1f} times the bytes, so bytes alone don't explain "
            f"it: the root's messages pile up. The fit to their table gives {units.duration(numbers[f'fitted {few}'])} "
            f"and {units.duration(numbers[f'fitted {many}'])} in all.")


def _token(model: PlannedModel, job: Inference, machine: Machine, n: int, policy: str) -> float:
    return decode.token(model, Layout(tp=n), job, machine, policy=policy).seconds


QUESTIONS = (
    Question("raspberry-pis", "Why do 4 Raspberry Pis beat 8, and would another algorithm change it?", raspberry_pis,
             (), ("model", "machine", "link", "weights"), "Do 4 nodes beat 8, and would another algorithm change it?"),
)
