"""`minitp plan MODEL`: what it prints, and its exit codes."""
import json
import re
from dataclasses import asdict
from itertools import pairwise

import pytest
from typer.testing import CliRunner

from minitp.cli import app
from minitp.config import TINY
from minitp.errors import ConfigError
from minitp.plan import catalogue
from minitp.plan.memory import most_bytes
from minitp.plan.speed.against import published

run = CliRunner().invoke


def test_a_model_s_name_is_enough():
    found = run(app, ["plan", "llama-2-70b"])
    assert found.exit_code == 0, found.output
    for said in ("68,976,648,192 parameters", "TP8", "kv cache", "read weights", "Why the others fail", "a model",
                 "Not modeled"):
        assert said in found.output


def test_where_nothing_fits_it_says_what_would():
    found = run(app, ["plan", "--model", "llama-3.1-405b", "--machine", "8xa100-80"])
    assert found.exit_code == 0, found.output
    assert "No layout of 8 devices carries this" in found.output and "2 such machines, 16 devices, do" in found.output


def test_as_json_with_what_ifs():
    words = ["plan", "llama-3.1-405b", "--gpu-memory", "1TB", "--json", "--tp", "8"]
    found = json.loads(run(app, words).output)
    assert found["machine"]["memory"] == 10**12
    assert found["best"][0]["degrees"]["tp"] == 8 and found["best"][0]["room"] > 0
    assert sum(row["bytes"] for row in found["best"][0]["memory"]) == found["best"][0]["held"]


def test_what_if_a_card_lost_what_its_name_leaves_out():
    said = " ".join(run(app, ["plan", "llama-2-7b", "--gpu-memory", "80GB"]).output.split())
    assert "where the a100-80 has 80.0 GB (74.5 GiB) by its name and 85.9 GB (80.0 GiB) in fact" in said


def test_what_if_memory_were_faster_and_ports_fewer():
    def token(*words: str) -> float:
        asked = ["plan", "llama-2-70b", "--machine", "2x8xa100-80", "--tp", "16", "--json", *words]
        return json.loads(run(app, asked).output)["best"][0]["seconds"]

    assert token("--bandwidth", "4TB/s") < token()


def test_prompts_go_in_pieces():
    """A server's load that fits 16 cards, though the prompts' pass as a whole wouldn't; larger pieces take more."""
    words = ["plan", "llama-3.1-405b", "--machine", "2x8xh100-80", "--batch", "64", "--prompt", "8192", "--tp", "8",
             "--json"]
    small, large = (json.loads(run(app, [*words, "--prefill-tokens", size]).output) for size in ("8192", "32768"))
    assert small["best"][0]["layout"] == "TP8 × PP2" and "8,192 tokens at once" in small["job"]
    assert large["best"][0]["room"] + 3e9 < small["best"][0]["room"]


def test_tables_say_what_letters_mean_and_who_says_so():
    said = " ".join(run(app, ["plan", "llama-2-7b"]).output.split())
    assert "F: feed-forward rows of this rank" in said and "kB (" in said and "0.000" not in said
    assert "by: [1] minitp.placement" in said and "E_p:" not in said and "8,192 tokens at once" in said


def test_a_training_has_days():
    found = run(app, ["plan", "gpt-3-175b", "--task", "train", "--gpus", "1024", "--tp", "8", "--pp", "8",
                      "--batch", "1536", "--tokens", "300e9", "--zero", "1", "--recompute", "full"])
    assert found.exit_code == 0, found.output
    assert "days" in found.output and "MFU" in found.output
    assert published().text in " ".join(found.output.split())


PUBLISHED = ["plan", "llama-3.1-405b", "--task", "train", "--machine", "2048xmeta-24k-h100", "--tp", "8", "--pp", "16",
             "--dp", "128", "--zero", "2", "--seq", "8192", "--batch", "2048", "--micro-batch", "1", "--recompute",
             "none", "--precision", "mixed-fp32-gradients"]


def test_the_published_layout_of_405b_can_be_planned():
    """Its chunks of one layer, with the ends alone: as the catalogue's run has it, named or not."""
    planned = json.loads(run(app, ["plan", "--run", "llama-3.1-405b-16384", "--json"]).output)
    for more in (["--chunks", "8"], ["--stage-layers", "0,1x126,0"]):
        found = json.loads(run(app, [*PUBLISHED, "--reserve", "0", "--json", *more]).output)
        assert found["best"][0]["seconds"] == pytest.approx(planned["planned"]["step_seconds"])
        assert found["best"][0]["held"] == pytest.approx(1e9 * planned["planned"]["memory_gb"])
    words = [*PUBLISHED, "--reserve", "40"]
    assert "such machines" not in run(app, words).output                  # as many weren't tried


