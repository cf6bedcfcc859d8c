"""The command line as a user meets it: what it prints, writes and refuses. In this process where that is enough."""
import csv
import io
import json
import os
import stat
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from minitp.cli import app
from minitp.commands.generate import GenerateOptions
from minitp.commands.prompts import PromptSource, read_prompts
from minitp.errors import ConfigError, FileFormatError, MinitpError
from minitp.trace.file import Trace
from tests.checkpoint.checkpoint_files import LLAMA as GGUF_MODEL
from tests.checkpoint.checkpoint_files import gguf_tensors, weights_of, write_gguf

TINY = ["generate", "--model", "tiny", "--world", "threads"]


def minitp(*words: str, text: str | None = None):
    """Run a command line here; a MinitpError (printed by `main` for a user) is raised."""
    result = CliRunner().invoke(app, words, input=text, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


def row(*words: str, text: str | None = None) -> dict:
    return json.loads(minitp(*TINY, "--json", *words, text=text).stdout)


def refusal(*words: str) -> str:
    with pytest.raises(MinitpError) as error:
        minitp(*TINY, *words)
    return str(error.value)


def test_json_is_one_object_with_everything():
    got = row("--ranks", "3", "--max-tokens", "5", "ab")
    assert {"ranks", "prompt_tokens", "tokens", "text", "sync_points_per_token", "tokens_per_second"} <= set(got)
    assert (got["ranks"], got["prompt_tokens"], len(got["tokens"]), got["sync_points_per_token"]) == (3, [97, 98], 5, 6)
    assert got["stop"] == "length" and got["world"] == "threads"


def test_prompts_from_argument_file_stdin_and_ids_are_the_same(tmp_path):
    (tmp_path / "prompt.txt").write_text("ab\n")
    ways = [row(*words, "--max-tokens", "2", text=text) for *words, text in (
        ("ab", None), ("--file", str(tmp_path / "prompt.txt"), None), ("-", "ab"), ("ab\n",),
        ("--tokens", "97,98", None), ("--tokens", " 97, 98 ", None))]
    assert all(way["tokens"] == ways[0]["tokens"] for way in ways)
    assert all(way["prompt_tokens"] == [97, 98] for way in ways)


def test_several_prompts_are_each_as_alone(tmp_path):
    logits = tmp_path / "batch.npy"
    batch = row("a", "bcdef", "--tokens", "1,2,3", "--logits", str(logits), "--dtype", "float64", "--ranks", "2")
    kept = np.load(logits)
    for i, prompt in enumerate(batch["prompt_tokens"]):
        alone_file = tmp_path / f"{i}.npy"
        alone = row("--tokens", ",".join(map(str, prompt)), "--logits", str(alone_file), "--dtype", "float64")
        assert alone["tokens"] == batch["tokens"][i]
        expected = np.load(alone_file)
        assert expected.shape == (len(prompt) + len(alone["tokens"]), 256)
        np.testing.assert_allclose(kept[i, :len(expected)], expected, atol=1e-12)
        assert np.isnan(kept[i, len(expected):]).all()


def test_logits_are_of_every_position_and_choose_the_tokens(tmp_path):
    got = row("abc", "--max-tokens", "7", "--logits", str(tmp_path / "x.npy"))
    logits = np.load(tmp_path / "x.npy")
    assert logits.shape == (3 + 7, 256)
    assert logits[2:9].argmax(-1).tolist() == got["tokens"]


@pytest.mark.parametrize("words", [["--temperature", "0.9"], ["--temperature", "1.3", "--top-k", "7"],
                                   ["--temperature", "0.8", "--top-k", "20", "--top-p", "0.7"]])
def test_a_seed_gives_the_same_text_at_any_number_of_ranks(words):
    def drawn(seed, ranks, *more):
        return row("ab", *words, "--seed", seed, "--dtype", "float64", "--max-tokens", "6", "--ranks", ranks,
                   *more)["tokens"]

    alone = drawn("1", "1")
    assert alone == drawn("1", "5") == drawn("1", "5", "--sharded-logits") != drawn("2", "1")


@pytest.mark.parametrize("words, syncs", [([], 6), (["--parallel-block"], 4), (["--sharded-logits"], 5),
                                          (["--embedding", "hidden"], 6), (["--load", "scatter"], 6),
                                          (["--parallel-block", "--sharded-logits"], 3)])
def test_sync_points_and_a_trace_that_checks(tmp_path, words, syncs):
    file = tmp_path / "t.json"
    got = row("abcde", "xy", "--ranks", "3", "--trace", str(file), "--max-tokens", "4", *words)
    assert got["sync_points_per_token"] == syncs                       # 2L + 2 with L = 2, and its variants
    assert "as the closed form says" in minitp("trace", "check", str(file)).stdout
    trace = Trace.read(file)
    sample = sum(event.plane == "sample" for event in trace)
    assert sample == (4 * 3 if "--sharded-logits" in words else 0)
    control = [e for e in trace if e.plane == "control" and e.phase in ("prefill", "decode")]
    assert not control                                                 # no message of the program's own per token


def test_check_tells_every_difference(tmp_path):
    file = tmp_path / "t.json"
    row("ab", "--ranks", "2", "--trace", str(file), "--max-tokens", "2")
    plain = json.loads(file.read_text())
    plain["events"]["payload"][-1] += 4
    file.write_text(json.dumps(plain))
    result = CliRunner().invoke(app, ["trace", "check", str(file)])
    assert result.exit_code == 1 and "payload" in result.stdout


@pytest.fixture(scope="module")
def short_trace(tmp_path_factory) -> str:
    """A trace of one token, as text."""
    file = tmp_path_factory.mktemp("short") / "t.json"
    row("ab", "--trace", str(file), "--max-tokens", "1")
    return file.read_text()


@pytest.mark.parametrize(("part", "field", "value"), [
    ("model", "layers", 10**8), ("placement", "ranks", 10**9), ("generation", "passes", [["decode", 1]] * 500_001),
    ("generation", "dtype", "evil"), ("generation", "batch", "x"), ("generation", "choices", "x"),
    ("generation", "candidates", None), ("generation", "passes", [["decode", "x"]])])
def test_a_strangers_header_is_refused_before_anything_is_built_from_it(tmp_path, short_trace, part, field, value):
    file = tmp_path / "t.json"
    plain = json.loads(short_trace)
    plain["run"][part][field] = value
    file.write_text(json.dumps(plain))
    with pytest.raises(FileFormatError, match="doesn't say what was run"):
        minitp("trace", "check", str(file))


def test_trace_show_and_exports(tmp_path):
    file = tmp_path / "t.json.gz"
    row("ab", "--ranks", "2", "--trace", str(file), "--max-tokens", "2", "--values")
    assert "decode" in minitp("trace", "show", str(file)).stdout
    for by in ("phase", "token", "site", "reason", "op", "rank"):
        assert minitp("trace", "show", str(file), "--by", by).stdout
    assert json.loads(minitp("trace", "show", str(file), "--json").stdout)
    assert json.loads(minitp("trace", "export", str(file), "--format", "chrome").stdout)["traceEvents"]
    rows = list(csv.DictReader(io.StringIO(minitp("trace", "export", str(file), "--format", "csv").stdout)))
    assert {r["site"] for r in rows} >= {"embedding", "layers.1.mlp.down", "head"}
    assert Trace.read(file).values


def test_show_comm_has_one_line_per_sync_point_and_ends_with_the_waiting():
    result = minitp(*TINY, "ab", "--ranks", "2", "--max-tokens", "3", "--show-comm")
    lines = [line for line in result.stderr.splitlines() if "→" in line]
    assert len(lines) == 3 * 6
    assert "partial ─all_reduce→ whole" in lines[0] and "B" in lines[0] and "…" not in "".join(lines)
    assert "% of the time" in result.stderr and "was waiting" in result.stderr


def test_refusals_say_what_to_do(tmp_path):
    assert "vocabulary of 256" in refusal("--tokens", "5,256")
    assert "whole numbers" in refusal("--tokens", "5,x")
    assert "prompt is empty" in refusal("")
    assert "context holds 256" in refusal("x" * 257)
    assert "no folder" in refusal("a", "--trace", str(tmp_path / "no" / "t.json"))
    assert "temperature" in refusal("a", "--temperature", "-1")
    assert "--top-k" in refusal("a", "--temperature", "1", "--top-p", "0.5", "--sharded-logits")
    assert "gather" in refusal("a", "--sharded-logits", "--logits", str(tmp_path / "x.npy"))
    assert "chat template" in refusal("a", "--chat")
    assert "can't be read" in refusal("--file", str(tmp_path / "missing.txt"))


def test_only_the_rank_that_writes_needs_the_folder(tmp_path, monkeypatch):
    """The others may be on machines that don't have it."""
    monkeypatch.setenv("PMI_SIZE", "2")
    for rank, refused in (("0", True), ("1", False)):
        monkeypatch.setenv("PMI_RANK", rank)
        with pytest.raises(ConfigError, match="no folder") if refused else nullcontext():
            GenerateOptions(PromptSource(("a",)), trace=str(tmp_path / "no" / "t.json"))


def test_cupy_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)                     # importing it fails
    assert "minitp[cuda12]" in refusal("a", "--backend", "cupy")


