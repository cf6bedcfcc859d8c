"""Token ids of a text, and the windows of them that each step of a training run takes.

A text becomes ids once (`minitp.train.prepared`), and every rank maps that file into memory. Which windows a step takes
is a function of (seed, position) alone, where the position of row i of step s is s · batch + i: whatever the number of
ranks, the micro-batches and the restarts. An epoch is a permutation of all windows; the window borders lie elsewhere in
each.
"""
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from zlib import crc32

import numpy as np
from jaxtyping import Int

from minitp.comm import Communicator
from minitp.errors import ConfigError
from minitp.progress import bytes_bar
from minitp.tokenizer import ByteTokenizer
from minitp.train.prepared import open_tokens, prepare
from minitp.train.text import Progress, Text, open_text

if TYPE_CHECKING:
    from rich.console import Console

Split = Literal["train", "validation"]


@dataclass(frozen=True)
class Corpus:
    """A text as token ids, cut in two: what is trained on, and the last share of it, which only evaluates.

    tokens      (N,) ids, mapped from the cache file (uint16 where the vocabulary allows it, else uint32)
    facts       plain data: "text" (name, sha256, …), "tokenizer" (its name), "largest" (the highest id),
                "sha256" (of the ids: the same text by the same tokenizer)
    validation  the share of the tokens that evaluates, 0 for none
    """
    tokens: Any
    facts: dict[str, Any]
    validation: float = 0.1

    def __post_init__(self):
        if not 0 <= self.validation < 1:
            raise ConfigError(f"the share of the text that evaluates is {self.validation}; it lies between 0 and 1, "
                              "and leaves something to train on")

    def part(self, split: Split) -> Any:
        """The ids of one of the two parts."""
        border = len(self.tokens) - round(len(self.tokens) * self.validation)
        return self.tokens[:border] if split == "train" else self.tokens[border:]

    def windows(self, tokens: int, split: Split = "train") -> int:
        """How many windows an epoch has, each of `tokens` inputs and their targets. ConfigError if there is not one."""
        held = len(self.part(split))
        if tokens < 1:
            raise ConfigError(f"a window of {tokens} tokens holds nothing to predict; take at least 1")
        if held <= tokens:
            raise ConfigError(self._too_little(split, held, tokens))
        return max(1, (held - tokens) // tokens)          # so many fit at whichever token the first of them begins

    def batches(self, batch: int, tokens: int, split: Split = "train") -> int:
        """Whole batches in one pass over the split, the same on every rank; the windows left over wait for the next.

        At least 1: where a batch has more rows than the text has windows, some windows come twice in it.
        """
        return max(1, self.windows(tokens, split) // batch)

    def batch(self, step: int, batch: int, tokens: int, seed: int, split: Split = "train"
              ) -> Int[np.ndarray, "{batch} {tokens}+1"]:
        """The windows of a step: row i is number step · batch + i of the run. Inputs are [:, :-1], targets [:, 1:].

        In training every window comes once per epoch, in an order drawn for (seed, epoch), and epochs follow each other
        without a gap. Evaluation takes its windows in the text's order, whatever the seed.
        """
        part, windows = self.part(split), self.windows(tokens, split)
        room = min(tokens, len(part) - windows * tokens)                    # places where the first window may begin
        rows = np.empty((batch, tokens + 1), np.int64)
        for row, position in zip(rows, range(step * batch, (step + 1) * batch), strict=True):
            epoch, index = divmod(position, windows)
            start = index * tokens
            if split == "train":
                order, shift = epoch_order(seed, epoch, windows)
                start = int(order[index]) * tokens + shift % room
            row[:] = part[start:start + tokens + 1]
        return rows

    def check(self, tokens: int, vocab: int) -> None:
        """Refuse, before the first step, what can't be trained: too little text, ids that the model has no row for."""
        self.windows(tokens)
        if self.validation:
            self.windows(tokens, "validation")
        if self.facts["largest"] >= vocab:
            raise ConfigError(f"the tokens of {self.name} go up to id {self.facts['largest']}, and the model's "
                              f"vocabulary has {vocab} rows, the last one {vocab - 1}: take a tokenizer of at most "
                              f"{vocab} tokens, or a model with a larger vocabulary")

    def check_same(self, facts: dict[str, Any]) -> None:
        """Refuse to go on with other data than that of a checkpoint, whose `record()` this is."""
        then, now = facts.get("text", {}), self.facts["text"]
        if then.get("sha256") != now["sha256"]:
            pythons = {record.get("python") for record in (then, now)} - {None}
            hint = (f" (it differs between Python versions, here {' and '.join(sorted(pythons))})" if len(pythons) > 1
                    else "")
            raise ConfigError(f"the text {self.name} isn't the one that the checkpoint was trained on{hint}: its "
                              f"SHA-256 was {str(then.get('sha256'))[:12]}…, now {now['sha256'][:12]}…. Give the text "
                              "of then, or start a new run from the checkpoint's weights")
        if facts.get("sha256") != self.facts["sha256"]:
            raise ConfigError(f"the checkpoint was trained on other tokens of {self.name}: its tokenizer was another "
                              "one. Go on with the tokenizer.json that lies in the checkpoint's folder")
        if facts.get("validation") != self.validation:
            raise ConfigError(f"the checkpoint was trained with a share of {facts.get('validation')} for validation, "
                              f"this run has {self.validation}; what evaluated then would be trained on. Use the same")

    def record(self) -> dict[str, Any]:
        """What a log, a trace or a checkpoint says of it: plain data, for `check_same`."""
        return self.facts | {"tokens": len(self.tokens), "validation": self.validation}

    @property
    def name(self) -> str:
        return str(self.facts["text"]["name"])

    def _too_little(self, split: Split, held: int, tokens: int) -> str:
        ways = "a longer text or shorter windows" if split == "train" or not self.validation else (
            "a longer text, shorter windows, a larger share for validation, or none (0)")
        of = "" if not self.validation else f", {'all but ' * (split == 'train')}the last {self.validation:.0%},"
        return (f"the {split} part of {self.name}{of} has {held:,} of its {len(self.tokens):,} tokens, and one window "
                f"of {tokens:,} tokens needs {tokens + 1:,} (the last target lies one further); take {ways}")


@lru_cache(maxsize=4)
def epoch_order(seed: int, epoch: int, windows: int) -> tuple[np.ndarray, int]:
    """The windows of an epoch in the order they are taken, and a number for where the first of them begins.

    Of Philox's raw numbers, which no version of NumPy changes: a run that goes on elsewhere goes on the same.
    """
    key = np.array([seed, crc32(b"data order")], np.uint64)
    drawn = np.random.Philox(key=key, counter=np.array([0, 0, 0, epoch], np.uint64)).random_raw(windows + 1)
    return drawn[1:].argsort(kind="stable"), int(drawn[0] >> np.uint64(1))


def open_corpus(group: Communicator, source: str | Path | None, tokenizer: Callable[[Text, Progress], ByteTokenizer],
                validation: float = 0.1, console: "Console | None" = None) -> tuple[Corpus, ByteTokenizer | None]:
    """The text as ids on every rank; the tokenizer on rank 0 only, as the others need no text.

    Rank 0 reads the text, makes the tokenizer (`lambda text, progress: ByteTokenizer()`, `prepared.bpe`, a model's own)
    and prepares the ids; the others map what it wrote. An error is raised on all ranks.
    """
    held: dict[str, Any] = {}

    def look() -> dict[str, Any]:
        text = open_text(source)
        with bytes_bar(console, f"making a tokenizer of {text.name}") as progress:
            held["tokenizer"] = tokenizer(text, progress)
        path, held["tokens"], header = prepare(text, held["tokenizer"], console)
        facts = {"text": text.record(), "tokenizer": held["tokenizer"].name, "largest": header["largest"],
                 "sha256": header["sha256"]}
        return {"path": str(path), "facts": facts}

    found = group.on_root(look, site="data", reason="tell every rank which text, and where its tokens lie")
    tokens = held["tokens"] if group.rank == 0 else open_tokens(Path(found["path"]), found["facts"]["sha256"])[0]
    return Corpus(tokens, found["facts"], validation), held.get("tokenizer")
