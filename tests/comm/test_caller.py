"""The line of code that a trace names for a collective: the one a reader wants, without this machine's folders."""
import json
import subprocess
import sys
from pathlib import Path

import minitp.layers.boundary
import minitp.model
from minitp.comm import caller as module
from minitp.comm.caller import caller
from minitp.trace.file import Trace

PACKAGE = Path(minitp.__file__).parent

SCRIPT = """\
import numpy as np, minitp
from minitp.trace import collect, run_info

def ask(tp):
    return tp.all_reduce(minitp.Partial(np.ones(2), tp), site="s", reason="r")   # line 5

def body(tp):
    ask(tp)
    return collect(tp, tp.recorder, run_info(tp, argv=[]))

print(minitp.launch(body, ranks=2)[0].words("caller").tolist())
"""


def test_a_user_s_script_by_its_name_alone(tmp_path):
    (tmp_path / "minitp" / "tests").mkdir(parents=True)
    script = tmp_path / "minitp" / "tests" / "mine.py"
    script.write_text(SCRIPT)
    said = subprocess.run([sys.executable, script], check=True, capture_output=True, text=True,
                          env={"PYTHONPATH": str(PACKAGE.parent)}).stdout
    assert said.strip() == "['mine.py:5', 'mine.py:5']"


def test_blocks_and_layers_ask_not_the_boundary_nor_the_communicator(tmp_path):
    file = tmp_path / "t.json"
    subprocess.run([sys.executable, "-m", "minitp", "generate", "--model", "tiny", "--ranks", "2", "--world", "threads",
                    "--load", "scatter", "--max-tokens", "1", "--trace", file, "ab"], check=True, capture_output=True,
                   cwd=tmp_path, env={"PYTHONPATH": str(PACKAGE.parent)})
    trace = Trace.read(file)
    by_site = dict(zip(trace.words("site"), trace.words("caller"), strict=True))
    code = {}
    for site, line in by_site.items():
        name, number = line.split(":")
        code[site] = (PACKAGE.parent / name).read_text(encoding="utf-8").splitlines()[int(number) - 1]
    assert by_site["layers.1.mlp.down"].startswith("minitp/layers/block.py:")
    assert "boundary.leave" in code["layers.1.mlp.down"]
    assert by_site["embedding"].startswith("minitp/layers/embedding.py:") and "all_reduce" in code["embedding"]
    assert by_site["layers.0.attention.q.weight"].startswith("minitp/weights.py:")
    assert by_site["model"].startswith("minitp/commands/session.py:")
    assert str(tmp_path) not in json.dumps(trace.to_plain())


def test_files_that_pass_on_are_passed_over():
    assert module._name(minitp.layers.boundary.__file__) is None is module._name(module.__file__)
    assert module._name(minitp.model.__file__) == "minitp/model.py"
    assert module._name("/home/somebody/minitp/notes.py") == "notes.py" and module._name("<stdin>") == "<stdin>"
    assert ":" in caller()