def test_files_are_written_through_links_and_never_in_the_place_of_a_device(tmp_path):
    """A trace to /dev/null must not replace it, nor a trace to a link the link."""
    (tmp_path / "link.json").symlink_to(tmp_path / "real.json")
    row("ab", "--max-tokens", "1", "--trace", str(tmp_path / "link.json"))
    assert (tmp_path / "link.json").is_symlink() and Trace.read(tmp_path / "real.json").run["ranks"] == 1
    os.mkfifo(tmp_path / "pipe")
    reader = subprocess.Popen(["cat", str(tmp_path / "pipe")], stdout=subprocess.PIPE)
    row("ab", "--max-tokens", "1", "--trace", str(tmp_path / "pipe"))
    assert json.loads(reader.communicate(timeout=120)[0])["format"] == "minitp trace"
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    assert "same file" in refusal("ab", "--trace", str(tmp_path / "x"), "--logits", str(tmp_path / "x"))
    assert "name of a file" in refusal("ab", "--trace", str(tmp_path))


def test_a_prompt_without_end_is_refused(monkeypatch):
    monkeypatch.setattr("minitp.commands.prompts.LARGEST", 1 << 16)
    assert "more than" in refusal("--file", "/dev/zero")
    with pytest.raises(ConfigError, match="more than"):
        minitp(*TINY, text="x" * (1 << 17))


