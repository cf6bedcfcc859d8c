"""`minitp doctor`: is everything here that ranks need, and for each thing wrong the command that mends it.

What may hang or crash (MPI, a GPU's driver) is tried in a child process with a deadline. Nothing is changed.
"""
import json
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from minitp.doctor.finding import Finding, State
from minitp.doctor.machine import check_blas, check_cache, check_cores, check_gpu, check_temporary
from minitp.doctor.mpi import INSTALL, check_mpi
from minitp.doctor.packages import check_extras, check_minitp, check_python

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Finding", "as_data", "examine", "exit_code", "main", "show"]

Check = Callable[[], Finding | Iterable[Finding]]
CHECKS: tuple[Check, ...] = (check_python, check_minitp, check_mpi, check_cores, check_blas, check_gpu, check_cache,
                             check_temporary, check_extras)
_WORDS: dict[State, str] = {"ok": "ok", "note": "note", "warn": "WARN", "bad": "BAD"}
_COLORS: dict[State, str] = {"ok": "green", "note": "", "warn": "yellow", "bad": "bold red"}


def examine(checks: Iterable[Check] = CHECKS) -> Iterator[Finding]:
    """What each check finds, one after the other. A check that fails itself is a finding, too."""
    for check in checks:
        try:
            found = check()
            yield from [found] if isinstance(found, Finding) else found
        except Exception as error:                  # the report on a broken machine must not break
            yield Finding(check.__name__.removeprefix("check_"), "warn",
                          f"could not be checked: {type(error).__name__}: {error}")


def exit_code(findings: Iterable[Finding]) -> int:
    """1 if something is bad: ranks can't run here as they should."""
    return int(any(finding.state == "bad" for finding in findings))


def as_data(findings: Iterable[Finding]) -> dict[str, Any]:
    """The report as plain data, for `--json`."""
    import minitp
    rows = list(findings)
    return {"minitp": minitp.__version__, "ok": not exit_code(rows),
            "findings": [{"what": f.what, "state": f.state, "finding": f.finding, "mend": f.mend} for f in rows]}


def show(findings: Iterable[Finding], console: "Console") -> None:
    """A table, and below it each command on a line of its own, to be copied."""
    from rich.table import Table
    from rich.text import Text
    rows = list(findings)
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for f in rows:
        table.add_row(Text(_WORDS[f.state], _COLORS[f.state]), f.what, Text(f.finding))
    console.print(table)
    for title, states in (("To mend:", ("bad", "warn")), ("If wanted:", ("note",))):
        commands: dict[str, list[str]] = {}
        for f in rows:
            if f.state in states and f.mend:
                commands.setdefault(f.mend, []).append(f.what)
        if commands:
            console.print(f"\n{title}")
        for command, what in commands.items():
            console.print(f"  {command}    # {', '.join(what)}", soft_wrap=True, highlight=False, markup=False)
    console.print(f"\n{verdict(rows)}", markup=False, highlight=False)


def verdict(rows: Iterable[Finding]) -> str:
    """The last line."""
    bad = [f.what for f in rows if f.state == "bad"]
    if bad:
        return f"Not ready yet: {', '.join(bad)}."
    if any(f.what == "MPI library" and f.state == "warn" and f.mend == INSTALL for f in rows):
        return "Ready: ranks can be threads of one process (--ranks N); for processes install MPI as above."
    return "Ready: ranks can run here."


def main(as_json: bool = False) -> int:
    """Print the report; the exit code."""
    if as_json:
        rows = list(examine())
        print(json.dumps(as_data(rows), indent=2))
        return exit_code(rows)
    try:
        from rich.console import Console
    except ImportError:                             # the doctor works where little else does
        rows = list(examine())
        print("\n".join(f"{_WORDS[f.state]:5} {f.what}: {f.finding}" + (f"\n      {f.mend}" if f.mend else "")
                        for f in rows))
        return exit_code(rows)
    console = Console()
    with console.status("looking around …"):
        rows = list(examine())
    show(rows, console)
    return exit_code(rows)
