"""`minitp plan verify`: the tables, or one JSON object."""
import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from minitp.commands.plan.tables import table
from minitp.errors import ConfigError
from minitp.plan.verify.case import KINDS, Case, Unreadable, read_cases
from minitp.plan.verify.judge import Outcome, counts, verify
from minitp.trace.wording import plain

HEADS = {
    "formula": "formula: a closed form, which must land within the tolerance; looked up: a published table's own value",
    "known_disagreement": "known disagreement: published values that are known to be off. A planner that lands on one "
                          "has its error; `stays out` is right",
    "catalogue": "catalogue: looked up",
    "measured": "measured: no formula is exact; planned is an estimate or a bound, and there is no verdict",
    "": "unreadable: counted as misses",
}
SHOWN = 4
"""Cases told below a table for each assumption and for each input not needed; --json has all."""
TOLD: dict[str, str] = {"stays out": "published values known to be off, on none of which the planner lands: right",
                        "ratio": "estimates beside what was measured, judged by nobody"}
"""What a verdict means, where its word alone says little."""
STYLES = {"lands": "green", "looked up": "cyan", "stays out": "green", "as listed": "green", "ratio": "dim"}


def verify_file(path: Path, kind: str | None, only: Sequence[str], as_json: bool) -> bool:
    """Judge the cases of a file and print them; whether none was missed. ConfigError where there are none."""
    outcomes = verify(chosen(read_cases(path), kind, only))
    if as_json:
        print(json.dumps({"file": path.name, "cases": [outcome.to_plain() for outcome in outcomes],
                          "counts": counts(outcomes), "misses": sum(outcome.missed for outcome in outcomes),
                          "by_accuracy": sum(outcome.by_accuracy for outcome in outcomes)}))
    else:
        console = Console(highlight=False)
        for group in (*KINDS, ""):
            print_kind([outcome for outcome in outcomes if outcome.kind == group], group, console)
        if only:
            for outcome in outcomes:
                print_case(outcome, console)
        print_end(outcomes, console)
    return not any(outcome.missed for outcome in outcomes)


def chosen(rows: Sequence[Case | Unreadable], kind: str | None, only: Sequence[str]) -> list[Case | Unreadable]:
    """The rows asked for; one that can't be read stays in, whatever its kind. ConfigError where nothing is left."""
    kept = [row for row in rows if kind is None or not isinstance(row, Case) or row.kind == kind]
    if missing := sorted(set(only) - {row.id for row in rows}):
        raise ConfigError(f"no case is called {plain(missing[0], 60)!r}; the file's first is {rows[0].id!r}")
    kept = [row for row in kept if not only or row.id in only]
    if not kept:
        raise ConfigError(f"the file has no case of the kind {kind}")
    return kept


def print_kind(outcomes: Sequence[Outcome], kind: str, console: Console) -> None:
    """One table: the cases of a kind, under the names of their quantities."""
    if not outcomes:
        return
    console.print(Text(HEADS[kind], "bold"))
    made = table("case", "published", "planned", "unit", "apart", "verdict", right=(1, 2, 4), whole=(1, 2, 4, 5))
    seen = ""
    for outcome in sorted(outcomes, key=lambda outcome: first_of(outcomes, outcome.quantity)):
        if outcome.quantity != seen:
            seen = outcome.quantity
            made.add_row(Text(plain(seen, 60), "italic"))
        marks = "¹" * bool(outcome.assumed) + "²" * outcome.by_accuracy + "³" * bool(outcome.unused)
        verdict = Text(f"{outcome.verdict} {marks}".strip(), STYLES.get(outcome.verdict, "bold red"))
        if outcome.verdict == "ratio":
            verdict = Text(f"{times(outcome.ratio or 0.0)} × {marks}".strip(),
                           "bold red" if outcome.suspicious else "dim")
        made.add_row("  " + plain(outcome.id, 60), figure(outcome.published), figure(outcome.planned),
                      plain(outcome.unit.split("(")[0].strip() or outcome.unit, 14), apart(outcome), verdict)
    console.print(made)
    print_footnotes(outcomes, console)
    console.print()


def times(ratio: float) -> str:
    """0.68, 12.50, 5e-12: no ratio looks like nothing."""
    return f"{ratio:.2f}" if 0.01 <= abs(ratio) < 1000 else f"{ratio:.2g}"


