"""The verb `minitp lessons`: its options."""
from pathlib import Path
from typing import Annotated

import typer

from minitp.cli_options import opt

FOLDER = "minitp-lessons"


def lessons(
        lesson: Annotated[str | None, typer.Argument(metavar="[LESSON]", help="The one to open: 04, heads, a, puzzles; "
                                                     "left out: their README.", show_default=False)] = None,
        folder: Annotated[str, opt("Where to copy them to.", metavar="FOLDER")] = FOLDER,
        fresh: Annotated[bool, opt("Write minitp's own beside each file that you changed, as NAME.fresh.ipynb.",
                                   "--fresh")] = False,
        start: Annotated[bool, opt("Start JupyterLab there.", "--start/--no-start")] = True,
        browser: Annotated[bool, opt("Open it in a browser.", "--browser/--no-browser")] = True,
        list_: Annotated[bool, opt("Print what each lesson answers and how long it takes; copy nothing.",
                                   "--list")] = False) -> None:
    """Copy the lessons to a folder of yours and open them in Jupyter. What you changed there is never overwritten."""
    from minitp.commands.lessons import open_lessons, print_list
    from minitp.errors import ConfigError
    if list_:
        from rich.console import Console
        print_list(Console())
    elif not folder.strip():
        raise ConfigError(f"--folder has no name; leave it out for {FOLDER}, or give . for the folder you are in")
    else:
        open_lessons(Path(folder), lesson, fresh=fresh, start=start, browser=browser)
