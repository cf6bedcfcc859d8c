"""A GGUF's metadata by the shortest reading of the format, and a small made-up one: for tests of the tokenizer."""
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from minitp.tokenizer import byte_symbols

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9


def read_metadata(path: Path, head: int = 8 << 20) -> dict[str, Any]:
    """All key-value pairs; they must lie in the file's first `head` bytes."""
    with path.open("rb") as file:
        data = file.read(head)
    place = 0

    def take(form: str) -> Any:
        nonlocal place
        value, = struct.unpack_from("<" + form, data, place)
        place += struct.calcsize("<" + form)
        return value

    def value(kind: int) -> Any:
        nonlocal place
        if kind == STRING:
            length = take("Q")
            place += length
            return data[place - length:place].decode()
        if kind == ARRAY:
            item, count = take("I"), take("Q")
            return [value(item) for _ in range(count)]
        return take(SCALARS[kind])

    magic, _version, _tensors, pairs = take("4s"), take("I"), take("Q"), take("Q")
    assert magic == b"GGUF"
    return {value(STRING): value(take("I")) for _ in range(pairs)}


def small_gguf(pre: str = "gpt-2", merges: Sequence[str] = ("a b", "3 3", "33 3"),
               control: Sequence[str] = ("<|bos|>", "<|im_end|>"), added: Sequence[str] = ("<tool>",),
               **more: Any) -> dict[str, Any]:
    """Metadata of a byte-level tokenizer with all 256 bytes, a few merges and added tokens."""
    pieces = [*byte_symbols(), *(merge.replace(" ", "") for merge in merges)]
    tokens = [*pieces, *control, *added]
    types = [1] * len(pieces) + [3] * len(control) + [4] * len(added)
    return {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": pre, "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": types, "tokenizer.ggml.merges": list(merges),
            "tokenizer.ggml.bos_token_id": len(pieces), "tokenizer.ggml.eos_token_id": len(pieces) + 1,
            **{"tokenizer.ggml." + key: value for key, value in more.items()}}
