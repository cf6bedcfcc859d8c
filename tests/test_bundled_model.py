"""The bundled model: small, of the shape that the code says, trained as its folder says, and it writes words."""
import csv
import platform
import re
from functools import cache

import numpy as np
import pytest

from minitp.checkpoint import open_checkpoint
from minitp.commands.train_run import new_learner
from minitp.config import TINY
from minitp.generate import Generation, Request, run
from minitp.model import Transformer
from minitp.models import Bundled
from minitp.placement import Placement
from minitp.sampling import Sampling
from minitp.tokenizer import ByteTokenizer
from minitp.train.config import TrainConfig, read_toml
from minitp.train.text import DEFAULT, open_text
from minitp.weights import load_weights
from tests.make_bundled_model import CURVE, FOLDER, LAST, MOST_BYTES
from tests.mpi_world import run_threads

PROMPTS = ("The ", "If a class ", "This is the ")
WORD = re.compile(r"[a-z]{4,}")            # shorter ones come about by chance


def written(comm, temperature: float, tokens: int = 120) -> list[list[int]]:
    placement = Placement(TINY, comm.size)
    weights = load_weights(open_checkpoint(FOLDER), placement, comm)
    prompts = tuple(tuple(ByteTokenizer().encode(prompt)) for prompt in PROMPTS)
    request = Request(prompts, tokens, Sampling(temperature, seed=0))
    return run(Generation(Transformer(TINY, placement, comm), weights, request))


def words(texts: list[list[int]]) -> list[str]:
    """Whole words of what was written; the last one may be cut off."""
    return [word for ids in texts for word in WORD.findall(ByteTokenizer().decode(ids).rpartition(" ")[0])]


@cache
def vocabulary() -> frozenset[str]:
    return frozenset(WORD.findall("".join(open_text(DEFAULT).pieces())))


@cache
def curve() -> list[dict[str, str]]:
    with open(FOLDER / CURVE, newline="") as file:
        return list(csv.DictReader(file))


def settings() -> TrainConfig:
    return TrainConfig.from_dict(read_toml(FOLDER / "train.toml"))


def share(found: list[str]) -> float:
    return sum(word in vocabulary() for word in found) / len(found)


@pytest.mark.parametrize(("temperature", "least"), [(0.0, 0.95), (0.3, 0.9), (0.5, 0.75)])
def test_it_writes_words_that_its_text_has(temperature, least):
    found = words(run_threads(written, 1, temperature=temperature)[0])
    assert len(found) >= 20 and share(found) >= least
    assert share([word[::-1] for word in found]) < 0.2                # letters alone make no words


@pytest.mark.parametrize("temperature", [0.0, 0.5])
def test_its_words_are_the_same_on_any_number_of_ranks(temperature):
    one = run_threads(written, 1, temperature=temperature, tokens=40)[0]
    for ranks in (2, 3, 5):
        assert all(texts == one for texts in run_threads(written, ranks, temperature=temperature, tokens=40))


def test_its_files_are_an_ordinary_checkpoint_of_the_one_config():
    assert open_checkpoint(FOLDER).config == TINY and Bundled("tiny").folder == FOLDER
    assert (FOLDER / "model.safetensors").stat().st_size <= MOST_BYTES
    assert settings().model.config(256, settings().train.tokens) == TINY


def test_its_folder_says_how_it_was_trained():
    """The command, the text, the Python that brings it; every step's loss; and all positions were trained."""
    text = (FOLDER / "README.md").read_text()
    assert "minitp train --config minitp/bundled/tiny/train.toml" in text and settings().train.tokens == TINY.positions
    assert re.search(r"SHA-256 [0-9a-f]{64}\b", text) and re.search(r"Python 3\.\d+\.\d+", text)
    assert [int(row["step"]) for row in curve()] == list(range(1, settings().train.steps + 1))
    losses = [float(row["loss"]) for row in curve()]
    assert f"{np.mean(losses[-LAST:]):.3f} as a mean of the last {LAST} steps" in text
    assert settings().folder != TrainConfig().folder            # what a first `minitp train` fills
    assert abs(losses[0] - np.log(256)) < 0.1 and np.mean(losses[-100:]) < 1.4
    evaluated = [float(row["validation_loss"]) for row in curve() if row["validation_loss"]]
    assert evaluated[-1] < 1.4 and evaluated[-1] == min(evaluated)


def first_losses(comm, steps: int) -> list[float]:
    config = settings()
    learner, corpus = new_learner(comm, config)
    train = config.train
    return [learner.step(step, corpus.batch(step, train.batch, train.tokens, train.seed)).loss for step in range(steps)]


@pytest.mark.slow
def test_a_few_steps_of_training_give_the_first_losses_of_the_curve():
    """On other numbers of ranks than the kept run too: sums in another order, so not to the last digit."""
    if open_text(DEFAULT).hashed() not in (FOLDER / "README.md").read_text():
        pytest.skip(f"the text that comes with Python {platform.python_version()} is another one")
    kept = [float(row["loss"]) for row in curve()[:30]]
    for ranks in (1, 2, 3):
        for losses in run_threads(first_losses, ranks, steps=len(kept)):
            np.testing.assert_allclose(losses, kept, rtol=1e-4)
