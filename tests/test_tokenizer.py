"""The tokenizers against an independent program's ids and the library's own decoder; BOS, ends, streams."""
import json
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from minitp.errors import ConfigError
from minitp.tokenizer import ByteTokenizer, Tokenizer
from tests.gguf_metadata import read_metadata, small_gguf

REFERENCE = json.loads((Path(__file__).parent / "reference" / "smollm2_tokens.json").read_text())
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]))
SHARED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@pytest.fixture(scope="module")
def metadata(smollm2_path):
    return read_metadata(smollm2_path)


@pytest.fixture(scope="module")
def smollm2(metadata):
    return Tokenizer.from_gguf(metadata)


# ── SmolLM2 ──

@pytest.mark.smollm2
@pytest.mark.filterwarnings("ignore:.*have no token")
@pytest.mark.parametrize("case", REFERENCE["cases"], ids=lambda case: ascii(case["text"])[:30])
def test_ids_equal_the_independent_program(smollm2, case):
    assert smollm2.encode(case["text"], special=True) == case["ids"]
    assert smollm2.decode(case["ids"], special=True) == case.get("decoded", case["text"])


@pytest.mark.smollm2
def test_what_has_no_token_is_counted_and_warned_of(smollm2):
    lost = [byte for byte in range(0x80) if smollm2.dropped(chr(byte))]
    assert lost == [byte for byte in REFERENCE["dropped_bytes"] if byte < 0x80] == [4, 6, 19, 20, 22, 29]
    assert smollm2.dropped("a\x04b\x04 ok") == 2 and smollm2.dropped("all of it") == 0
    with pytest.warns(UserWarning, match="2 byte"):
        assert smollm2.decode(smollm2.encode("a\x04b\x04 ok")) == "ab ok"


@pytest.mark.smollm2
@SHARED
@given(ANY_TEXT)
def test_round_trip(smollm2, text):
    text = "".join(character for character in text if not smollm2.dropped(character))
    assert smollm2.decode(smollm2.encode(text)) == text
    assert smollm2.decode(smollm2.encode(text, special=True), special=True) == text


@pytest.mark.smollm2
@SHARED
@given(st.lists(st.integers(0, 49_151) | st.integers(17, 300), max_size=30))
def test_decoding_equals_the_librarys(smollm2, ids):
    for special in (False, True):
        kept = [i for i in ids if special or i not in smollm2.special_tokens]
        assert smollm2.decode(ids, special) == b"".join(map(smollm2.token_bytes, kept)).decode(errors="replace")
        assert smollm2.decode(ids, special) == smollm2._backend.decode(ids, skip_special_tokens=not special)


@pytest.mark.smollm2
def test_an_emoji_streams_as_one(smollm2):
    ids = smollm2.encode("x 🙂 👩‍👩‍👧‍👦!")
    stream = smollm2.stream()
    pieces = [stream.feed(i) for i in ids]
    assert "" in pieces and "\ufffd" not in "".join(pieces) and "".join(pieces) == "x 🙂 👩‍👩‍👧‍👦!"
    assert stream.finish() == ""
    cut = smollm2.stream()
    started = "".join(map(cut.feed, smollm2.encode("🙂")[:-1]))
    assert started + cut.finish() == "\ufffd"


@pytest.mark.smollm2
def test_control_tokens_need_to_be_asked_for(smollm2):
    typed, meant = smollm2.encode("a<|im_end|>"), smollm2.encode("a<|im_end|>", special=True)
    assert 2 not in typed and smollm2.decode(typed) == "a<|im_end|>"
    assert meant[-1] == 2 and smollm2.decode(meant) == "a" and smollm2.decode(meant, special=True) == "a<|im_end|>"
    assert (smollm2.bos, smollm2.add_bos, smollm2.end_tokens, smollm2.vocab_size) == (1, False, (2, 0), 49_152)
    assert smollm2.special_tokens == frozenset(range(17))


@pytest.mark.smollm2
def test_chat_writes_the_models_template(smollm2):
    prompt = smollm2.chat([{"role": "user", "content": "What is 17+25?"}])
    assert prompt in {case["text"] for case in REFERENCE["cases"]}
    assert smollm2.chat([{"role": "system", "content": "Short."}, {"role": "user", "content": "Hi"}]) == (
        "<|im_start|>system\nShort.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")


