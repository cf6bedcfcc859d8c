"""`minitp plan check`: tables of what was predicted beside what was measured."""
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from minitp.comm import Communicator
from minitp.commands.plan.tables import table
from minitp.plan import units
from minitp.plan.catalogue import THIS, machine, this_file
from minitp.plan.check import GOAL, Compared, Comparison, comparison
from minitp.plan.check.held import Held
from minitp.plan.check.pass_times import PassCompared
from minitp.plan.machine import Machine
from minitp.trace.file import Trace
from minitp.trace.wording import plain, size

NOT_CALIBRATED = 2


def described(name: str) -> Machine:
    """The machine's description; where this one has none yet it is said how to get it, and the exit code is 2."""
    if name == THIS and this_file() is None:
        Console(stderr=True).print("minitp: there is no description of this machine yet: `minitp plan calibrate` "
                                   "measures one (half a minute). --machine takes another", highlight=False)
        raise typer.Exit(NOT_CALIBRATED)
    return machine(name)


def check_trace(file: Path, found: Machine, as_json: bool) -> int:
    """0 where counts, bytes and order are as predicted (and memory, where the trace has it), else 1."""
    compared = comparison(Trace.read(file), found)
    if as_json:
        print(json.dumps({"trace": file.name, "machine": found.name, **compared.to_plain()}))
    else:
        show(compared, found, Console())
    return 0 if compared.exact else 1


def show(compared: Comparison, found: Machine, console: Console) -> None:
    """The tables, then what differs and what to know."""
    console.print(collectives_table(compared.rows, "Collectives of each rank"))
    if compared.passes:
        console.print(passes_table(compared.passes))
    if compared.memory:
        console.print(memory_table(compared.memory))
    within, known = compared.within
    covered = f"times of {within} of {known} kinds are within the largest error or the spread stated for them"
    for line in (*compared.notes, *([covered] if known else [])):
        _say(console, line)
    total = sum(row.predicted for row in compared.rows)
    if compared.exact:
        _say(console, f"all {total:,} collectives of each rank are as predicted, in order and to the byte"
             + (", and so is the memory" if compared.memory else "")
             + f"; {times_told(compared.rows, called(found))}")
    else:
        _say(console, "the run differs from what was predicted:")
        for line in compared.differences:
            _say(console, f"  {line}")
        for held in (row for row in compared.memory if not row.exact):
            _say(console, f"  rank {held.rank}, {plain(held.kind, 30)}: {held.planned:,} B planned, {held.held:,} held")


def _say(console: Console, line: str) -> None:
    console.print(f"minitp: {line}", highlight=False, markup=False, soft_wrap=True)


def collectives_table(rows: Iterable[Compared], title: str, counts: bool = True) -> Table:
    """Predicted, modeled and measured in columns of their own."""
    names = ["collective", "payload", *(["pre-\ndicted", "re-\ncorded"] if counts else []), "modeled", "stated\nerror",
             "by", "measured,\nmedian", "modeled /\nmeasured"]
    made = table(*names, right=[n for n, name in enumerate(names) if name not in ("collective", "by")], title=title,
                 whole=[n for n, name in enumerate(names) if name != "by"],
                 caption="measured: from when the last rank is there, lower quartile and median. stated error: the "
                         "table's at sizes that are in none, median and largest; +: the spread of one size's times, "
                         "which may jump between two levels. –: nobody waited for a byte, as where a gather's root has "
                         "all of it")
    made.padding = (0, 1, 0, 0)                    # a narrow terminal has room for all of it
    for row in rows:
        have = f"{row.recorded:,}" if row.exact else f"[red]{row.recorded:,}[/red]"
        made.add_row(plain(row.op, 30), size(row.payload), *([f"{row.predicted:,}", have] if counts else []),
                     _time(row.modeled_s), "" if row.stated is None else
                     f"{row.stated.median:.0%}, {row.stated.worst:.0%}\n+{row.stated.spread:.0%}", row.by,
                     f"{_moved(row.measured_s)}\n{_moved(row.median_s)}".strip(),
                     "" if row.ratio is None else f"{row.ratio:.2g}")
    return made


def called(found: Machine) -> str:
    """A machine in a sentence; `this` is one whose description calibrate wrote."""
    when = plain(str(found.measured.get("created", ""))[:10])
    name = "this machine" if found.name == THIS else plain(found.name, 40)
    return f"{name}, calibrated on {when}" if when else name


