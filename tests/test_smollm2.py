"""SmolLM2-135M-Instruct, cut over 1 to 7 ranks, against an independent float64 evaluation (tests/reference).

The frozen logits come from other code (the library `transformers`, truly in float64) on the same weights. Thread ranks
replay prompt and continuation in one pass, which gives the logits of every position at once; MPI ranks generate token
by token, as a user's do.
"""
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from minitp.commands.prompts import PromptSource
from minitp.commands.session import ModelOptions, open_generation
from minitp.generate import Generation, run
from tests.mpi_world import run_threads

pytestmark = pytest.mark.smollm2
REFERENCE = np.load(Path(__file__).parent / "reference" / "smollm2.npz")
PROMPTS = ("plain", "chat", "mixed")


def replay(comm, path: str, prompt: str) -> np.ndarray:
    """(P + 63, V) logits of the prompt and its known continuation, in one pass."""
    ids = [*REFERENCE[f"{prompt}_prompt"].tolist(), *REFERENCE[f"{prompt}_greedy"].tolist()[:-1]]
    source = PromptSource(tokens=(",".join(map(str, ids)),))
    session, request = open_generation(comm, ModelOptions(path), source, max_tokens=0, keep_logits=True)
    generation = Generation(session.model, session.weights, request)
    run(generation)
    return generation.kept_logits() if comm.rank == comm.size - 1 else np.zeros(0)


def check_logits(logits: np.ndarray, prompt: str) -> None:
    """Of every position, or of the first ones."""
    at, n = REFERENCE["vocabulary"], len(logits)
    assert np.abs(logits[:, at] - REFERENCE[f"{prompt}_logits"][:n]).max() < 1e-3
    assert np.abs(logits.max(-1) - REFERENCE[f"{prompt}_max"][:n]).max() < 1e-3
    assert (logits.argmax(-1) == REFERENCE[f"{prompt}_argmax"][:n]).all()


@pytest.mark.parametrize("ranks, prompt", [
    (1, "chat"), (2, "mixed"), pytest.param(3, "plain", marks=pytest.mark.slow),      # 3 ranks: on MPI, below
    pytest.param(4, "plain", marks=pytest.mark.slow), (5, "plain"), pytest.param(7, "plain", marks=pytest.mark.slow)])
def test_logits_equal_an_independent_evaluation(smollm2_path, ranks, prompt):
    logits = run_threads(replay, ranks, deadline=120.0, path=str(smollm2_path), prompt=prompt)[-1]
    check_logits(logits, prompt)
    if prompt == "plain":
        last = len(REFERENCE["plain_prompt"]) - 1
        assert np.abs(logits[last] - REFERENCE["plain_last"]).max() < 1e-3


def generate(*words: str) -> dict:
    ended = subprocess.run([sys.executable, "-m", "minitp", "generate", "--json", "--ignore-end", *words],
                           capture_output=True, text=True, timeout=240)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


@pytest.mark.slow
def test_with_the_sums_of_the_mlps_skipped_the_text_is_what_the_readme_says():
    prompt = "The capital of France is"
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    got = generate(prompt, "--ranks", "3", "--world", "threads", "--max-tokens", "3", "--break", "*.mlp.down")
    assert f'the capital of France is "{got["text"]}"' in readme and got["sync_points_per_token"] == 32
    one = generate(prompt, "--ranks", "3", "--world", "threads", "--max-tokens", "3", "--break", "layers.15.mlp.down")
    assert one["text"].startswith(" Paris") and one["sync_points_per_token"] == 61     # one of 30 is survived


def check_generation(tmp_path: Path, ranks: int, world: str, prompt: str, tokens: int = 64) -> None:
    file, trace = tmp_path / "logits.npy", tmp_path / "trace.json.gz"
    ids = ",".join(map(str, REFERENCE[f"{prompt}_prompt"]))
    got = generate("--tokens", ids, "--ranks", str(ranks), "--world", world, "--max-tokens", str(tokens),
                   "--logits", str(file), "--trace", str(trace))
    assert got["tokens"] == REFERENCE[f"{prompt}_greedy"].tolist()[:tokens]
    assert got["sync_points_per_token"] == 62
    gaps = REFERENCE[f"{prompt}_gap"][-64:][:tokens]
    assert got["smallest_gap"] == pytest.approx(gaps.min(), abs=1e-3)
    check_logits(np.load(file)[:-1], prompt)
    subprocess.run([sys.executable, "-m", "minitp", "trace", "check", str(trace)], check=True, timeout=60)


@pytest.mark.mpi
def test_20_tokens_on_three_mpi_ranks(smollm2_path, tmp_path):
    check_generation(tmp_path, 3, "mpi", "plain", tokens=20)


@pytest.mark.slow
@pytest.mark.parametrize("world", ["threads", pytest.param("mpi", marks=pytest.mark.mpi)])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 7])
@pytest.mark.parametrize("prompt", PROMPTS)
def test_64_tokens_on_any_number_of_ranks(smollm2_path, tmp_path, ranks, world, prompt):
    check_generation(tmp_path, ranks, world, prompt)


def test_text_goes_in_and_out(smollm2_path):
    """Through the tokenizer and the chat template, with a stop at the end token."""
    got = generate("--chat", "Explain in a few sentences why the sky is blue.", "--max-tokens", "12")
    assert got["prompt_tokens"] == REFERENCE["chat_prompt"].tolist()
    assert got["tokens"] == REFERENCE["chat_greedy"].tolist()[:12]
    assert got["text"] == "The sky is blue because of a process called Rayleigh scattering"
