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
        (*([Table(f"A token of {model.name}, weights {dtype}: measured, by others", (
            "nodes", "a token", "inference", "transfer"), tuple(_measured(n, one) for n, one in known.items()),
            (0, 1, 2, 3))] if known else []),
         Table(f"A token of {model.name}, weights {dtype}, {job.context} tokens cached (a model)", (
            "nodes", "through the root", "their program, fitted", *(f"as minitp sums, {one}" for one in POLICIES)),
            rows, (0, 1, 2, 3, 4, 5))),
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
            f"it: the root's messages pile up. The fit to their table gives {units.duration(numbers[f'fitted {few}'])} "
            f"and {units.duration(numbers[f'fitted {many}'])} in all.")


def _token(model: PlannedModel, job: Inference, machine: Machine, n: int, policy: str) -> float:
    return decode.token(model, Layout(tp=n), job, machine, policy=policy).seconds


QUESTIONS = (
    Question("raspberry-pis", "Why do 4 Raspberry Pis beat 8, and would another algorithm change it?", raspberry_pis,
             (), ("model", "machine", "link", "weights")),
)
