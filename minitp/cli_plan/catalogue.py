"""The verb `minitp plan catalogue`: what is known of models, devices, machines, links and published runs."""
from enum import StrEnum
from typing import Annotated

import typer

from minitp.cli_options import RECORD, opt


class Kind(StrEnum):
    models = "models"
    devices = "devices"
    machines = "machines"
    links = "links"
    runs = "runs"


def catalogue(
        kind: Annotated[Kind | None, typer.Argument(help="Which part; all of it where none is named.")] = None,
        word: Annotated[str, typer.Argument(metavar="[WORD]", help="Only names with this in them: llama, h100.")] = "",
        json: Annotated[bool, opt("Print a JSON object of plain numbers: bytes, seconds, FLOP/s.", "--json",
                                  panel=RECORD)] = False) -> None:
    """List models, devices, machines, links and published runs, each with who says so."""
    from rich.console import Console

    from minitp.commands.plan.catalogue import print_catalogue
    print_catalogue([part.value for part in ([kind] if kind else Kind)], word, as_json=json, console=Console())