def test_a_terminal_without_unicode_gets_question_marks_and_json_escapes():
    words = ["generate", "--model", "tiny", "--tokens", "195,169", "--max-tokens", "3", "--show-comm"]
    plain = {**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": "ascii"}
    for more in ([], ["--json"]):
        ended = subprocess.run([sys.executable, "-m", "minitp", *words, *more], capture_output=True, timeout=180,
                               env=plain)
        assert ended.returncode == 0, ended.stderr
        ended.stdout.decode("ascii")
        assert b"all_reduce" in ended.stderr


def test_a_full_context_ends_the_text():
    got = row("x" * 250, "--max-tokens", "20")
    assert len(got["tokens"]) == 6 and got["stop"] == "context"
    full = row("x" * 256, "--max-tokens", "3")
    assert full["tokens"] == [] and full["stop"] == "context"
    assert row("abc", "--max-tokens", "0")["stop"] == "length"


def test_the_bundled_model_resharded_is_the_same_and_still_reads_bytes(tmp_path):
    minitp("reshard", "tiny", str(tmp_path / "out"), "--ranks", "3")
    words = ["--world", "threads", "--json", "The ", "--ranks", "2", "--max-tokens", "9"]
    bundled, copied = (json.loads(minitp("generate", "--model", model, *words).stdout)
                       for model in ("tiny", str(tmp_path / "out")))
    assert copied["tokens"] == bundled["tokens"] and copied["text"] == bundled["text"]


def test_resharded_to_any_number_of_ranks_and_back(tmp_path):
    """A real layout (the reference library's) → 3 ranks → 5 ranks → one folder: the same model each time."""
    start = str(Path(__file__).parent / "reference" / "models" / "llama-untied")
    steps = [start]
    for name, words in (("three", "--ranks 3"), ("five", "--ranks 5 --embedding hidden"), ("whole", "")):
        minitp("reshard", steps[-1], str(tmp_path / name), *words.split())
        steps.append(str(tmp_path / name))
    assert len(list((tmp_path / "five").glob("rank-*-of-5.safetensors"))) == 5
    kept = []
    for step in steps:
        minitp("generate", "--model", step, "--tokens", "1,2,3", "--ranks", "2", "--world", "threads", "--logits",
               str(tmp_path / "x.npy"), "--max-tokens", "2")
        kept.append(np.load(tmp_path / "x.npy"))
    assert all((logits == kept[0]).all() for logits in kept)
    with pytest.raises(ConfigError, match="new folder"):
        minitp("reshard", start, str(tmp_path / "three"), "--ranks", "2")


def test_a_checkpoint_without_a_tokenizer_takes_ids(tmp_path):
    """And says what is odd about the file; its config knows the end tokens."""
    path = write_gguf(tmp_path / "bare.gguf", GGUF_MODEL, gguf_tensors(GGUF_MODEL, weights_of(GGUF_MODEL)))
    path.write_bytes(path.read_bytes() + bytes(64))
    words = ["generate", "--model", str(path), "--world", "threads"]
    shown = minitp(*words, "--tokens", "1,2", "--max-tokens", "2", "--json")
    assert len(json.loads(shown.stdout)["tokens"]) == 2
    assert "bytes follow the last tensor" in shown.stderr and "token ids only" in shown.stderr
    with pytest.raises(FileFormatError, match="tokenizer"):
        minitp(*words, "ab")
    assert read_prompts(PromptSource(tokens=("1",)), None, (7, 9)) == {"ids": [[1]], "end": [7, 9]}
    assert read_prompts(PromptSource(tokens=("1",), ignore_end=True), None, (7, 9))["end"] == []
    said = minitp("reshard", str(path), str(tmp_path / "two"), "--ranks", "2")
    assert "without a tokenizer" in said.stderr and (tmp_path / "two" / "placement.json").exists()


def test_models_are_listed(model_cache):
    shown = minitp("models").stdout
    assert "tiny" in shown and "smollm2-135m" in shown


def run(*words: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "minitp", *words], capture_output=True, text=True, timeout=180)


