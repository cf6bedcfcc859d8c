"""`minitp lessons`: the lessons in a folder of the user's, and JupyterLab there."""
import json
import os
import re
import sys
from collections.abc import MutableMapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import minitp
from minitp.commands.lessons_copy import Copied, copy_lessons
from minitp.errors import ConfigError, FileFormatError, LaunchError
from minitp.files import replacing
from minitp.launcher.mpiexec import python_command
from minitp.trace.wording import count, plain

if TYPE_CHECKING:
    from rich.console import Console

_README = "README.md"
_SETTINGS = Path(minitp.__file__).parent / "lesson" / "jupyter"
_TITLE, _QUESTION = re.compile(r"^# (.+)", re.M), re.compile(r"^\*([^*]+)\*", re.M)
_MINUTES = re.compile(r"(\d+)\s+minutes")


@dataclass(frozen=True)
class Lesson:
    """A notebook and what its first cell says of it. minutes: None where it says none."""
    file: Path
    title: str
    question: str
    minutes: int | None

    @property
    def name(self) -> str:
        """What it is called on the command line: 02, a, puzzles."""
        head, _, rest = self.file.stem.partition("_")
        return head if rest else self.file.stem


def open_lessons(folder: Path, lesson: str | None = None, *, fresh: bool = False, start: bool = True,
                 browser: bool = True) -> None:
    """Copy the lessons to `folder`, say what was done, and become JupyterLab's server there.

      lesson   the one to open; None: the README
      fresh    write the lessons' own beside the files that the user changed
      start    False: only copy. Else this doesn't return
      browser  open JupyterLab in the user's browser

    Raises ConfigError for a lesson or a folder that can't be, SaveError where the folder may not be written to,
    LaunchError where there is no Jupyter: the lessons are copied nevertheless.
    """
    source, folder = source_folder(), folder.expanduser()
    chosen = None if lesson is None else find(lesson).file.name
    print("\n".join(told(folder, copy_lessons(source, folder, fresh=fresh))))
    there = folder.resolve()
    if not start:
        return
    if find_spec("jupyterlab") is None:
        raise LaunchError(f"the notebooks need JupyterLab: pip install 'minitp[lessons]'. The lessons are in {folder} "
                          "all the same, and each runs as a script, too: minitp run -n 3 02_two_cuts.py")
    if followed := follow(there):
        print(f"Made to follow the notebooks of the same name, which were changed elsewhere: {', '.join(followed)}.")
    _become_jupyter(there, chosen or _README, browser, source)


def follow(folder: Path) -> list[str]:
    """Let scripts follow notebooks that are newer: JupyterLab refuses to open a pair whose notebook is. Their names.

    A notebook that was changed elsewhere, in another editor, say, has newer cells than its script.
    """
    if find_spec("jupytext") is None:                      # JupyterLab then knows nothing of pairs
        return []
    return [notebook.with_suffix(".py").name for notebook in sorted(folder.glob("*.ipynb")) if _follows(notebook)]


def _follows(notebook: Path) -> bool:
    """Whether its script had to be written anew."""
    import jupytext
    script = notebook.with_suffix(".py")
    if not script.is_file() or script.is_symlink() or notebook.stat().st_mtime <= script.stat().st_mtime:
        return False
    try:
        book, beside = jupytext.read(notebook), jupytext.read(script)
    except ValueError:                                     # no notebook any more: JupyterLab says so where it is opened
        return False
    if [cell.source for cell in book.cells] == [cell.source for cell in beside.cells]:
        os.utime(script)
        return False
    with replacing(script) as output:
        output.write(jupytext.writes(book, "py:percent").encode())
    return True


def told(folder: Path, done: Copied) -> list[str]:
    """What was copied and what was not, in words."""
    lines = [f"The lessons are in {folder} ({count(len(done.written), 'file')} written)."]
    if done.kept:
        lines.append(f"Kept as you have changed them: {', '.join(done.kept)}.")
        if done.fresh:
            lines.append(f"Beside them, as minitp has them: {', '.join(done.fresh)}.")
        else:
            lines.append("With --fresh minitp's own are written beside yours, with another --folder all are copied "
                         "there.")
    if done.blocked:
        lines.append(f"Left alone, as a file or a link is where minitp has a folder: {', '.join(done.blocked)}. Once "
                     "it has another name, the folder is copied, too.")
    return lines


