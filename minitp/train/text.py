"""The text to train on: any text file, a folder of text files, or, with nothing to download, Python's own reference.

A text is read in pieces of about a MiB, so a file may be larger than the memory. Bytes stay as they are: line ends
aren't translated; only a byte order mark at the start of a file is dropped.
"""
import codecs
import hashlib
import os
import platform
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from minitp.errors import ConfigError, FileFormatError
from minitp.tokenizer import Tokenizer

DEFAULT = "pydoc_data.topics"
"""The language reference inside every Python: about 0.5 MB of English about one subject."""

SUFFIXES = (".txt", ".text", ".md", ".rst")
PIECE = 1 << 20                            # bytes; a piece ends at a line end if there is one within twice as many
BETWEEN = "\n\n"                           # between two files of a folder, two topics of the reference
BYTES = 256                                # the smallest vocabulary that can spell any text

Progress = Callable[[int, int], None]      # (bytes done, in all)


@dataclass
class Text:
    """What to train on, in an order that is the same everywhere. `parts`: files, or texts already in memory."""
    name: str
    parts: tuple[Path | str, ...]
    _sha256: str = field(default="", init=False, repr=False)

    @property
    def nbytes(self) -> int:
        """About how long it is: what a progress bar needs."""
        return sum(part.stat().st_size if isinstance(part, Path) else len(part) for part in self.parts)

    def pieces(self, progress: Progress | None = None) -> Iterator[str]:
        """The whole text. FileFormatError names the file and the place that isn't UTF-8 text."""
        done, total = 0, self.nbytes
        for number, part in enumerate(self.parts):
            if number:
                yield BETWEEN
            for piece, size in read_file(part) if isinstance(part, Path) else ((part, len(part)),):
                yield piece
                done += size
                if progress is not None:
                    progress(done, total)

    def hashed(self, progress: Progress | None = None) -> str:
        """SHA-256 of the whole text as UTF-8: what a checkpoint records, so that a text that changed is noticed."""
        if not self._sha256:
            digest = hashlib.sha256()
            for piece in self.pieces(progress):
                digest.update(piece.encode())
            self._sha256 = digest.hexdigest()
        return self._sha256

    def record(self) -> dict[str, Any]:
        """What a log, a trace or a checkpoint says of it: plain data."""
        record = {"name": self.name, "sha256": self.hashed(), "files": sum(isinstance(p, Path) for p in self.parts)}
        return record | ({"python": platform.python_version()} if self.name == DEFAULT else {})


def open_text(source: str | Path | None = None) -> Text:
    """A text file of any name, a folder (its .txt, .text, .md and .rst files by name, subfolders too), or the default.

    Raises ConfigError where there is nothing to read, FileFormatError (from `pieces`) where it isn't text.
    """
    if source is None or os.fspath(source) == DEFAULT:
        try:
            from pydoc_data.topics import topics
        except ImportError:
            raise ConfigError(f"this Python was trimmed: it lacks {DEFAULT}; give a text file or a folder") from None
        return Text(DEFAULT, (BETWEEN.join(topics[name] for name in sorted(topics)),))
    path = Path(source).expanduser()
    if path.is_dir():
        return Text(str(source), folder_files(path))
    if not path.is_file():
        raise ConfigError(f"there is no text {source} (seen from {Path.cwd()}); give a text file, a folder with "
                          f"{', '.join(SUFFIXES)} files, or {DEFAULT}, the reference that Python brings along")
    if path.stat().st_size == 0:
        raise ConfigError(f"the text {source} is empty; there is nothing to learn from it")
    return Text(str(source), (path,))


def folder_files(folder: Path) -> tuple[Path, ...]:
    """Its text files, by their path within it. Hidden files, linked folders and empty files are left out."""
    found: list[Path] = []
    others: Counter[str] = Counter()
    for at, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for path in (Path(at, name) for name in names if not name.startswith(".")):
            if path.suffix.lower() not in SUFFIXES:
                others[path.suffix or "no suffix"] += 1
            elif path.is_file() and path.stat().st_size:
                found.append(path)
    if not found:
        there = ", ".join(f"{many} with {suffix}" for suffix, many in others.most_common(3))
        raise ConfigError(f"the folder {folder} holds no text: minitp reads {', '.join(SUFFIXES)} files that aren't "
                          f"empty, of this folder and those in it{f'; it holds {there}' if there else ''}. A single "
                          "file may have any name")
    return tuple(sorted(found, key=lambda path: path.relative_to(folder).as_posix()))


def read_file(path: Path) -> Iterator[tuple[str, int]]:
    """Pieces of one file and the bytes each took."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    done = 0
    with path.open("rb") as file:
        while block := read_lines(file):
            if done == 0:
                refuse_other_encodings(path, block)
            pending = len(decoder.getstate()[0])                        # bytes of a character that the last block began
            try:
                text = decoder.decode(block)
            except UnicodeDecodeError as error:
                raise not_text(path, done - pending + error.start, "isn't UTF-8") from None
            if (at := text.find("\0")) >= 0:
                raise not_text(path, done - pending + len(text[:at].encode()), "is a NUL, which no text holds")
            yield text.removeprefix("\ufeff") if done == 0 else text, len(block)
            done += len(block)
    if decoder.getstate()[0]:
        raise not_text(path, done - len(decoder.getstate()[0]), "begins a character that never ends")


def read_lines(file: BinaryIO) -> bytes:
    """About a MiB, to the end of a line if one comes within another MiB."""
    return file.read(PIECE) + file.readline(PIECE)


def refuse_other_encodings(path: Path, start: bytes) -> None:
    if start[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        raise FileFormatError(f"{path} is UTF-16 text; minitp trains on UTF-8: iconv -f UTF-16 -t UTF-8 FILE > NEW")


def not_text(path: Path, place: int, why: str) -> FileFormatError:
    return FileFormatError(f"{path} is no UTF-8 text: byte {place:,} {why}. If it is text in another encoding, convert "
                           "it (iconv -f LATIN1 -t UTF-8 FILE > NEW); else leave it out")


def train_bpe(text: Text, vocab: int, progress: Progress | None = None) -> Tokenizer:
    """A byte-level BPE of at most `vocab` tokens, of the whole text: any other text can be spelled with it too.

    The same text gives the same tokenizer. A text with fewer pairs that occur twice gives fewer tokens.
    Sennrich et al. 2016, algorithm 1; bytes as the alphabet: Radford et al. 2019, section 2.2.
    """
    if vocab < BYTES:
        raise ConfigError(f"a vocabulary of {vocab} can't spell every text: {BYTES} tokens are the single bytes; "
                          f"take more than {BYTES}, or bytes as tokens")
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers, trainers
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocab, show_progress=False, min_frequency=2,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    backend.train_from_iterator(text.pieces(progress), trainer)
    return Tokenizer(backend, name=f"BPE of {backend.get_vocab_size()} tokens")