def print_footnotes(outcomes: Sequence[Outcome], console: Console) -> None:
    """What the values depend on beside the inputs, which margin was used, and which inputs weren't: with the cases."""
    leaning: dict[str, list[str]] = {}
    unused: dict[str, list[str]] = {}
    for outcome in outcomes:
        for what in outcome.assumed:
            leaning.setdefault(what, []).append(outcome.id)
        for key in outcome.unused:
            unused.setdefault(key, []).append(outcome.id)
    print_cases_of("¹ assumed, as no input tells:", leaning, console)
    if any(outcome.by_accuracy for outcome in outcomes):
        console.print(Text("² the row's tolerance is as wide as its disagreement: held to the formula's accuracy, "
                           + ", ".join(f"{plain(outcome.id, 60)} {100 * (outcome.margin or 0):g} %"
                                       for outcome in outcomes if outcome.by_accuracy), "dim"), soft_wrap=True)
    print_cases_of("³ given, and not needed by the formula:", unused, console)


def print_cases_of(head: str, found: dict[str, list[str]], console: Console) -> None:
    """A line for each thing, with the first of its cases; nothing where there are none."""
    if found:
        console.print(Text(head, "dim"))
    for what, ids in found.items():
        shown = ", ".join(plain(name, 60) for name in ids[:SHOWN]) + (f" and {len(ids) - SHOWN} more"
                                                                     if len(ids) > SHOWN else "")
        console.print(Text(f"  {plain(what, 200)}: {shown}", "dim"), soft_wrap=True)


def first_of(outcomes: Sequence[Outcome], quantity: str) -> int:
    """Where a quantity comes first in the file: its cases are shown together there."""
    return next(at for at, outcome in enumerate(outcomes) if outcome.quantity == quantity)


def print_case(outcome: Outcome, console: Console) -> None:
    """One case in full: how its value follows."""
    console.print(Text(f"{outcome.id}: {plain(outcome.model, 60)}", "bold"))
    lines = {"source": outcome.source, "planned by": outcome.formula, "note of the file": outcome.note,
             "assumed": "; ".join(outcome.assumed),
             "margin": margin(outcome), "inputs not needed": ", ".join(outcome.unused), "why not": outcome.reason}
    for head, text in lines.items():
        if text:
            console.print(Text(f"  {head}: {plain(text, 600)}"), soft_wrap=True)
    console.print()


def margin(outcome: Outcome) -> str:
    """Within which published and planned are the same, and whose margin that is."""
    if outcome.margin is None:
        return ""
    whose = "the formula's accuracy" if outcome.by_accuracy else "the row's tolerance"
    return f"{100 * outcome.margin:g} %, {whose}"


def print_end(outcomes: Sequence[Outcome], console: Console) -> None:
    """The sums, and every miss with its reason."""
    for kind, row in counts(outcomes).items():
        mine = sum(outcome.by_accuracy for outcome in outcomes if outcome.kind == kind)
        console.print(Text(f"{kind.replace('_', ' ')}: "
                           + ", ".join(f"{number} {TOLD.get(verdict, verdict)}" for verdict, number in row.items())
                           + (f" ({mine} of them told apart by the formula's accuracy: their tolerance is as wide as "
                              "their error)" if mine else "")), soft_wrap=True)
    for outcome in outcomes:
        if outcome.suspicious:
            console.print(Text(f"suspicious: line {outcome.line}, {plain(outcome.id, 60)}: planned "
                               f"{figure(outcome.planned)}, measured {figure(outcome.published)} "
                               f"{plain(outcome.unit, 24)}, {times(outcome.ratio or 0.0)} times: is an input in "
                               "another unit than its name says?", "bold red"), soft_wrap=True)
    missed = [outcome for outcome in outcomes if outcome.missed]
    console.print(Text(f"{len(outcomes)} cases, {len(missed)} missed", "bold red" if missed else "bold green"))
    for outcome in missed:
        why = outcome.reason or (f"planned {figure(outcome.planned)}, published {figure(outcome.published)} "
                                 f"{plain(outcome.unit, 24)}, tolerance {100 * (outcome.margin or 0):g} %")
        console.print(Text(f"  line {outcome.line}, {plain(outcome.id, 60)}: {outcome.verdict}: {plain(why, 400)}"),
                      soft_wrap=True)


def figure(value: float | None) -> str:
    """Five digits at the least; whole numbers in full where they are short."""
    if value is None:
        return "–"
    whole = value == int(value) or abs(value) >= 1e4
    return f"{value:,.0f}" if whole and abs(value) < 1e7 else f"{value:.5g}"


def apart(outcome: Outcome) -> str:
    """In percent of the published value."""
    if outcome.difference is None:
        return ""
    percent = 100 * outcome.difference
    return f"{percent:+.2f} %" if abs(percent) < 1000 else f"{percent:+.2g} %"
