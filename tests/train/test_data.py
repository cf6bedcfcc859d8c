"""The windows that steps take: each once an epoch, whatever the grouping, wherever a run goes on; the prepared file."""
import multiprocessing
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitp.errors import ConfigError, FileFormatError
from minitp.tokenizer import ByteTokenizer
from minitp.train import prepared
from minitp.train.data import Corpus, open_corpus
from minitp.train.prepared import bpe, cache_folder, open_tokens, prepare
from minitp.train.text import open_text, train_bpe
from tests.mpi_world import run_threads


def corpus_of(length, validation=0.0):
    """Token number i is i: a window says where it began."""
    return Corpus(np.arange(length), {"text": {"name": "numbers", "sha256": "0"}, "largest": length - 1,
                                      "tokenizer": "numbers", "sha256": "1"}, validation)


SEEDS = st.integers(0, 2**63)


# ── which windows ──

@given(st.integers(2, 400), st.integers(1, 30), SEEDS, st.integers(0, 3))
def test_every_window_comes_once_an_epoch(length, tokens, seed, epoch):
    corpus = corpus_of(max(length, tokens + 1))
    windows = corpus.windows(tokens)
    rows = corpus.batch(epoch, windows, tokens, seed)                     # a batch as large as an epoch is one
    starts = np.sort(rows[:, 0])
    assert (np.diff(starts) == tokens).all(), "side by side: each target is predicted once"
    assert (rows == rows[:, :1] + np.arange(tokens + 1)).all()
    left = len(corpus.tokens) - 1 - windows * tokens
    assert left >= 0 and (left < 2 * tokens)