def test_a_refusal_is_one_message_and_exit_code_2():
    ended = run("generate", "--model", "no-such-model", "x", "--ranks", "3", "--world", "threads")
    assert ended.returncode == 2 and not ended.stdout
    assert ended.stderr.startswith("minitp: error: no model 'no-such-model'") and "Traceback" not in ended.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full, a disk that is always full, is Linux's")
def test_a_full_disk_is_one_message():
    ended = run("generate", "--model", "tiny", "ab", "--max-tokens", "1", "--trace", "/dev/full")
    assert ended.returncode == 2 and "Traceback" not in ended.stderr
    assert "minitp: error: No space left on device" in ended.stderr
    assert Path("/dev/full").is_char_device()


@pytest.mark.mpi
def test_ranks_are_mpi_processes_and_one_prints(tmp_path):
    ended = run("generate", "--model", "tiny", "abc", "--ranks", "3", "--world", "mpi", "--json", "--max-tokens", "4",
                "--trace", str(tmp_path / "t.json"), "--load", "scatter", "--checked")
    assert ended.returncode == 0, ended.stderr
    got = json.loads(ended.stdout)
    assert (got["world"], got["ranks"]) == ("mpi", 3)
    assert got["tokens"] == row("abc", "--max-tokens", "4")["tokens"]
    assert run("trace", "check", str(tmp_path / "t.json")).returncode == 0


@pytest.mark.mpi
def test_a_refusal_under_mpi_is_told_once():
    ended = run("generate", "--model", "tiny", "--tokens", "999", "--ranks", "3", "--world", "mpi")
    assert ended.returncode == 2
    assert ended.stderr.count("vocabulary of 256") == 1 and "Traceback" not in ended.stderr