def times_told(rows: Iterable[Compared], machine: str) -> str:
    """How the modeled times lie to the measured ones: exact counts say nothing of them."""
    ratios = sorted(row.ratio for row in rows if row.ratio)
    if not ratios:
        return f"times have no model on {machine}"
    near = all(abs(ratio - 1) <= GOAL for ratio in ratios)
    found = f"{ratios[0]:.2f}" if len(ratios) == 1 else f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
    return (f"times are {'within' if near else 'not all within'} {GOAL:.0%} of what the model of {machine} gives: "
            f"modeled / measured is {found}")


def _moved(seconds: float | None) -> str:
    """A collective's time; where no rank waited for anything its time is 0, and no time at all."""
    return "–" if seconds == 0 else _time(seconds)


def _time(seconds: float | None) -> str:
    return "" if seconds is None else units.duration(seconds)


def passes_table(rows: Iterable[PassCompared]) -> Table:
    """One line for each part of a token, a prompt or a step."""
    made = table("", "modeled", "stated error", "measured", "modeled / measured", right=(1, 2, 3, 4),
                 title="Where the time goes",
                 caption="measured: lower quartile of each, and the median of all. stated error: that of two other "
                         "models' tokens when this machine was calibrated, median and largest. ≥: a lower bound, as "
                         "norms, Python or the optimizer aren't in it")
    for row in rows:
        least = "≥ " if row.lower_bound and row.modeled_s is not None else ""
        made.add_row(f"{row.unit} ({row.count})", least + _time(row.modeled_s),
                     "" if row.stated is None else f"{row.stated.median:.0%}, {row.stated.worst:.0%}",
                     f"{_time(row.measured_s)}, {_time(row.measured_median_s)}", _over(row.modeled_s, row.measured_s))
        made.add_row("  weights and products", _time(row.modeled_computing_s), "", "", "")
        made.add_row("  norms, softmax and Python", "not modeled" if row.modeled_overhead_s is None else _time(
            row.modeled_overhead_s), "", "", "")
        made.add_row("  both: computing", least + _time(row.modeled_busy_s), "", _time(row.measured_computing_s), _over(
            row.modeled_busy_s, row.measured_computing_s))
        made.add_row("  collectives", _time(row.modeled_collectives_s), "", _time(row.measured_collectives_s), _over(
            row.modeled_collectives_s, row.measured_collectives_s))
        made.add_row("  waiting for one another", "not modeled", "", _time(row.waiting_s), "")
    return made


def _over(one: float | None, other: float | None) -> str:
    return f"{one / other:.2f}" if one is not None and other else ""


def memory_table(rows: Iterable[Held]) -> Table:
    """Planned beside held, to the byte."""
    made = table("rank", "kind", "planned", "held", right=(0, 2, 3), title="Memory of each rank")
    for row in rows:
        made.add_row(str(row.rank), plain(row.kind, 30), f"{row.planned:,} B",
                     f"{row.held:,} B" if row.exact else f"[red]{row.held:,} B[/red]")
    return made


def check_collectives(group: Communicator, found: Machine, seconds: float, as_json: bool) -> None:
    """Run collectives now, on every rank; rank 0 prints how far the description is from them."""
    from minitp.plan.check.now import now
    compared = now(group, found, seconds=seconds)
    if compared is None:
        return
    if as_json:
        print(json.dumps({"machine": found.name, **compared.to_plain()}))
        return
    console = Console()
    console.print(collectives_table(compared.rows, f"Collectives run now on {group.size} ranks, at sizes that no table "
                                    "has", counts=False))
    for line in (*compared.notes, verdict(compared.rows)):
        _say(console, line)


def verdict(rows: Sequence[Compared]) -> str:
    """How many all-reduces are within the goal."""
    ratios: list[Any] = [(abs(row.ratio - 1), row.payload) for row in rows if row.op == "all_reduce" and row.ratio]
    if not ratios:
        return "no all-reduce was measured"
    within, worst = sum(off <= GOAL for off, _ in ratios), max(ratios)
    return (f"{within} of {len(ratios)} all-reduces of 4 B to 16 MiB are within {GOAL:.0%} of what was predicted; the "
            f"largest difference is {worst[0]:.0%}, at {size(worst[1])}")