def test_a_published_run_is_planned_as_the_catalogue_has_it():
    bloom = catalogue.run("bloom-176b")
    found = run(app, ["plan", "--run", "bloom"])
    assert found.exit_code == 0, found.output
    said = " ".join(found.output.split())
    assert "layers 5,6x10,5" in said and "planned (a model) published (measured)" in said
    plain = json.loads(run(app, ["plan", "--run", "bloom", "--json"]).output)
    assert plain["planned"]["step_seconds"] / plain["published"]["step_seconds"] == pytest.approx(
        published().ratios[bloom.name])
    assert plain["planned"]["memory_gb"] == pytest.approx(most_bytes(bloom.model, bloom.layout, bloom.training) / 1e9)
    assert sum(row["bytes"] for row in plain["memory"]) == plain["capacity"]["needed"]


@pytest.mark.parametrize("width", [80, 100])
def test_layouts_of_a_training_can_be_read(width, monkeypatch):
    """Numbers stand whole in the first line of a row; a layout takes three lines at most, two where there is room."""
    monkeypatch.setenv("COLUMNS", str(width))
    said = run(app, ["plan", "gpt-3", "--task", "train", "--gpus", "128", "--tokens", "300e9", "--zero", "1",
                     "--recompute", "selective"]).output.splitlines()
    head = next(n for n, line in enumerate(said) if line.startswith("layout"))
    assert all(len(line) <= width for line in said)
    starts = [n for n, line in enumerate(said) if n > head and re.search(r"\d+%  +[\d,]+ +[\d.,]+ *$", line)]
    assert len(starts) == 5 and max(b - a for a, b in pairwise(starts)) <= (2 if width == 100 else 4)


def test_what_runs_beside_the_passes_is_told():
    words = ["plan", "gpt-3", "--task", "train", "--gpus", "128", "--tp", "8", "--pp", "4", "--recompute", "full"]
    assert "of its price run beside the passes" in " ".join(run(app, words).output.split())
    best = json.loads(run(app, [*words, "--json"]).output)["best"][0]
    assert best["hidden s"]["dp"] > 0 and any("beside the passes" in row["formula"] for row in best["time"])


def test_a_config_file_will_do(tmp_path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
                                "num_hidden_layers": 3, "num_attention_heads": 9, "num_key_value_heads": 3,
                                "head_dim": 8, "intermediate_size": 100, "vocab_size": 257, "rms_norm_eps": 1e-5,
                                "max_position_embeddings": 128, "hidden_act": "silu", "tie_word_embeddings": True}))
    found = run(app, ["plan", "--model", str(file), "--machine", "2xa100-80", "--json"])
    assert found.exit_code == 0, found.output
    assert json.loads(found.output)["best"] and json.loads(found.output)["against"] is None


@pytest.mark.parametrize(("words", "said"), [
    (["plan", "no-such-model"], "no-such-model"), (["plan", "tiny", "--machine", "8xz1"], "8xz1"),
    (["plan", "tiny", "--model", "tiny"], "name one model"), (["plan", "tiny", "--tp", "3"], "1, 2, 4, 8 would"),
    (["plan", "--run", "nobody-1t"], "nobody-1t"), (["plan", "--run", "llama-65b"], "wasn't published"),
    (["plan", "tiny", "--run", "bloom"], "a plan of your own"), (["plan", "--run", "bloom", "--tp", "2"], "--tp"),
    (["plan", "gpt-3", "--stage-layers", "1x90", "--task", "train"], "add up to 90"),
    (["plan", "tiny", "--weights", "int3"], "int3"), (["plan", "tiny", "--gpu-memory", "plenty"], "plenty"),
    (["plan", "tiny", "--gpus", "16", "--machine", "8xa100-80", "--between", "string"], "string")])
def test_what_cannot_be_is_said(words, said):
    found = run(app, words)
    assert found.exit_code != 0
    assert isinstance(found.exception, ConfigError) and said in str(found.exception)


def test_tiny_is_in_the_catalogue():
    assert asdict(catalogue.model("tiny").config) | {"name": ""} == asdict(TINY) | {"name": ""}
