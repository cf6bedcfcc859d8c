"""What `minitp plan` does with inputs that are too large, from elsewhere, or wrong: at once, in words, by exit code."""
import json
import signal
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from minitp.checkpoint.files import parse_json
from minitp.cli import app
from minitp.config import TINY
from minitp.errors import ConfigError, FileFormatError
from minitp.plan import catalogue, positions
from minitp.plan.catalogue.machine_files import write_machine
from minitp.plan.check import Compared
from minitp.plan.job import LARGEST, Inference, Training
from minitp.plan.layout import Layout
from minitp.plan.limits import divisors
from minitp.plan.model import PlannedModel
from minitp.plan.questions.base import WhatIf
from minitp.plan.search import search

CONFIG = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
          "num_key_value_heads": 4, "intermediate_size": 128, "vocab_size": 100, "max_position_embeddings": 64}
MACHINE = """
[[device]]
name = "d"
kind = "gpu"
memory = "80GB"
memory_kind = "HBM"
bandwidth = "2TB/s"
flops = {bf16 = "312 TFLOP/s"}
source = "me"

[[machine]]
name = "m"
device = "d"
source = "me"

[[machine.level]]
size = 8
link = "nvlink3"
"""
TABLE = '\n[[machine.level.table]]\nop = "all_reduce"\nranks = 2\ntimes = [[1, 2]]\nsource = "me"\n'


def plan(*words: str, code: int = 0) -> str:
    """What is printed, or the error's text where the exit code is 2."""
    found = CliRunner().invoke(app, ["plan", *words])
    if code == 2:
        assert isinstance(found.exception, ConfigError), found.exception or found.output
        return str(found.exception)
    assert found.exit_code == code, found.exception or found.output
    return found.output


@pytest.mark.parametrize(("words", "said"), [
    ("gpt2 --prompt 10000", "learned table of 1,024 positions"),
    ("gpt2 --task train --seq 10000", "learned table of 1,024 positions"),
    ("simulate gpt2 --seq 2000", "learned table of 1,024 positions"),
    ("simulate llama-3.1-8b --pp 33 --gpus 33", "32 layers can't fill 33"),
    ("tiny --gpus 1000000000000", "more than the 1,048,576"),
    (f"tiny --gpus {10**30}", "more than the 1,048,576"),
    ("simulate tiny --gpus 1000000000000", "more than the 1,048,576"),
    ("tiny --machine 99999999999xa100-80", "99999999999 is no number of devices"),
    ("tiny --machine 0xa100-80", "0 is no number of devices"),
    ("tiny --machine 999999x999999xa100-80", "more than the 1,048,576"),
    (f"tiny --prompt {10**21}", "at most 1,000,000,000,000,000"),
    (f"tiny --new {10**21}", "at most 1,000,000,000,000,000"),
    (f"tiny --task train --seq {10**20}", "at most 1,000,000,000,000,000"),
    (f"ask biggest-llama --batch {10**24}", "at most 1,000,000,000,000,000"),
    (f"simulate tiny --task infer --prompt {10**24}", "at most 1,000,000,000,000,000"),
    (f"simulate tiny --task infer --prompt {10**15}", "tokens are more than"),
    (f"simulate llama-3.1-8b --seq {10**11}", "a trace holds times up to"),
    ("llama-3.1-8b --gpus 720720 --task train --batch 720720", "more than 10,000 layouts"),
    ("mixtral-8x7b --ep 3", "ep = 3 must divide dp · cp"), ("tiny --ep 8", "dense"),
    ("tiny --tp 3", "tp 3 doesn't divide 8 devices: 1, 2, 4, 8 would, or --gpus 6 or 9"),
    ("tiny --tp 3 --pp 8", "24 devices together, which doesn't divide 8 devices: --gpus 24"),
    ("tiny --tp 2 --dp 8", "16 devices together, not 8 devices: --gpus 16"),
    ("tiny --task train --tokens 0", "--tokens 0"), ("ask gpt-3 --tokens 0", "--tokens 0"),
    ("tiny --tokens 15T", "--tokens belongs to --task train"), ("tiny --zero 1", "--zero belongs to --task train"),
    ("tiny --chunks 2", "--chunks belongs"), ("tiny --seq 64", "--seq belongs"),
    ("tiny --task train --prompt 9", "--prompt belongs to --task infer"),
    ("simulate tiny --speed 2", "--speed belongs to a replay"),
    ("tiny --gpu-memory 80", "with a unit"), ("tiny --gpu-memory 0", "with a unit"),
    ("ask nope", "there is no question 'nope'; `minitp plan ask` lists all"),
    ("lama-3.1-8b", "did you mean 'llama-3.1-8b'")])
