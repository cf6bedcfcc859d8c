"""The lessons as files: where they are, and a notebook run from a clean kernel."""
import os
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

LESSONS = Path(__file__).parents[2] / "lessons"


def scripts() -> list[Path]:
    """Those with a notebook beside them, or that should have one."""
    return [file for file in sorted(LESSONS.glob("*.py")) if "formats: ipynb,py:percent" in file.read_text("utf-8")]


def executed(notebook: NotebookNode, timeout: int = 300) -> NotebookNode:
    """A copy with the outputs of a clean kernel, in a folder of its own that has the scripts, too. The kernel is this
    Python."""
    copy = nbformat.from_dict(notebook)
    with TemporaryDirectory() as folder:
        for script in scripts():
            shutil.copy(script, folder)
        client = NotebookClient(copy, timeout=timeout, kernel_name="python3", resources={"metadata": {"path": folder}})
        environment = os.environ | {"PYTHONPATH": str(LESSONS.parent), "OPENBLAS_NUM_THREADS": "1"}
        environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
        with client.setup_kernel(env=environment):
            for number, cell in enumerate(copy.cells):
                client.execute_cell(cell, number)
    return copy


def printed(cell: NotebookNode) -> str:
    """What a code cell printed, pictures left out."""
    return "".join(output.get("text", "") for output in cell.get("outputs", ()) if output.output_type == "stream")
