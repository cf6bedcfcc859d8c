"""Text ↔ token ids, over the `tokenizers` library: from a GGUF's metadata, from a checkpoint folder, or a byte a token.

Rules that hold for every tokenizer here:

- Control tokens (`<|im_end|>`) written out in a text are plain characters unless `special=True`: what a user types
  can't end a turn. The rendered chat template is what `special=True` is for. Added tokens that aren't control tokens
  are ordinary pieces and always recognized, as their models were trained.
- `decode` and `stream` leave control and end tokens out unless `special=True`. Ids are turned into bytes, and only the
  joined bytes into text: one emoji is often several tokens. Bytes that are no UTF-8 become U+FFFD.
- `encode` adds nothing. `prompt` adds the BOS token where the model wants one.
"""
import codecs
import hashlib
import json
import re
import threading
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minitp.errors import ConfigError, FileFormatError

if TYPE_CHECKING:
    import tokenizers

END_NAMES = ("<|endoftext|>", "<|end_of_text|>", "<|eot_id|>", "<|eom_id|>", "<|im_end|>", "</s>")
"""Control tokens of these names end a text too: many files name one end token, and chat models answer with another."""


class TextStream:
    """Turns ids into text as they come: `feed(id)` gives what is complete so far, `finish()` what is left over."""

    def __init__(self, tokenizer: "ByteTokenizer", special: bool = False):
        self._tokenizer, self._special = tokenizer, special
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._strip = tokenizer.strips_first_space

    def feed(self, token: int) -> str:
        """The text that this id completes; empty inside a character, and for control and end tokens."""
        if not self._special and (token in self._tokenizer.special_tokens or token in self._tokenizer.end_tokens):
            return ""
        return self._first(self._decoder.decode(self._tokenizer.token_bytes(token)))

    def finish(self) -> str:
        """What an unfinished character leaves: U+FFFD, or nothing."""
        return self._first(self._decoder.decode(b"", final=True))

    def _first(self, text: str) -> str:
        if self._strip and text:
            self._strip, text = False, text.removeprefix(" ")
        return text


class ByteTokenizer:
    """A byte is a token, 256 in all, none special: what the bundled tiny model reads. It is the interface of both."""

    name = "bytes"
    bos: int | None = None
    add_bos = False
    end_tokens: tuple[int, ...] = ()
    special_tokens: frozenset[int] = frozenset()
    chat_template: str | None = None
    strips_first_space = False              # SentencePiece puts a space before the first word and takes it away again

    @property
    def vocab_size(self) -> int:
        """How many ids there are. A model's table may be longer (padded); the ids beyond stand for no bytes."""
        return 256

    def encode(self, text: str, special: bool = False) -> list[int]:
        """Text → ids. `special` has no meaning here: a byte is a byte."""
        return list(utf8(text))

    def token_bytes(self, token: int) -> bytes:
        """The bytes an id stands for; none for an id beyond the vocabulary."""
        check_id(token)
        return bytes([token]) if token < 256 else b""

    def dropped(self, text: str) -> int:
        """How many bytes of the text have no token and vanish in `encode`."""
        return 0

    def decode(self, ids: Iterable[int], special: bool = False) -> str:
        """Ids → text, control tokens written out where `special`. `decode(encode(x)) == x`, but for dropped bytes."""
        stream = self.stream(special)
        return "".join([*map(stream.feed, ids), stream.finish()])

    def stream(self, special: bool = False) -> TextStream:
        """An incremental decoder; its pieces joined equal `decode` of all ids."""
        return TextStream(self, special)

    @property
    def digest(self) -> str:
        """Which tokenizer this is: the same digest, the same ids of every text."""
        return self._as_file().digest

    def save(self, folder: str | Path) -> None:
        """Write tokenizer.json and what goes beside it, so that `Tokenizer.from_folder` gives the same ids."""
        self._as_file().save(folder)

    def _as_file(self) -> "Tokenizer":
        from minitp.tokenizer_files import byte_backend
        return Tokenizer(byte_backend(), name=self.name)

    def prompt(self, text: str, special: bool = False) -> list[int]:
        """The ids a generation starts from: `encode`, with BOS in front where the model wants it and the text lacks it.

        An empty text becomes BOS alone. Raises ConfigError where the model has no BOS: there is no token to start from.
        """
        ids = self.encode(text, special)
        if self.bos is not None and (self.add_bos or not ids) and ids[:1] != [self.bos]:
            ids = [self.bos, *ids]
        if not ids:
            raise ConfigError("the prompt is empty and this model has no BOS token to start from; "
                              "give at least one character")
        return ids

    def chat(self, messages: Sequence[Mapping[str, str]]) -> str:
        """The prompt text for a conversation, by the model's own template; encode it with `special=True`.

        messages: {"role": "user", "content": "…"} in order. A control token written in a content is one in the prompt
        too, as in the reference. Raises ConfigError where there is no template or it refuses the messages,
        FileFormatError where the template itself fails.
        """
        from minitp.chat_template import render_chat
        if self.chat_template is None:
            raise ConfigError(f"tokenizer {self.name} has no chat template, as base models; give a plain prompt")
        return render_chat(self.chat_template, messages, bos_token=self._text(self.bos),
                           eos_token=self._text(next(iter(self.end_tokens), None)))

    def _text(self, token: int | None) -> str:
        return "" if token is None else self.token_bytes(token).decode("utf-8", "replace")


