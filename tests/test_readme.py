"""What the README shows is true: its code runs, its links lead somewhere, its commands are the package's."""
import re
import subprocess
import sys
import tomllib
import zipfile
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import minitp
from minitp.cli import app
from minitp.cli_plan import plan_app
from minitp.commands.compare import CompareOptions
from minitp.commands.lessons_copy import files
from minitp.config import TINY, ModelConfig
from minitp.placement import Placement
from minitp.plan.questions import QUESTIONS
from minitp.trace.predict import GenerationPlan, Steps, TrainingPlan, predict
from minitp.trace.predict_training import step_form, sync_points
from minitp.trace.wording import size
from minitp.train.config import ModelSettings

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_idea_in_twelve_lines_runs(capsys):
    code = re.search(r"```python\n(.*?)```", README, re.S)[1]
    names: dict = {}
    exec(code, names)
    assert "[[" in capsys.readouterr().out
    x, w_up, w_down = names["x"], names["W_up"], names["W_down"]
    for y in minitp.launch(lambda tp: names["mlp"](x, w_up, w_down, tp), ranks=5):
        assert np.allclose(y, np.maximum(x @ w_up.T, 0) @ w_down.T)
    body = code[code.index("def mlp"):code.index("\n\n", code.index("def mlp"))]
    assert len(body.splitlines()) <= 12


SMOLLM2 = ModelConfig(hidden=576, layers=30, heads=9, kv_heads=3, head_size=64, ffn=1536, vocab=49152, positions=8192,
                      tied=True)


def test_the_numbers_of_the_table_are_the_closed_form_s():
    placement = Placement(SMOLLM2, 4)
    assert placement.heads.sizes == (3, 2, 2, 2) and "3, 2, 2, 2" in README
    assert [len(placement.kv_heads(rank)) for rank in range(4)] == [1, 1, 2, 1] and "1, 1, 2, 1" in README
    assert sum(sum(kv_head in placement.kv_heads(rank) for rank in range(4)) == 2 for kv_head in range(3)) == 2

    def token(config: ModelConfig, gathered: bool = True) -> list:
        plan = GenerationPlan(Placement(config, 3), "slice", "float32", 1, [("decode", 1)], 0, gathered)
        return predict(plan)

    assert len(token(SMOLLM2)) == 62 and "62 for 30 layers" in README
    assert round(sum(event.payload for event in token(SMOLLM2)) / 1000) == 337 and "337 kB" in README
    assert round(sum(event.payload for event in token(SMOLLM2, gathered=False)) / 1000) == 141 and "141 kB" in README
    assert len(token(replace(TINY, parallel_block=True))) == 4 and len(token(TINY)) == 6 and "4 instead of 6" in README


def test_the_training_run_is_the_closed_form_s():
    placement = Placement(TINY, 4)
    said = re.search(r"minitp train --steps 100\n(.*?)```", README, re.S)[1]
    assert f"tiny: {sum(p.size for p in placement.parameters):,} weights on 4 ranks" in said
    plan = TrainingPlan(placement, "float32", [Steps(0, 1, ((16, 64),))])
    events = predict(plan)
    assert f"{len(events)} sync points and {size(sum(event.payload for event in events))} of payload a step" in said
    weights = 4 * max(map(placement.elements, range(4)))
    assert f"weights {size(weights)}, gradients {size(weights)}, optimizer {size(2 * weights)}" in said
    form = step_form(placement)
    assert [str(form[part]) for part in ("forward", "loss", "backward", "optimizer")] == [
        "2L + 1 = 5", "3", "2L + 1 = 5", "1"]
    assert sync_points(placement, recompute="full") == len(events) + 2 * TINY.layers == 14 + 4