@given(st.integers(20, 300), st.integers(1, 9), SEEDS, st.data())
def test_a_step_takes_the_same_windows_however_they_are_grouped(length, tokens, seed, draw):
    corpus, size = corpus_of(length), draw.draw(st.sampled_from([1, 2, 3, 4, 6]))
    whole = corpus.batch(0, 12, tokens, seed)
    parts = [corpus.batch(step, size, tokens, seed) for step in range(12 // size)]
    assert (np.concatenate(parts) == whole).all()
    at = draw.draw(st.integers(0, 11))                                    # and a run that goes on there
    assert (replace(corpus).batch(at, 1, tokens, seed) == whole[at]).all()


def test_epochs_differ_in_order_and_borders_and_seeds_differ():
    corpus = corpus_of(1000)
    windows = corpus.windows(10)
    epochs = [corpus.batch(e, windows, 10, 0)[:, 0] for e in range(6)]
    assert len({tuple(e) for e in epochs}) == 6 and len({int(e.min()) for e in epochs}) > 2
    assert all((np.diff(e) != 10).sum() > windows / 2 for e in epochs), "shuffled"
    assert (corpus.batch(0, windows, 10, 1)[:, 0] != epochs[0]).any()


def test_the_order_is_frozen():
    """A checkpoint goes on with these windows under any later version of NumPy and of minitp."""
    assert corpus_of(100).batch(0, 8, 10, seed=7)[:, 0].tolist() == FROZEN
    assert corpus_of(100).batch(3, 3, 10, seed=2**63)[:, 0].tolist() == FROZEN_LATER


FROZEN, FROZEN_LATER = [8, 88, 48, 38, 78, 58, 28, 68], [19, 9, 79]


def test_the_last_share_evaluates_in_the_texts_order():
    corpus = corpus_of(100, validation=0.25)
    assert corpus.part("train").tolist() == list(range(75))
    assert corpus.part("validation").tolist() == list(range(75, 100))
    assert corpus.batch(0, 2, 8, seed=5, split="validation")[:, 0].tolist() == [75, 83]
    assert (corpus.batch(0, 2, 8, 5, "validation") == corpus.batch(0, 2, 8, 6, "validation")).all()
    seen = np.concatenate([corpus.batch(step, 4, 8, 0).ravel() for step in range(40)])
    assert seen.max() < 75


def test_all_ranks_take_the_same_number_of_steps():
    """Hard case E20: 10 samples in batches of 4 are 2 steps, of 1 sample 1, everywhere; the windows left over wait."""
    ten = corpus_of(11 * 5 + 1)
    assert ten.windows(5) == 10 and [ten.batches(batch, 5) for batch in (1, 3, 4, 10, 16)] == [10, 3, 2, 1, 1]
    assert ten.batch(0, 16, 5, 0).shape == (16, 6), "more rows than windows: the next epoch begins"


# ── refusals ──

def test_too_little_text_is_refused_with_the_numbers():
    corpus = corpus_of(100, validation=0.1)
    corpus.check(9, 100)
    assert corpus.windows(89) == 1
    with pytest.raises(ConfigError, match=r"train part of numbers.*has 90 of its 100 tokens.*90 tokens needs 91"):
        corpus.check(90, 100)
    with pytest.raises(ConfigError, match=r"validation part.*the last 10%.*has 10 of.*larger share"):
        corpus.check(10, 100)
    with pytest.raises(ConfigError, match="window of 0"):
        corpus.windows(0)


def test_ids_above_the_models_vocabulary_are_refused():
    with pytest.raises(ConfigError, match=r"up to id 99.*vocabulary has 99 rows, the last one 98.*at most 99"):
        corpus_of(100).check(9, 99)


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_a_share_that_cannot_be_is_refused(share):
    with pytest.raises(ConfigError, match="between 0 and 1"):
        corpus_of(9, share)


def test_going_on_with_other_data_is_refused():
    corpus = corpus_of(100)
    corpus.check_same(corpus.record())
    for change, says in (({"text": {"sha256": "9"}}, "isn't the one"), ({"text": {}}, "isn't the one"),
                         ({"sha256": "9"}, "tokenizer"), ({"validation": 0.5}, "share of 0.5")):
        with pytest.raises(ConfigError, match=says):
            corpus.check_same(corpus.record() | change)
    default = replace(corpus, facts=corpus.facts | {"text": {"name": "p", "sha256": "0", "python": "3.12.1"}})
    with pytest.raises(ConfigError, match=r"differs between Python versions, here 3\.12\.1 and 3\.9\.1"):
        default.check_same(corpus.record() | {"text": {"sha256": "9", "python": "3.9.1"}})


# ── prepared once ──

@pytest.fixture
def text(tmp_path, model_cache):
    """A text, and a cache of this test's own."""
    (tmp_path / "text.txt").write_text("The cat sat on the mat. Zoë too.\n" * 90)
    return open_text(tmp_path / "text.txt")


def as_bytes(text, progress):
    return ByteTokenizer()


@pytest.mark.parametrize("make", [as_bytes, lambda text, progress: train_bpe(text, 270, progress)])
def test_the_ids_of_the_file_are_the_texts(text, make):
    tokenizer = make(text, None)
    path, ids, header = prepare(text, tokenizer)
    assert tokenizer.decode(ids.tolist()) == "".join(text.pieces())
    assert isinstance(ids, np.memmap) and ids.dtype == np.uint16 and header["largest"] == int(ids.max())
    made = path.stat().st_mtime_ns
    assert prepare(text, tokenizer)[0].stat().st_mtime_ns == made, "once"


def test_a_large_vocabulary_takes_four_bytes(text):
    class Far(ByteTokenizer):
        vocab_size = 70_000
        digest = "far"

        def encode(self, text, special=False):
            return [69_000 + byte % 100 for byte in text.encode()]

    _, ids, header = prepare(text, Far())
    assert ids.dtype == np.uint32 and header["largest"] == 69_099


def test_a_file_that_is_not_whole_is_made_anew(text):
    path, ids, _ = prepare(text, ByteTokenizer())
    good, ids = path.read_bytes(), ids.tolist()
    for bad in (good[:-1], b"", b"x" * 5000, good[:5000] + b"\xff\xff" + good[5002:], good.replace(b"<u2", b"|O8")):
        path.write_bytes(bad)
        with pytest.raises(FileFormatError):
            open_tokens(path)
        leftover = path.with_name(f".{path.name}.abc.partial")
        leftover.touch()
        assert prepare(text, ByteTokenizer())[1].tolist() == ids and not leftover.exists()


def test_a_text_that_changes_is_another_text(text, tmp_path):
    before = prepare(text, ByteTokenizer())[0]
    (tmp_path / "text.txt").write_text("Another.\n" * 9)
    again = open_text(tmp_path / "text.txt")
    assert prepare(again, ByteTokenizer())[0] != before
    (tmp_path / "text.txt").write_text("Changed between.\n" * 9)
    again._sha256 = "0" * 64
    with pytest.raises(ConfigError, match="changed while it was read"):
        prepare(again, ByteTokenizer())
    assert not list(before.parent.glob(".*.partial"))


def test_a_tokenizer_is_trained_once_for_a_text_and_a_size(text, monkeypatch):
    first = bpe(text, 270)
    assert first.digest == train_bpe(text, 270).digest and first.name == "BPE of 270 tokens"
    trained = []
    monkeypatch.setattr(prepared, "train_bpe", lambda *asked: trained.append(asked) or train_bpe(*asked))
    again = bpe(text, 270)
    assert (again.digest, again.name, trained) == (first.digest, first.name, [])
    folder, = cache_folder().glob("*.bpe")
    (folder / "tokenizer.json").write_text("{")
    folder.with_name(f".{folder.name}.abc.partial").mkdir()
    assert bpe(text, 270).digest == first.digest and len(trained) == 1, "damaged: made anew"
    assert bpe(text, 280).digest != first.digest and not list(cache_folder().glob(".*"))


def _prepare_in_process(path, queue):
    queue.put(prepare(open_text(path), ByteTokenizer())[2]["sha256"])


def test_two_processes_at_once_are_safe(text):
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    workers = [context.Process(target=_prepare_in_process, args=(text.parts[0], queue)) for _ in range(3)]
    for worker in workers:
        worker.start()
    found = {queue.get(timeout=120) for _ in workers}
    for worker in workers:
        worker.join()
    assert len(found) == 1 and len(list(cache_folder().glob("*.tokens"))) == 1


def test_a_cache_that_cannot_be_written_says_how_to_move_it(text, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("MINITP_CACHE", str(tmp_path / "file"))
    with pytest.raises(ConfigError, match="MINITP_CACHE=FOLDER"):
        prepare(text, ByteTokenizer())


# ── on the ranks ──

def _batches(comm, source, seed):
    corpus, tokenizer = open_corpus(comm, source, as_bytes, 0.2)
    assert (tokenizer is None) == (comm.rank > 0)
    return [corpus.batch(step, 3, 16, seed) for step in range(4)], corpus.record()


def test_all_ranks_read_the_same(text):
    (alone, record), = run_threads(_batches, 1, source=text.parts[0], seed=3)
    for batches, facts in run_threads(_batches, 3, source=text.parts[0], seed=3):
        assert facts == record and facts["tokenizer"] == "bytes" and facts["text"]["files"] == 1
        assert all((mine == his).all() for mine, his in zip(batches, alone, strict=True))


def test_an_error_is_one_error_of_all_ranks(tmp_path, model_cache):
    def body(comm):
        with pytest.raises(ConfigError, match="no text"):
            open_corpus(comm, tmp_path / "none", as_bytes)
        return True
    assert run_threads(body, 3) == [True] * 3


def test_a_rank_that_sees_another_file_says_so(text):
    path, _, header = prepare(text, ByteTokenizer())
    with pytest.raises(FileFormatError, match="remove it"):
        open_tokens(path, "0" * 64)
    path.unlink()
    with pytest.raises(FileFormatError, match="shared"):
        open_tokens(path, header["sha256"])