class Tokenizer(ByteTokenizer):
    """A byte-pair tokenizer of the `tokenizers` library, with what it doesn't keep: BOS, end tokens, chat template."""

    def __init__(self, backend: "tokenizers.Tokenizer", *, bos: int | None = None, add_bos: bool = False,
                 end_tokens: Iterable[int] = (), chat_template: str | None = None, name: str = "tokenizer"):
        self._backend, self.name, self.bos = backend, name, bos
        self.add_bos = add_bos and bos is not None
        self.chat_template = chat_template
        self._added = {i: token.content.encode() for i, token in backend.get_added_tokens_decoder().items()}
        self.special_tokens = frozenset(i for i, t in backend.get_added_tokens_decoder().items() if t.special)
        named_ends = [i for i in sorted(self.special_tokens) if backend.id_to_token(i) in END_NAMES]
        self.end_tokens = tuple(dict.fromkeys([*end_tokens, *named_ends]))
        for token in (*self.end_tokens, *([] if bos is None else [bos])):
            if backend.id_to_token(token) is None:
                raise FileFormatError(f"{name}: BOS or end token {token} isn't one of its {self.vocab_size} tokens")
        decoder = backend.decoder.__getstate__().decode() if backend.decoder is not None else "null"
        self._byte_fallback, self.strips_first_space = decoder_kind(json.loads(decoder), name)
        self._symbols = byte_symbols()
        self._bytes: dict[int, bytes] = {}
        self._missing = b"" if self._byte_fallback else bytes(
            byte for symbol, byte in self._symbols.items() if backend.token_to_id(symbol) is None)
        self._lock = threading.Lock()

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, Any]) -> "Tokenizer":
        """The tokenizer described by a GGUF's metadata (`tokenizer.ggml.…`). Raises FileFormatError."""
        from minitp.tokenizer_files import from_gguf
        return cls(**from_gguf(metadata))

    @classmethod
    def from_folder(cls, folder: str | Path) -> "Tokenizer":
        """The tokenizer of a Hugging Face checkpoint folder (tokenizer.json and beside it). Raises FileFormatError."""
        from minitp.tokenizer_files import from_folder
        return cls(**from_folder(Path(folder)))

    def save(self, folder: str | Path) -> None:
        """Write tokenizer.json and what goes beside it, so that `from_folder` gives the same tokenizer back."""
        def word(token: int | None) -> str | None:
            return None if token is None else self._backend.id_to_token(token)

        with self._lock:
            self._backend.encode_special_tokens = False
            self._backend.save(str(Path(folder) / "tokenizer.json"))
        config = {"bos_token": word(self.bos), "eos_token": word(next(iter(self.end_tokens), None)),
                  "add_bos_token": self.add_bos, "chat_template": self.chat_template}
        numbers = {"bos_token_id": self.bos, "eos_token_id": list(self.end_tokens)}
        for name, values in (("tokenizer_config.json", config), ("generation_config.json", numbers)):
            (Path(folder) / name).write_text(json.dumps(values, indent=1, ensure_ascii=False), encoding="utf-8")

    @property
    def vocab_size(self) -> int:
        return self._backend.get_vocab_size(with_added_tokens=True)

    @property
    def digest(self) -> str:
        with self._lock:
            self._backend.encode_special_tokens = False            # a switch of the call, not of the tokenizer
            return hashlib.sha256(self._backend.to_str().encode()).hexdigest()

    def encode(self, text: str, special: bool = False) -> list[int]:
        """Text → ids, nothing added. Warns where bytes are dropped; raises ConfigError on a lone surrogate."""
        if lost := self.dropped(text):
            warnings.warn(f"{lost} byte(s) of the text have no token in {self.name} and are left out "
                          f"(control characters, as a rule)", stacklevel=2)
        with self._lock:                    # the switch is the backend's state, and ranks may be threads
            self._backend.encode_special_tokens = not special
            return self._backend.encode(text, add_special_tokens=False).ids

    def dropped(self, text: str) -> int:
        data = utf8(text)
        return len(data) - len(data.translate(None, self._missing))

    def token_bytes(self, token: int) -> bytes:
        check_id(token)
        if token not in self._bytes:
            self._bytes[token] = self._piece_bytes(token)
        return self._bytes[token]

    def _piece_bytes(self, token: int) -> bytes:
        piece = self._backend.id_to_token(token) if token < 1 << 32 else None
        if token in self._added or piece is None:
            return self._added.get(token, b"")
        if not self._byte_fallback:
            return b"".join(bytes([self._symbols[c]]) if c in self._symbols else c.encode() for c in piece)
        if byte := re.fullmatch("<0x([0-9A-Fa-f]{2})>", piece):
            return bytes.fromhex(byte[1])
        return piece.replace("▁", " ").encode()


