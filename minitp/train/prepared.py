"""What is made of a text once and kept in the user's cache folder: a tokenizer, and the ids of all its tokens.

The name says what it was made of: the hash of the text, and that of the tokenizer. Several processes may come at once:
one makes it, the others wait. It appears when it is complete.
"""
import hashlib
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from filelock import FileLock

from minitp.errors import ConfigError, FileFormatError
from minitp.files import move_in, partial_name, replacing
from minitp.progress import bytes_bar
from minitp.tokenizer import ByteTokenizer, Tokenizer
from minitp.train.text import Progress, Text, train_bpe

if TYPE_CHECKING:
    from rich.console import Console

VERSION = 1
HEADER = 4096                              # bytes in front of the ids, a page: JSON and spaces


def cache_folder() -> Path:
    """Beside the fetched models: MINITP_CACHE moves all."""
    from minitp.models import cache_folder as models
    return models().parent / "tokens"


def place(kind: str, *of: str) -> Path:
    """Where what is made of these hashes lies, in the cache."""
    key = hashlib.sha256(" ".join([str(VERSION), *of]).encode()).hexdigest()[:20]
    return cache_folder() / f"{key}.{kind}"


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Inside, this process alone makes what is to lie at `path`, and what killed ones left there is gone."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_name(path.name + ".lock")):       # the system frees it when its owner dies
            for leftover in path.parent.glob(f".{path.name}.*.partial"):
                remove(leftover)
            yield
    except OSError as error:
        raise ConfigError(f"{path} can't be kept: {error.strerror or error}; MINITP_CACHE=FOLDER names another place "
                          "than this cache") from error


def remove(path: Path) -> None:
    """A file or a folder."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def bpe(text: Text, vocab: int, progress: Progress | None = None) -> Tokenizer:
    """The tokenizer of `train_bpe`, trained once for each text and size."""
    import tokenizers
    path = place("bpe", text.hashed(progress), str(vocab), tokenizers.__version__)
    with alone(path):
        try:
            found = Tokenizer.from_folder(path)
        except FileFormatError:                                   # not there yet, or damaged
            found, temporary = train_bpe(text, vocab, progress), partial_name(path)
            temporary.mkdir()
            found.save(temporary)
            remove(path)
            move_in(temporary, path)
    found.name = f"BPE of {found.vocab_size} tokens"
    return found


def prepare(text: Text, tokenizer: ByteTokenizer, console: "Console | None" = None
            ) -> tuple[Path, np.ndarray, dict[str, Any]]:
    """The file of the text's ids, its ids and its header; made where it isn't there, or isn't whole any more."""
    with bytes_bar(console, f"reading {text.name}") as progress:
        sha256 = text.hashed(progress)
    path = place("tokens", sha256, tokenizer.digest)
    with alone(path):
        try:
            return path, *open_tokens(path)
        except FileFormatError:                                   # not there yet, or damaged
            with bytes_bar(console, f"turning {text.name} into tokens") as progress, replacing(path) as file:
                write_tokens(file, text, tokenizer, progress)
        return path, *open_tokens(path)


def write_tokens(file: BinaryIO, text: Text, tokenizer: ByteTokenizer, progress: Progress) -> None:
    """Header and ids. The header comes last: only then all is known."""
    dtype = np.dtype("<u2" if tokenizer.vocab_size <= 1 << 16 else "<u4")
    count, largest, digest, read = 0, 0, hashlib.sha256(), hashlib.sha256()
    file.write(bytes(HEADER))
    for piece in text.pieces(progress):
        ids = np.array(tokenizer.encode(piece), dtype)
        file.write(ids.data)
        digest.update(ids.data)
        read.update(piece.encode())
        count, largest = count + len(ids), max(largest, int(ids.max(initial=0)))
    if not count:
        raise ConfigError(f"the text {text.name} holds no tokens: there is nothing to learn from it")
    if read.hexdigest() != text.hashed():
        raise ConfigError(f"the text {text.name} was changed while it was read; start again when it stays as it is")
    header = json.dumps({"minitp tokens": VERSION, "text": text.hashed(), "tokenizer": tokenizer.digest,
                         "dtype": dtype.str, "count": count, "largest": largest, "sha256": digest.hexdigest()})
    file.seek(0)
    file.write(header.encode().ljust(HEADER))


def open_tokens(path: Path, sha256: str | None = None) -> tuple[np.ndarray, dict[str, Any]]:
    """The ids in a file of `write_tokens`, mapped, not read; and its header. FileFormatError where it isn't whole.

    `sha256` is what rank 0 found: on a machine with a cache folder of its own another file may lie there.
    """
    try:
        with path.open("rb") as file:
            header = json.loads(file.read(HEADER))
        if header["dtype"] not in ("<u2", "<u4"):
            raise ValueError(f"ids of type {header['dtype']}")
        tokens = np.memmap(path, header["dtype"], "r", HEADER, (header["count"],))
        whole = path.stat().st_size == HEADER + tokens.nbytes and header["minitp tokens"] == VERSION
    except FileNotFoundError:
        raise FileFormatError(f"the prepared tokens {path} aren't on this machine: every machine of a run must see "
                              "rank 0's cache folder; MINITP_CACHE=FOLDER names a shared one") from None
    except (ValueError, KeyError, TypeError) as error:
        raise FileFormatError(f"{path} is no file of prepared tokens: {error}") from None
    found = hashlib.sha256(tokens.data).hexdigest()
    if not whole or found != header["sha256"] or sha256 not in (None, found):
        raise FileFormatError(f"{path} doesn't hold the tokens that it should; remove it, and it is made anew")
    return tokens, header
