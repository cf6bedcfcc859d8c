"""What tokenizers are read from: how each kind cuts words, metadata that can't be, folders whole and hostile."""
import json
import unicodedata

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Backend

from minitp.errors import FileFormatError
from minitp.tokenizer import Tokenizer
from minitp.tokenizer_files import WORDS, pre_tokenizer
from tests.gguf_metadata import small_gguf

# ── how text is cut into words, which merges never cross ──

@pytest.mark.parametrize("pre, text, words", [
    ("gpt-2", "3333+777", ["3333", "+", "777"]),
    ("smollm", "3333+777", [*"3333", "+", *"777"]),
    ("llama-bpe", "3333+777", ["333", "3", "+", "777"]),
    ("qwen2", "3333+777", [*"3333", "+", *"777"]),
    ("gpt-2", "I'll I'LL", ["I", "'ll", " I", "'", "LL"]),
    ("llama-bpe", "I'll I'LL", ["I", "'ll", " I", "'LL"]),
    ("smollm", " ½x", [" ", "½", "x"]),
    ("gpt-2", "a   b\t\tc", ["a", "  ", " b", "\t", "\t", "c"]),
    ("llama-bpe", "a   b\t\tc", ["a", "  ", " b", "\t", "\tc"]),
    ("gpt-2", "x\r\ny", ["x", "\r", "\n", "y"]),
    ("llama-bpe", "x \r\n\r\ny!\n\nz", ["x", " \r\n\r\n", "y", "!\n\n", "z"]),
    ("qwen2", "naïve (café)", ["naïve", " (", "café", ")"]),
    ("llama-bpe", " ２３४५", [" ", "２３४", "५"]),
])
def test_words(pre, text, words):
    assert cut(pre, text) == words


def cut(pre, text):
    """The words, by the library's offsets, which count characters."""
    return [text[start:end] for _, (start, end) in pre_tokenizer(pre).pre_tokenize_str(text)]


@pytest.mark.parametrize("pre", ["llama-bpe", "qwen2"])
@given(text=st.text(st.sampled_from("aZé漢 \t\r\n\u00a0'sSlLtT09½५.!_🙂\u0301"), max_size=40))
def test_words_equal_another_engines(pre, text):
    assert cut(pre, text) == regex.findall(WORDS[pre], text)


def test_llama_takes_whole_words_of_the_vocabulary_before_merges():
    metadata = small_gguf("llama-bpe", merges=(), added=())
    metadata["tokenizer.ggml.tokens"].append("zz")         # a token that no merge makes
    metadata["tokenizer.ggml.token_type"].append(1)
    assert len(Tokenizer.from_gguf(metadata).encode("zz")) == 1


def test_qwen_composes_accents():
    tokenizer = Tokenizer.from_gguf(small_gguf("qwen2"))
    assert tokenizer.decode(tokenizer.encode("e\u0301")) == unicodedata.normalize("NFC", "e\u0301")


# ── GGUF metadata that can't be ──

@pytest.mark.parametrize("key, value, message", [
    ("pre", None, "no tokenizer.ggml.pre.*gpt-2, smollm, llama-bpe, qwen2"),
    ("pre", "falcon", "'falcon'; minitp knows gpt-2"),
    ("pre", ["smollm"], "minitp knows"),
    ("model", "llama", "'llama'; minitp reads 'gpt2'"),
    ("model", None, "minitp reads 'gpt2'"),
    ("tokens", None, "tokens must be a list of strings"),
    ("tokens", ["a", 1], "tokens must be a list of strings"),
    ("tokens", ["a", "a"], "types"),
    ("merges", "a b", "merges must be a list of strings"),
    ("merges", ["ab"], "two pieces and a space"),
    ("merges", ["a b c"], "two pieces and a space"),
    ("merges", ["a ☃"], "make no tokenizer"),
    ("token_type", [1], "types"),
    ("eos_token_id", 10**6, "eos_token_id is 1000000"),
    ("bos_token_id", -1, "bos_token_id is -1"),
    ("bos_token_id", "<s>", "bos_token_id is '<s>'"),
])
def test_a_gguf_that_breaks_the_rules_is_refused(key, value, message):
    metadata = small_gguf()
    metadata["tokenizer.ggml." + key] = value
    with pytest.raises(FileFormatError, match=message):
        Tokenizer.from_gguf(metadata)


def test_a_token_named_twice_is_refused():
    metadata = small_gguf()
    metadata["tokenizer.ggml.tokens"][1] = metadata["tokenizer.ggml.tokens"][0]
    with pytest.raises(FileFormatError, match=r"1 token\(s\) twice"):
        Tokenizer.from_gguf(metadata)


# ── folders ──

def write_folder(folder, backend=None, **files):
    """A checkpoint folder's tokenizer files, by stem."""
    (backend or Tokenizer.from_gguf(small_gguf())._backend).save(str(folder / "tokenizer.json"))
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def test_ends_come_from_all_files_and_bos_from_the_post_processor(tmp_path):
    backend = Tokenizer.from_gguf(small_gguf())._backend
    bos = backend.token_to_id("<|bos|>")
    backend.post_processor = processors.TemplateProcessing(single="<|bos|> $A", special_tokens=[("<|bos|>", bos)])
    write_folder(tmp_path, backend, config={"bos_token_id": bos, "eos_token_id": 1},
                 generation_config={"eos_token_id": [5, 6, 10**6]}, special_tokens_map={"eos_token": {"content": "b"}})
    tokenizer = Tokenizer.from_folder(tmp_path)
    assert tokenizer.bos == bos and tokenizer.add_bos
    b = backend.token_to_id("b")
    assert tokenizer.end_tokens == (b, 5, 6, backend.token_to_id("<|im_end|>"))
    write_folder(tmp_path, backend, tokenizer_config={"add_bos_token": False})
    assert not Tokenizer.from_folder(tmp_path).add_bos


