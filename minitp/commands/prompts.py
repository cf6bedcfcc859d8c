"""Prompts: from arguments, files, standard input or token ids, as ids. Read by rank 0 alone."""
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minitp.errors import ConfigError

if TYPE_CHECKING:
    from minitp.tokenizer import ByteTokenizer

LARGEST = 64 * 2**20                # bytes of a prompt file: more than any context holds


@dataclass(frozen=True)
class PromptSource:
    """What the user gave; "-" among the texts or files is standard input."""
    texts: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()    # "1,5,9"
    chat: bool = False
    ignore_end: bool = False

    @property
    def has_text(self) -> bool:
        """Whether a tokenizer is needed; with nothing given, the text is that of standard input."""
        return bool(self.texts or self.files or not self.tokens)


def read_prompts(source: PromptSource, tokenizer: "ByteTokenizer | None", end_tokens: Sequence[int]) -> dict[str, Any]:
    """{"ids": one list per prompt, "end": the ids that end a text}. ConfigError says what is missing.

    `end_tokens` are the model config's, for a checkpoint without a tokenizer, which else knows them better.
    """
    ids = [parse_ids(text) for text in source.tokens]
    texts = [*(_read_stdin() if text == "-" else text for text in source.texts), *map(_read_file, source.files)]
    if not ids and not texts:
        if sys.stdin is None or sys.stdin.isatty():
            raise ConfigError('there is no prompt: minitp generate "The capital of France is", or --file, --tokens, '
                              "or text on standard input")
        texts = [_read_stdin()]
    if texts and tokenizer is None:
        raise ConfigError("this checkpoint brings no tokenizer.json, so text can't become tokens: give token ids, "
                          "--tokens 1,5,9")
    if source.chat and not texts:
        raise ConfigError("--chat wraps a text in the model's chat template; with --tokens there is no text")
    ids += [_encode(text, source.chat, tokenizer) for text in texts]
    end = end_tokens if tokenizer is None else tokenizer.end_tokens
    return {"ids": ids, "end": [] if source.ignore_end else list(end)}


def parse_ids(text: str) -> list[int]:
    """"1,5,9" → [1, 5, 9]."""
    try:
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise ConfigError(f"--tokens takes whole numbers with commas between, such as 1,5,9; not {text!r:.80}"
                          ) from None


def _encode(text: str, chat: bool, tokenizer: Any) -> list[int]:
    if chat:
        return tokenizer.encode(tokenizer.chat([{"role": "user", "content": text}]), special=True)
    return tokenizer.prompt(text)


def _read_file(name: str) -> str:
    if name == "-":
        return _read_stdin()
    path = Path(name).expanduser()
    try:
        with open(path, "rb") as file:
            return _text(file, name)
    except OSError as error:
        raise ConfigError(f"{name} can't be read: {error.strerror}") from None


def _read_stdin() -> str:
    return _text(sys.stdin.buffer, "standard input")


def _text(file: Any, name: str) -> str:
    """All of `file` (of bytes) as text, without its last line's end. Bounded as it is read: devices have no size."""
    data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise ConfigError(f"{name} has more than {LARGEST >> 20} MiB: no model's context holds such a prompt")
    try:
        return data.decode("utf-8-sig").removesuffix("\n")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name} is not UTF-8 text (byte {error.start})") from None
