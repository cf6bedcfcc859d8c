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
    "formula": "formula: a closed form, which must land within the tolerance",
    "known_disagreement": "known disagreement: the published value is off, and the planner must not meet it",
    "catalogue": "catalogue: looked up",
    "measured": "measured: no formula is exact; planned is an estimate or a bound, and there is no verdict",
    "": "unreadable: counted as misses",
}
STYLES = {"lands": "green", "stays out": "green", "as listed": "green", "ratio": "dim"}


def verify_file(path: Path, kind: str | None, only: Sequence[str], as_json: bool) -> bool:
    """Judge the cases of a file and print them; whether none was missed. ConfigError where there are none."""
    outcomes = verify(chosen(read_cases(path), kind, only))
    if as_json:
        print(json.dumps({"file": path.name, "cases": [outcome.to_plain() for outcome in outcomes],
                          "counts": counts(outcomes), "misses": sum(outcome.missed for outcome in outcomes)}))
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
        verdict = Text(outcome.verdict, STYLES.get(outcome.verdict, "bold red"))
        if outcome.verdict == "ratio":
            verdict = Text(f"{outcome.ratio:.2f} ×", "dim")
        made.add_row("  " + plain(outcome.id, 60), figure(outcome.published), figure(outcome.planned),
                     plain(outcome.unit.split("(")[0].strip() or outcome.unit, 14), apart(outcome), verdict)
    console.print(made)
    console.print()


def first_of(outcomes: Sequence[Outcome], quantity: str) -> int:
    """Where a quantity comes first in the file: its cases are shown together there."""
    return next(at for at, outcome in enumerate(outcomes) if outcome.quantity == quantity)


def print_case(outcome: Outcome, console: Console) -> None:
    """One case in full: how its value follows."""
    console.print(Text(f"{outcome.id}: {plain(outcome.model, 60)}", "bold"))
    lines = {"source": outcome.source, "planned by": outcome.formula, "note of the file": outcome.note,
             "inputs not needed": ", ".join(outcome.unused), "why not": outcome.reason}
    for head, text in lines.items():
        if text:
            console.print(Text(f"  {head}: {plain(text, 600)}"), soft_wrap=True)
    console.print()


def print_end(outcomes: Sequence[Outcome], console: Console) -> None:
    """The sums, and every miss with its reason."""
    for kind, row in counts(outcomes).items():
        console.print(Text(f"{kind.replace('_', ' ')}: "
                           + ", ".join(f"{number} {verdict}" for verdict, number in row.items())))
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
