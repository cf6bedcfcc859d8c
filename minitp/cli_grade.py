"""The verb `minitp grade`."""
from pathlib import Path
from typing import Annotated

import typer

from minitp.cli_options import opt


def grade(file: Annotated[Path, typer.Argument(help="A notebook (.ipynb) or script (.py) with functions that solve "
                                               "puzzles.")],
          seed: Annotated[list[int] | None, opt("Make the puzzles' worlds from this number; several may be given. "
                                                "Whoever knows it can try it first: keep it to yourself.", min=0,
                                                show_default="two that are drawn")] = None,
          timeout: Annotated[float, opt("Seconds for each cell, and for each attempt.", min=0.1, max=3600)] = 20.0,
          json: Annotated[bool, opt("Print one JSON object instead of a table.", "--json")] = False) -> None:
    """Grade the puzzles that somebody solved.

    The file's code runs with your rights, in an empty folder: foreign files belong into a container.
    Code that is out to deceive can forge points: read the code of a score that surprises you.
    """
    from minitp.commands.grade import grade as grade_file
    grade_file(file, seed or (), timeout, json)