def test_what_it_says_of_the_planner_is_what_it_prints():
    section = README.split("## Machines you don't have")[1].split("\n## ")[0]
    shown = section.split("```")[1].strip().splitlines()
    printed = CliRunner(env={"COLUMNS": "120"}).invoke(app, shown[0].split()[2:]).output
    for line in shown[1:]:
        assert line.strip(" …") in printed, line
    verbs = {verb for cell in re.findall(r"^\| (`.*`) \|", section, re.M) for verb in re.findall(r"`(\w+)`", cell)}
    assert verbs == {command.name or command.callback.__name__ for command in plan_app.registered_commands
                     } - {"layouts", "catalogue"}
    assert f"{len(QUESTIONS)} questions" in section
    assert all(name in {question.name for question in QUESTIONS} for name in re.findall(r"`([a-z-]+)`[:,  ]",
               section.split("questions that people ask")[1].split("|")[0]))


def test_the_options_of_the_training_section_exist():
    section = README[README.index("## Training"):README.index("## Machines")]

    def help_of(verb: str) -> str:
        return CliRunner().invoke(app, [verb, "--help"], env={"COLUMNS": "200"}).stdout

    for verb, options in (("app", r"minitp app (--[a-z-]+)"), ("generate", r"minitp generate -m \S+ (--[a-z-]+)")):
        found = re.findall(options, section)
        assert found and all(option in help_of(verb) for option in found)
        section = re.sub(options, "", section)
    options = set(re.findall(r"--[a-z-]+", section))
    assert {"--config", "--resume", "--trace", "--values"} <= options
    assert all(option in help_of("train") for option in options)
    assert "minitp compare` takes the same steps on 1, 2, 3, 4 and 8" in " ".join(section.split())
    assert CompareOptions({}).ranks == "1,2,3,4,8"


def test_the_keys_of_the_model_are_all_there():
    keys = re.search(r"The keys of `\[model\]` are (.*?)\.", README, re.S)[1]
    assert re.split(r",\s+|\s+and\s+", keys) == [field.name.rstrip("_") for field in fields(ModelSettings)]


def test_links_into_the_repository_exist():
    links = [link for link in re.findall(r"\]\(([^)]+)\)", README) if not link.startswith("http")]
    assert links and all((ROOT / link).exists() for link in links)


def test_the_two_commands_name_extras_that_exist():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {"mpi", "test"} <= set(re.findall(r"\.\[(\w+)\]", README)) <= set(extras)


@pytest.mark.slow
def test_a_wheel_carries_the_lessons_and_the_app(tmp_path):
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True)
    names = zipfile.ZipFile(next(tmp_path.glob("minitp-*.whl"))).namelist()
    assert {"minitp/cli.py", "minitp/_lessons/mpi/1_scatter_the_weights.py",
            "minitp/_app/main.py", "minitp/_app/.streamlit/config.toml", "minitp/view/player/html/player.html",
            "minitp/view/player/css/player.css", "minitp/view/player/js/scene/gate.js",
            "minitp/view/traces/tiny-4-ranks.json.gz", "minitp/view/traces/smollm2-3-ranks.json.gz",
            "minitp/view/traces/tiny-training-4-ranks.json.gz", "minitp/bundled/tiny/config.json",
            "minitp/bundled/tiny/model.safetensors", "minitp/bundled/tiny/train.toml",
            *(f"minitp/plan/catalogue/{kind}.toml" for kind in ("models", "devices", "machines", "links", "runs"))
            } <= set(names)
    assert not [name for name in names if name.startswith("tests/") or "media" in name]
    carried = {name.removeprefix("minitp/_lessons/") for name in names if name.startswith("minitp/_lessons/")}
    assert carried == set(files(ROOT / "lessons")) and any(name.endswith(".ipynb") for name in carried)


@pytest.mark.slow
def test_an_editable_install_works(tmp_path):
    subprocess.run([sys.executable, "-m", "venv", "--system-site-packages", str(tmp_path / "v")], check=True)
    python = str(tmp_path / "v" / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", "-e", str(ROOT)], check=True)
    found = subprocess.run([python, "-c", "import minitp; print(minitp.__file__)"], cwd=tmp_path, check=True,
                           capture_output=True, text=True).stdout
    assert Path(found.strip()).parent == ROOT / "minitp"
