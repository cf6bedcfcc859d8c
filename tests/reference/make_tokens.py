"""Writes smollm2_tokens.json: varied strings and their ids under SmolLM2's tokenizer, as independent programs see them.

    python tests/reference/make_tokens.py --gguf SmolLM2-135M-Instruct.Q4_1.gguf

The ids are those of bpe_reference.py. They must equal those of the `tokenizers` library for every string, and those of
`transformers` (which drops the digit rule when it reads a GGUF) wherever the string is ASCII.
"""
import argparse
import json
import random
from pathlib import Path

from bpe_reference import BytePairReference
from gguf import GGUFReader
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer

OUTPUT = Path(__file__).parent / "smollm2_tokens.json"
MIXES = 155
SPECIAL_TYPES = (3, 4)                   # GGUF's token types: control, user-defined

CHOSEN = [
    "", " ", "a", "Hello, world!", "The capital of France is", "  two leading spaces", "trailing spaces   ",
    "a  b   c    d", "\t", "\tindented\twith tabs\t", "line one\nline two\n\n\nline five",
    "windows\r\nline\r\n\r\nends",
    " \n \n\t \n", "no\u00a0break and\u3000wide spaces\u2003here", "I'm you're he'd we'll they've it's don't CAN'T I'M",
    "'tis 's 't ' ''", "don\u2019t use curly\u2019s", "3333+777", "0 1 12 123 1234 12345",
    "3.14159 -2e10 1,000,000 0x1F", "2nd 3rd a1b2c3",
    "½ cup, x² + y³, Ⅷ ①", " ½ ² ५ ٣", "१२३ ४५", "٣٤٥ عدد", "naïve café Ångström ﬁne", "e\u0301 vs \u00e9",
    "Привет, мир!", "你好，世界。今天天气很好", "日本語のテキスト", "안녕하세요 세계",
    "שלום עולם", "مرحبا بالعالم \u200f!", "สวัสดีชาวโลก",
    "🙂 👍🏽 👩‍👩‍👧‍👦 🇫🇷", "x🙂y  🙂", "a\x00b\x01c\x04d\x1be\x7f", "!\x04! \x06\x13.\x1d", "zero\u200bwidth\ufeffbom",
    "def f(x):\n    return {'a': [x**2, ~x]}  # why?\n", "<|endoftext|>", "a<|im_start|>b<|im_end|> c",
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    "<|im_start|>user\nWhat is 17+25?<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start| ><|IM_END|><reponame><repo_name><|endoftext|", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 ∑∫√≠≤ →",
]
ATOMS = [
    " ", "  ", "\n", "\r\n", "\t", "a", "the", " of", "Transformer", "XYZ", "'s", "'LL", "n't", "0", "42",
    " 7", "1999", "½", " ²", "५", " ٣", "Ⅷ", "①",
    ".", "...", "!?", "--", "(", ")]", "{}", "://", "_", "#", "$", "%", "é", "e\u0301", "ß",
    "Жук", "漢字", "かな", "한", "عر", "אב", "ไทย", "🙂", "👍🏽",
    "\u200d", "\u00a0", "\u3000", "\u2028", "\x01", "\x7f", "\x85", "𝔘", "<|im_end|>", "<|im_start|>",
    "<|", "|>", "<empty_output>",
]


def strings() -> list[str]:
    """The chosen strings and seeded random mixes of hard atoms, no string twice."""
    rng, texts = random.Random(20), dict.fromkeys(CHOSEN)
    while len(texts) < len(CHOSEN) + MIXES:
        texts["".join(rng.choices(ATOMS, k=rng.randint(2, 14)))] = None
    return list(texts)


def library_tokenizer(tokens: list[str], merges: list[str], special: list[str]) -> Tokenizer:
    """The same tokenizer put together from parts of the `tokenizers` library."""
    vocab = {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[tuple(merge.split(" ")) for merge in merges]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    return tokenizer


def read_gguf(path: Path) -> tuple[list[str], list[str], list[str]]:
    """Tokens, merges and special tokens of a GGUF file."""
    fields = GGUFReader(path).fields
    tokens, merges, types = (fields[f"tokenizer.ggml.{key}"].contents() for key in ("tokens", "merges", "token_type"))
    return tokens, merges, [token for token, kind in zip(tokens, types, strict=True) if kind in SPECIAL_TYPES]


def main(gguf: Path) -> None:
    """Encodes by three programs, reports where they differ, writes what all must agree on."""
    vocabulary = read_gguf(gguf)
    ours, library = BytePairReference(*vocabulary), library_tokenizer(*vocabulary)
    hub = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    dropped, cases, differ = set(ours.dropped_bytes()), [], []
    for text in strings():
        ids = ours.encode(text)
        assert ids == library.encode(text, add_special_tokens=False).ids, f"tokenizers differs: {text!r}"
        if ids != hub.encode(text, add_special_tokens=False):
            differ.append(text)
            assert not text.isascii(), f"transformers differs: {text!r}"
        kept = bytes(byte for byte in text.encode() if byte not in dropped).decode()
        assert ours.decode(ids) == kept == library.decode(ids, skip_special_tokens=False), f"round trip: {text!r}"
        cases.append({"text": text, "ids": ids} | ({"decoded": kept} if kept != text else {}))

    rows = ",\n".join("  " + json.dumps(case) for case in cases)
    OUTPUT.write_text(f'{{"dropped_bytes": {sorted(dropped)},\n "cases": [\n{rows}\n]}}\n', encoding="ascii")
    saved = json.loads(OUTPUT.read_text())
    assert saved["cases"] == cases and all(ours.encode(case["text"]) == case["ids"] for case in saved["cases"])
    print(f"{len(cases)} strings, {sum(len(case['ids']) for case in cases)} ids, {OUTPUT.stat().st_size} bytes; "
          f"{len(dropped)} bytes have no token: {sorted(dropped)}; "
          f"{sum('decoded' in case for case in cases)} strings lose some")
    print(f"transformers differs on {len(differ)}, none ASCII, e.g. {differ[:3]}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--gguf", type=Path, required=True)
    main(parser.parse_args().gguf)
