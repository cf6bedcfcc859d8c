"""The verb `minitp plan verify`."""
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from minitp.cli_options import opt


class Kind(StrEnum):
    formula = "formula"
    known_disagreement = "known_disagreement"
    catalogue = "catalogue"
    measured = "measured"


def verify(
        cases: Annotated[Path, typer.Argument(metavar="CASES.csv", show_default=False, help=(
            "A file with the columns case_id, kind, source, model, quantity, inputs (key=value;…), published_value, "
            "unit, tolerance, note."))],
        kind: Annotated[Kind | None, opt("Cases of this kind alone.")] = None,
        only: Annotated[list[str] | None, opt("The case of this id, told in full; may be given more than once.",
                                              metavar="ID")] = None,
        json: Annotated[bool, opt("Print one JSON object instead of tables.", "--json")] = False) -> None:
    """Plan every published value of a file: published, planned, difference, verdict. Exits 1 where one is missed."""
    from minitp.commands.plan.verify import verify_file
    if not verify_file(cases, kind.value if kind else None, only or [], json):
        raise typer.Exit(1)