def utf8(text: str) -> bytes:
    """The text's bytes; a lone surrogate (bytes on a command line that weren't UTF-8) is refused by its place."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"the text isn't Unicode text: character {error.start} is {text[error.start]!r}, half of a "
                          f"surrogate pair; was it read with the wrong encoding? UTF-8 works") from None


def check_id(token: int) -> None:
    """A negative id would silently index from the end."""
    if token < 0:
        raise ConfigError(f"token id {token} is negative; ids start at 0")


def byte_symbols() -> dict[str, int]:
    """The printable symbol by which a byte-level vocabulary writes each byte (Radford et al. 2019) → that byte."""
    from tokenizers.pre_tokenizers import ByteLevel
    alphabet = sorted(ByteLevel.alphabet())
    itself = {symbol: ord(symbol) for symbol in alphabet if ord(symbol) < 256}
    others = [byte for byte in range(256) if byte not in itself.values()]
    return itself | dict(zip((symbol for symbol in alphabet if ord(symbol) >= 256), others, strict=True))


def decoder_kind(decoder: Any, name: str) -> tuple[bool, bool]:
    """Whether pieces are SentencePiece's with `<0x0A>` for bytes (else byte-level), and whether a first space goes."""
    parts = decoder.get("decoders", [decoder]) if decoder else []
    kinds = [part["type"] for part in parts]
    if "ByteLevel" in kinds:
        return False, False
    if "ByteFallback" in kinds:
        return True, any(part["type"] == "Strip" and part.get("start", 0) > 0 for part in parts)
    raise FileFormatError(f"{name}: its decoder is {'+'.join(kinds) or 'missing'}; minitp turns tokens into bytes by a "
                          "ByteLevel decoder (GPT-2, Llama 3, Qwen) or a ByteFallback one (Llama 2, Mistral)")


def piece(tokenizer: ByteTokenizer, token: int) -> str:
    """A token as a word of its own, for pictures; a byte that is no letter, and a control character, by its number:
    \\xd7."""
    text = tokenizer.token_bytes(token).decode(errors="backslashreplace")
    return "".join(char if char.isprintable() or char in "\n\t" else ascii(char)[1:-1] for char in text)