def test_what_cannot_be_planned_is_refused_at_once(words, said):
    begun = time.thread_time()
    assert said in plan(*words.split(), code=2)
    assert time.thread_time() - begun < 5


@pytest.mark.parametrize("words", ["nope", "tiny --machine nope", "tiny --link nope"])
def test_an_unknown_name_brings_a_verb_and_no_list(words):
    said = plan(*words.split(), code=2)
    assert "lists all" in said and len(said) < 300 and "minitp plan catalogue" in said


def test_positions_that_go_on_are_a_warning():
    assert "was made for 131,072 positions: 200,000 + 512 tokens" in plan("llama-3.1-8b", "--prompt", "200000", "--tp",
                                                                         "8")
    model = catalogue.model("llama-3.1-8b")
    assert not positions.checked(model, Inference(prompt=131_000, new=72)) and positions.checked(
        model, Inference(prompt=131_000, new=73))
    assert positions.checked(model, Training(seq=131_073)) and not positions.refused(catalogue.model("bloom-176b"))


@pytest.mark.slow
def test_a_simulation_takes_the_whole_machine_and_says_what_does_not_fit(tmp_path):
    said = plan("simulate", "llama-3.1-8b", "--straggler", "5:1.5", "--seq", "64")
    assert "on 8 devices" in said and "the fastest that fits" in said and "doesn't fit" not in said
    said = " ".join(plan("simulate", "llama-3.1-8b", "--straggler", "5:1.5", "--seq", "64", "--zero", "0", "-o",
                         str(tmp_path / "run.json")).split())
    assert "8 devices · DP8" in said and "It doesn't fit: the fullest device needs" in said
    assert "doesn't fit" in json.loads((tmp_path / "run.json").read_text())["run"]["simulated"]["warnings"][0]
    assert "doesn't fit" not in plan("simulate", "tiny", "--seq", "64")


def test_what_belongs_to_a_model_is_no_option_of_a_replay():
    from importlib.resources import files
    trace = files("minitp.view") / "traces" / "tiny-4-ranks.json.gz"
    assert "--tp belongs to the simulation of a model" in plan("simulate", str(trace), "--tp", "2", code=2)


@pytest.mark.parametrize(("words", "code", "enough"), [
    ("llama-3.1-405b --tp 8 --pp 1", 1, False), ("llama-3.1-405b", 0, True), ("tiny --tp 1 --pp 8", 1, False),
    ("mixtral-8x7b --ep 8 --dp 8", 1, False), ("mixtral-8x7b --ep 8 --dp 8 --batch 8", 0, False)])
def test_the_exit_code_tells_a_layout_from_a_search(words, code, enough):
    assert ("such machine" in plan(*words.split(), code=code)) == enough


@pytest.mark.parametrize(("change", "said"), [
    (('size = 8', 'size = 1000000000'), "more than the 1,048,576"),
    (('memory = "80GB"', 'memory = "80GB"\nmemory_real = 0'), "a device needs memory"),
    (('[[machine.level]]\nsize = 8\nlink = "nvlink3"', ''), "1 to 8 [[machine.level]]"),
    (('size = 8', 'size = 1' + '\nlink = "nvlink3"\n[[machine.level]]\nsize = 1' * 8), "and has 9"),
    (("", TABLE.replace("[[1, 2]]", "[[1]]")), "two entries in each pair"),
    (("", TABLE.replace("[[1, 2]]", "[1, 2]")), "two entries in each pair"),
    (("", TABLE.replace("all_reduce", "foo")), "'foo' is no collective"),
    (('name = "m"', f'name = "{"m" * 101}"'), "101 characters"), (('device = "d"', 'device = 5'), "device can't be 5")])
def test_a_machine_file_s_error_names_the_file(tmp_path, change, said):
    old, new = change
    file = tmp_path / "own.toml"
    file.write_text(MACHINE.replace(old, new) if old else MACHINE + new)
    with pytest.raises(ConfigError, match=r"own\.toml") as told:
        catalogue.machine(file)
    assert said in str(told.value)


def test_what_a_machine_file_says_is_no_terminal_s_command(tmp_path):
    escape = "\\u001b[31mred\\u0007"
    file = tmp_path / "own.toml"
    file.write_bytes(b"\xef\xbb\xbf" + MACHINE.replace('"m"', f'"m{escape}"').replace("HBM", escape).replace(
        '"me"', f'"{escape}"').encode())
    machine = catalogue.machine(file)
    assert "\x1b" not in machine.name + machine.source + machine.device.memory_kind + machine.device.source
    assert "\x1b" not in plan("tiny", "--machine", str(file), "--json")
    write_machine(machine, tmp_path / "again.toml")
    assert catalogue.machine(tmp_path / "again.toml") == machine


