"""What the README shows is true: its code runs, its links lead somewhere, its commands are the package's."""
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_idea_in_twelve_lines_runs():
    code = re.search(r"```python\n(.*?)```", README, re.S)[1]
    rng = np.random.default_rng(0)
    x, w_up, w_down = rng.standard_normal((2, 4)), rng.standard_normal((7, 4)), rng.standard_normal((4, 7))
    names: dict = {"x": x, "W_up": w_up, "W_down": w_down}
    exec(code.replace("minitp.launch(", "results = minitp.launch("), names)
    whole = np.maximum(x @ w_up.T, 0) @ w_down.T
    assert len(names["results"]) == 3
    assert all(np.allclose(y, whole) for y in names["results"])
    body = code[code.index("def mlp"):code.index("\n\n", code.index("def mlp"))]
    assert len(body.splitlines()) <= 12


def test_links_into_the_repository_exist():
    links = [link for link in re.findall(r"\]\(([^)]+)\)", README) if not link.startswith("http")]
    assert links and all((ROOT / link).exists() for link in links)


def test_the_two_commands_name_extras_that_exist():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {"mpi", "test"} <= set(re.findall(r"\.\[(\w+)\]", README)) <= set(extras)


@pytest.mark.slow
def test_a_wheel_carries_the_lessons(tmp_path):
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True)
    names = zipfile.ZipFile(next(tmp_path.glob("minitp-*.whl"))).namelist()
    assert {"minitp/cli.py", "minitp/_lessons/mpi/1_scatter_the_weights.py"} <= set(names)
    assert not [name for name in names if name.startswith("tests/")]


@pytest.mark.slow
def test_an_editable_install_works(tmp_path):
    subprocess.run([sys.executable, "-m", "venv", "--system-site-packages", str(tmp_path / "v")], check=True)
    python = str(tmp_path / "v" / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", "-e", str(ROOT)], check=True)
    found = subprocess.run([python, "-c", "import minitp; print(minitp.__file__)"], cwd=tmp_path, check=True,
                           capture_output=True, text=True).stdout
    assert Path(found.strip()).parent == ROOT / "minitp"