@pytest.mark.smollm2
def test_building_is_quick(metadata):
    best = min(_timed(lambda: Tokenizer.from_gguf(metadata)) for _ in range(3))
    assert best < 2, "0.06 s when measured; 6 s would be a metadata array read item by item"


def _timed(act):
    start = time.thread_time()
    act()
    return time.thread_time() - start


@pytest.mark.smollm2
def test_a_folder_gives_the_same_tokenizer(smollm2, tmp_path):
    smollm2._backend.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(
        {"bos_token": "<|im_start|>", "eos_token": {"content": "<|im_end|>"}, "chat_template": smollm2.chat_template}))
    folder = Tokenizer.from_folder(tmp_path)
    for name in ("bos", "add_bos", "end_tokens", "special_tokens", "vocab_size", "chat_template"):
        assert getattr(folder, name) == getattr(smollm2, name)
    for case in REFERENCE["cases"][:60]:
        if not smollm2.dropped(case["text"]):
            assert folder.encode(case["text"], special=True) == case["ids"]


# ── BOS, ends, prompts ──

def test_bos_is_added_where_the_model_wants_it_and_once():
    plain, wants = Tokenizer.from_gguf(small_gguf()), Tokenizer.from_gguf(small_gguf(add_bos_token=True))
    llama = Tokenizer.from_gguf(small_gguf("llama-bpe"))
    assert (plain.add_bos, wants.add_bos, llama.add_bos) == (False, True, True)
    assert plain.prompt("x") == plain.encode("x") and wants.prompt("x") == [wants.bos, *wants.encode("x")]
    assert wants.prompt("<|bos|>x", special=True).count(wants.bos) == 1


def test_an_empty_prompt_is_bos_or_a_friendly_refusal():
    assert Tokenizer.from_gguf(small_gguf()).prompt("") == [Tokenizer.from_gguf(small_gguf()).bos]
    with pytest.raises(ConfigError, match=r"no BOS token.*at least one character"):
        ByteTokenizer().prompt("")
    assert Tokenizer.from_gguf(small_gguf()).prompt(" ") != []


def test_added_tokens_that_are_no_control_tokens_are_text():
    tokenizer = Tokenizer.from_gguf(small_gguf())
    ids = tokenizer.encode("ab<tool>")
    assert len(ids) == 2 and tokenizer.decode(ids) == "ab<tool>" and ids[-1] not in tokenizer.special_tokens


def test_end_tokens_are_those_named_and_those_of_known_name():
    tokenizer = Tokenizer.from_gguf(small_gguf(eos_token_id=3, eot_token_id=4, eom_token_id=3))
    assert tokenizer.end_tokens == (3, 4, tokenizer.encode("<|im_end|>", special=True)[0])
    assert tokenizer.decode([3, 4]) == "" and tokenizer.decode([3], special=True) != ""


@pytest.mark.parametrize("tokenizer", [ByteTokenizer(), Tokenizer.from_gguf(small_gguf())], ids=["bytes", "bpe"])
def test_ids_beyond_the_vocabulary_are_no_bytes_and_negative_ones_an_error(tokenizer):
    assert tokenizer.token_bytes(tokenizer.vocab_size) == tokenizer.token_bytes(1 << 40) == b""
    with pytest.raises(ConfigError, match="-1 is negative"):
        tokenizer.token_bytes(-1)
    with pytest.raises(ConfigError, match="character 1 is"):
        tokenizer.encode("a\udcff")


@given(ANY_TEXT)
def test_a_byte_is_a_token(text):
    tokenizer = ByteTokenizer()
    ids = tokenizer.encode(text)
    assert bytes(ids) == text.encode() and tokenizer.decode(ids) == text and tokenizer.dropped(text) == 0
    stream = tokenizer.stream()
    assert "".join(map(stream.feed, ids)) + stream.finish() == text


def test_bytes_have_no_chat():
    assert ByteTokenizer().vocab_size == 256 and ByteTokenizer().end_tokens == ()
    with pytest.raises(ConfigError, match="no chat template"):
        ByteTokenizer().chat([{"role": "user", "content": "hi"}])