@pytest.mark.parametrize(("content", "said"), [
    (json.dumps(CONFIG | {"hidden_size": 10**30}), "at most 1,000,000,000,000,000"),
    (json.dumps(CONFIG | {"num_hidden_layers": 1.5}), "num_hidden_layers must be a whole number"),
    (json.dumps(CONFIG | {"model_type": "bloom"}), "and mixtral are read; the catalogue has bloom-176b by name"),
    (json.dumps(CONFIG | {"model_type": "gpt_neox"}), "gpt-neox-20b by name"),
    ("{", "not JSON"), (b"\xff\xfe", "isn't text in UTF-8"), ('{"a": ' + "1" * 5000 + "}", "thousands of digits")])
def test_a_config_s_error_names_the_file(tmp_path, content, said):
    file = tmp_path / "config.json"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigError, match=r"config\.json") as told:
        catalogue.model(file)
    assert said in str(told.value)


def test_a_model_s_folder_and_what_is_none(tmp_path):
    folder = tmp_path / "\x1b[31mred"
    folder.mkdir()
    (folder / "config.json").write_bytes(b"\xef\xbb\xbf" + json.dumps(CONFIG).encode())
    model = catalogue.model(folder)
    assert "\x1b" not in model.name + model.source and model.parameters > 0
    (tmp_path / "ok.txt").write_text(json.dumps(CONFIG))
    (tmp_path / "x.json").mkdir()
    for name, said in (("ok.txt", "is no config.json"), ("x.json", "is a folder"), (".", "has no config.json"),
                       ("none.json", "there is no file")):
        with pytest.raises(ConfigError, match=said):
            catalogue.model(tmp_path / name)
    with pytest.raises(FileFormatError, match="UTF-8"):
        parse_json(b"\xff", "x")


def test_very_many_layers_are_no_slower():
    from dataclasses import replace
    model = PlannedModel(replace(TINY, layers=10_000))
    begun = time.thread_time()
    assert search(model, catalogue.machine("8xa100-80"), Inference(prompt=16, new=1)).best
    assert time.thread_time() - begun < 5


def test_divisors_are_found_quickly():
    assert divisors(36) == [1, 2, 3, 4, 6, 9, 12, 18, 36] and divisors(1) == [1]
    assert len(divisors(1 << 40)) == 41
    with pytest.raises(ConfigError, match="whole number"):
        WhatIf(batch=LARGEST + 1)
    assert "DP1,000,000" in str(Layout(dp=1_000_000)) and str(Layout(dp=16384)) == "DP16384"


def test_a_search_over_a_million_devices_ends():
    begun = time.thread_time()
    machine = catalogue.machine("8xa100-80", devices=1 << 20)
    search(PlannedModel(TINY), machine, Inference(batch=1 << 20, prompt=8, new=1))
    assert time.thread_time() - begun < 5


def test_a_comparison_does_not_take_counts_for_times():
    from minitp.commands.plan.check import collectives_table, times_told
    row = Compared("all_reduce", 2, 4096, 3, 3, 1e-6, "α + nβ, recursive doubling", None, 8e-6, 9e-6)
    assert "not all within 25% of what the model of m gives: modeled / measured is 0.12" in times_told([row], "m")
    from io import StringIO

    from rich.console import Console
    stream = StringIO()
    Console(file=stream, width=80).print(collectives_table([row], "Collectives"))
    said = stream.getvalue()
    assert "all_reduce" in said and "…" not in said and all(len(line) <= 80 for line in said.splitlines())


SEARCHING = """
import sys
from minitp.__main__ import main
from minitp.commands.plan import layouts
search = layouts.search

def searching(*given):
    print("searching", file=sys.stderr, flush=True)
    return search(*given)

layouts.search = searching
main()
"""


@pytest.mark.slow
def test_an_interrupt_ends_a_search_cleanly():
    words = ["gpt-3-175b", "--task", "train", "--gpus", "24576", "--batch", "24576"]
    run = subprocess.Popen([sys.executable, "-c", SEARCHING, "plan", *words],
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert run.stderr.readline() == "searching\n"
    run.send_signal(signal.SIGINT)
    out, told = run.communicate(timeout=60)
    assert run.returncode == 130 and not out and "Traceback" not in told