def _become_jupyter(folder: Path, shown: str, browser: bool, source: Path) -> None:
    environment = dict(os.environ)
    prepare(environment, source)
    address = f"/lab/tree/{quote(shown)}" if (folder / shown).is_file() else "/lab"
    command = [*python_command(), "-m", "jupyterlab", f"--ServerApp.root_dir={folder}",
               f"--LabApp.default_url={address}", *(() if browser else ("--no-browser",))]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")                     # a container, where there is no other user
    print("Starting JupyterLab; Ctrl-C here ends it.", flush=True)
    sys.stderr.flush()
    os.execve(command[0], command, environment)


def prepare(environment: MutableMapping[str, str], source: Path) -> None:
    """Let kernels be of this Python, not one that the user's home names, and find this minitp; show .md files as read.

    What the user set in JupyterLab wins over the settings that come from here.
    """
    environment["JUPYTER_PREFER_ENV_PATH"] = "1"
    _put_first(environment, "JUPYTER_CONFIG_PATH", _SETTINGS)
    root = Path(minitp.__file__).parents[1]
    if source.parent == root:                              # a source folder, which need not be installed
        _put_first(environment, "PYTHONPATH", root)


def _put_first(environment: MutableMapping[str, str], name: str, folder: Path) -> None:
    before = environment.get(name)
    environment[name] = f"{folder}{os.pathsep}{before}" if before else str(folder)


# --- which lessons there are ------------------------------------------------------------------------------------------


def source_folder() -> Path:
    """The lessons of a source folder, or of an installed wheel."""
    inside = Path(minitp.__file__).parent
    for folder in (inside / "_lessons", inside.parent / "lessons"):
        if folder.is_dir():
            return folder
    raise LaunchError("this minitp was installed without its lessons; install it from a wheel or a source folder")


def lessons() -> list[Lesson]:
    """All notebooks, in the order of their names."""
    return [_read(file) for file in sorted(source_folder().glob("*.ipynb"))]


def find(asked: str) -> Lesson:
    """The lesson of this name: 4, 04, heads, 04_heads, 04_heads.ipynb. ConfigError where there is none."""
    wanted = asked.strip().lower().removesuffix(".ipynb").removesuffix(".py")
    named = plain(asked, 40) if wanted else "without a name"
    for lesson in lessons():
        stem = lesson.file.stem.lower()
        if wanted in (stem, lesson.name.lower(), lesson.name.lstrip("0"), stem.partition("_")[2] or stem):
            return lesson
    raise ConfigError(f"there is no lesson {named}; there are "
                      f"{', '.join(lesson.name for lesson in lessons())}: minitp lessons --list says what they answer")


def print_list(console: "Console") -> None:
    """Each lesson with the question it answers and the minutes it takes."""
    from rich.table import Table
    from rich.text import Text
    rows, table = lessons(), Table(box=None, pad_edge=False)
    table.add_column("lesson", overflow="fold")
    table.add_column("the question it answers", overflow="fold")
    table.add_column("minutes", justify="right")
    for row in rows:
        table.add_row(Text(row.title), Text(row.question), "" if row.minutes is None else str(row.minutes))
    console.print(table)
    example = rows[0].name if rows else "01"
    console.print(f"\nminitp lessons {example} copies them to a folder of yours and opens this one in Jupyter.",
                  highlight=False)


def _read(file: Path) -> Lesson:
    """What the first cell says; the file's name where it has no title."""
    try:
        cells = json.loads(file.read_bytes())["cells"]
        text = "".join(cells[0]["source"]) if cells and cells[0]["cell_type"] == "markdown" else ""
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FileFormatError(f"{file} is not a notebook: {error}") from error
    title, question, minutes = (found[1] if (found := form.search(text)) else None
                                for form in (_TITLE, _QUESTION, _MINUTES))
    return Lesson(file, title or file.stem, " ".join((question or "").split()), int(minutes) if minutes else None)
