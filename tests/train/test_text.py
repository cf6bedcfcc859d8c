"""Where training text comes from, what is refused and how; tokenizers of a text, and the files they are kept in."""
import json
import platform
import tempfile
from pathlib import Path
from shutil import copyfile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from minitp.cli import app
from minitp.errors import ConfigError, FileFormatError
from minitp.models import Bundled
from minitp.tokenizer import ByteTokenizer, Tokenizer
from minitp.train import text as module
from minitp.train.text import DEFAULT, open_text, train_bpe


def whole(source):
    return "".join(open_text(source).pieces())


# ── sources ──

def test_the_default_is_the_reference_inside_python():
    from pydoc_data.topics import topics
    text = open_text()
    assert whole(DEFAULT) == whole(None) == "\n\n".join(topics[name] for name in sorted(topics))
    assert text.record() == {"name": DEFAULT, "sha256": text.hashed(), "files": 0, "python": platform.python_version()}
    assert len(text.hashed()) == 64


def test_a_file_of_any_name_is_read_as_it_is(tmp_path):
    path = tmp_path / "letters.dat"
    path.write_bytes("\ufeffaé\r\nb\n\n🙂".encode())
    assert whole(path) == "aé\r\nb\n\n🙂", "only the byte order mark goes"
    assert open_text(str(path)).record() == {"name": str(path), "sha256": open_text(path).hashed(), "files": 1}


def test_a_folder_is_read_by_name(tmp_path):
    for name, text in (("b.txt", "second"), ("a/z.MD", "first"), ("c.rst", "third"), ("c.py", "code"),
                       ("empty.txt", ""), (".hidden.txt", "x"), (".git/in.txt", "x")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert whole(tmp_path) == "first\n\nsecond\n\nthird"
    assert open_text(tmp_path).record()["files"] == 3


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), st.integers(1, 9))
def test_pieces_join_to_the_text_wherever_they_are_cut(text, size):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PIECE", size)                              # cuts inside characters, too
        path = Path(folder, "x")
        path.write_bytes(b"." + text.encode())
        assert whole(path) == "." + text


@pytest.mark.parametrize(("data", "says"), [
    (b"good\nbad \xff\n", "byte 9 isn't UTF-8.*iconv"), (b"ab\0c", "byte 2 is a NUL"),
    ("é".encode() + b"a\xe2\x82", "byte 3 begins a character that never ends"),
    ("text".encode("utf-16"), "UTF-16.*iconv"), (b"x" * 90 + b"\xe2\x28\xa1", "byte 90 isn't UTF-8")])
@pytest.mark.parametrize("piece", [4, 1 << 20])
def test_what_is_no_text_is_refused_by_name_and_place(tmp_path, monkeypatch, data, says, piece):
    monkeypatch.setattr(module, "PIECE", piece)
    (tmp_path / "bad.txt").write_bytes(data)
    (tmp_path / "a.txt").write_text("fine")
    for source in (tmp_path, tmp_path / "bad.txt"):
        with pytest.raises(FileFormatError, match=rf"bad\.txt.*{says}"):
            whole(source)


def test_nothing_to_read_is_an_error_that_helps(tmp_path):
    with pytest.raises(ConfigError, match=r"no text nowhere\.txt \(seen from .*\.md.*pydoc_data\.topics"):
        open_text("nowhere.txt")
    (tmp_path / "empty.txt").touch()
    with pytest.raises(ConfigError, match="empty"):
        open_text(tmp_path / "empty.txt")
    (tmp_path / "a.py").write_text("x")
    with pytest.raises(ConfigError, match=r"holds no text.*it holds 1 with \.py.*may have any name"):
        open_text(tmp_path)


# ── tokenizers ──

@pytest.fixture(scope="module")
def bpe():
    return train_bpe(open_text(), 400)


@pytest.fixture(scope="module", params=["bytes", "bpe"])
def saved(request, bpe, tmp_path_factory):
    """(a tokenizer, the same from its folder)"""
    folder = tmp_path_factory.mktemp("tokenizer")
    tokenizer = ByteTokenizer() if request.param == "bytes" else bpe
    tokenizer.save(folder)
    return tokenizer, Tokenizer.from_folder(folder)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_saved_tokenizer_gives_the_same_ids(saved, text):
    tokenizer, again = saved
    ids = tokenizer.encode(text)
    assert again.encode(text) == ids and again.decode(ids) == text == tokenizer.decode(ids)
    assert again.dropped(text) == 0


def test_a_saved_tokenizer_is_the_same_in_all_else(saved):
    tokenizer, again = saved
    assert again.digest == tokenizer.digest and again.vocab_size == tokenizer.vocab_size
    assert again.bos is None and again.end_tokens == () and not again.special_tokens
    stream = again.stream()
    halves = [stream.feed(token) for token in tokenizer.encode("🙂")]
    assert "".join(halves) == "🙂" and "\ufffd" not in halves
    assert again.decode(tokenizer.encode("a🙂")[:-1]) == "a\ufffd"
    assert [again.token_bytes(token) for token in tokenizer.encode("é")] == [
        tokenizer.token_bytes(token) for token in tokenizer.encode("é")]


def test_the_ids_of_bytes_are_their_values_in_the_file_too(tmp_path):
    ByteTokenizer().save(tmp_path)
    again = Tokenizer.from_folder(tmp_path)
    assert [again.token_bytes(i) for i in range(256)] == [bytes([i]) for i in range(256)]


def test_a_text_gives_one_bpe(bpe):
    assert train_bpe(open_text(), 400).digest == bpe.digest != train_bpe(open_text(), 401).digest
    assert bpe.vocab_size == 400 and len(bpe.encode("statement")) < 5
    with pytest.raises(ConfigError, match="255 can't spell every text"):
        train_bpe(open_text(), 255)


def test_a_short_text_gives_fewer_tokens(tmp_path):
    (tmp_path / "x").write_text("abab")
    assert 256 < train_bpe(open_text(tmp_path / "x"), 1000).vocab_size < 270


def test_a_folder_with_a_saved_byte_tokenizer_continues_a_text(tmp_path):
    """The bundled model from a folder says what it says by its name."""
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("config.json", "model.safetensors"):
        copyfile(Bundled("tiny").folder / name, folder / name)
    ByteTokenizer().save(folder)
    rows = [json.loads(CliRunner().invoke(app, ["generate", "-m", model, "--world", "threads", "--json", "--max-tokens",
                                                "9", "zoë"], catch_exceptions=False).stdout)
            for model in (str(folder), "tiny")]
    assert rows[0]["text"] == rows[1]["text"] and rows[0]["prompt_tokens"] == list("zoë".encode())