def test_sentencepiece_style_pieces(tmp_path):
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "▁hi", "h", "i", "▁h"]
    backend = Backend(models.BPE({piece: i for i, piece in enumerate(pieces)}, [("▁", "h"), ("▁h", "i")],
                                 unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                         decoders.Strip(" ", 1, 0)])
    backend.add_special_tokens([AddedToken(token, normalized=False) for token in pieces[:3]])
    tokenizer = Tokenizer.from_folder(write_folder(tmp_path, backend, config={"bos_token_id": 1, "eos_token_id": 2}))
    for text in ("hi", "hi hi", " hi", "🙂 é\n", ""):
        assert tokenizer.decode(tokenizer.encode(text)) == text == backend.decode(backend.encode(text).ids)
    assert tokenizer.end_tokens == (2,) and tokenizer.token_bytes(pieces.index("▁hi")) == b" hi"


@pytest.mark.parametrize("template", [
    "T", [{"name": "tools", "template": "no"}, {"name": "default", "template": "T"}, "noise"]])
def test_a_folders_template(tmp_path, template):
    write_folder(tmp_path, tokenizer_config={"chat_template": template})
    assert Tokenizer.from_folder(tmp_path).chat([{"role": "user", "content": ""}]) == "T"
    (tmp_path / "chat_template.jinja").write_text("own")
    assert Tokenizer.from_folder(tmp_path).chat([{"role": "user", "content": ""}]) == "own"


HOSTILE = {
    "empty": b"", "null": b"null", "list": b"[]", "not text": b"\xff\xfe\x00", "deep": b"[" * 1000,
    "deep object": b'{"model":' * 1000, "no model": b'{"version": "1.0"}',
    "wrong types": b'{"version": "1.0", "model": {"type": "BPE", "vocab": [1], "merges": {}}}',
    "huge id": b'{"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 99999999999999}, "merges": []}}',
    "merge of nothing": b'{"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["x y"]}}',
    "no decoder": b'{"version": "1.0", "added_tokens": [], "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}',
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_tokenizer_json_is_a_format_error(tmp_path, data):
    (tmp_path / "tokenizer.json").write_bytes(data)
    with pytest.raises(FileFormatError):
        Tokenizer.from_folder(tmp_path)


def test_a_truncated_tokenizer_json_is_a_format_error(tmp_path):
    path = write_folder(tmp_path) / "tokenizer.json"
    whole = path.read_bytes()
    for length in range(0, len(whole), len(whole) // 23):
        path.write_bytes(whole[:length])
        with pytest.raises(FileFormatError):
            Tokenizer.from_folder(tmp_path)


def test_a_mutated_tokenizer_json_works_or_is_a_format_error(tmp_path):
    path = write_folder(tmp_path) / "tokenizer.json"
    original = json.loads(path.read_text())
    for key in original:
        for value in (None, 1, -1, "x", [], {}, [[]], {"type": "x"}, True, 1e300):
            path.write_text(json.dumps(original | {key: value}))
            try:
                Tokenizer.from_folder(tmp_path).encode("a b")
            except FileFormatError:
                continue


@pytest.mark.parametrize("name", ["config", "generation_config", "tokenizer_config", "special_tokens_map"])
@pytest.mark.parametrize("data", [b"{", b"[1]", b"\xff", b'{"a":' * 2000, b'{"eos_token_id": [[]], "bos_token_id": {}}',
                                  b'{"eos_token": 3, "bos_token": [], "chat_template": 7, "add_bos_token": "yes"}'])
def test_hostile_files_beside_it(tmp_path, name, data):
    (write_folder(tmp_path) / f"{name}.json").write_bytes(data)
    try:
        Tokenizer.from_folder(tmp_path)
    except FileFormatError:
        return
    assert data.startswith(b'{"eos')


def test_files_beyond_the_bound_are_not_read(tmp_path):
    with (write_folder(tmp_path) / "tokenizer.json").open("r+b") as file:
        file.truncate(1 << 33)                              # sparse: no disk is used
    with pytest.raises(FileFormatError, match=r"over minitp.s cap of 134,217,728"):
        Tokenizer.from_folder(tmp_path)


def test_folders_without_a_tokenizer_or_with_an_unknown_decoder_say_so(tmp_path):
    with pytest.raises(FileFormatError, match=r"no tokenizer\.json"):
        Tokenizer.from_folder(tmp_path)
    backend = Backend(models.WordLevel({"a": 0}))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.Whitespace(), decoders.WordPiece()
    with pytest.raises(FileFormatError, match="decoder is WordPiece"):
        Tokenizer.from_folder(write_folder(tmp_path, backend))


# ── written and read again ──

@pytest.mark.parametrize("pre", list(WORDS))
def test_a_saved_tokenizer_is_the_same(tmp_path, pre):
    before = Tokenizer.from_gguf(small_gguf(pre))
    before.save(tmp_path)
    after = Tokenizer.from_folder(tmp_path)
    for text in ("3333+777 don't", "  a\t\r\n", "naïve ½ 漢字 🙂", "<|im_start|>user"):
        assert after.encode(text) == before.encode(text)
        assert after.encode(text, special=True) == before.encode(text, special=True)
    for name in ("bos", "add_bos", "end_tokens", "special_tokens", "chat_template", "vocab_size"):
        assert getattr(after, name) == getattr(before, name), name
