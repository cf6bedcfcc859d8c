"""Generation: one prefill pass over the prompts, then one decode pass per token, every pass the same forward.

Several prompts of different lengths run in one batch, right-padded: each row has its own positions and its own next
slot, so it gives what it would give alone. Every rank draws the same token from the same logits and the same counter,
so no message is needed to agree, and none is sent to stop.
"""
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from minitp.arrays import NUMPY, Arrays
from minitp.comm import Communicator
from minitp.context import KVCache, Observer, plan_pass
from minitp.errors import ConfigError
from minitp.layers import Logits
from minitp.model import Transformer
from minitp.sampling import Sampling, choose
from minitp.saved import memory_of

StopReason = Literal["", "end token", "length", "context"]


@dataclass(frozen=True)
class Request:
    """What to generate from, checked against the model before any rank computes.

    prompts     token ids of each sequence
    max_tokens  at most so many new tokens per sequence; fewer where the context is full (none if the prompt fills it)
    keep_logits the logits of every prompt position and generated token (one more pass, for the last token)
    gathered    whether logits are made whole, or only the winners exchanged
    """
    prompts: tuple[tuple[int, ...], ...]
    max_tokens: int = 64
    sampling: Sampling = field(default_factory=Sampling)
    end_tokens: tuple[int, ...] = ()
    gathered: bool = True
    keep_logits: bool = False

    def check(self, vocab: int, positions: int) -> None:
        """Raise ConfigError for what this model can't do: the same on every rank."""
        if not self.prompts or not all(self.prompts):
            raise ConfigError("the prompt is empty: a model continues at least one token. Give some text, or the "
                              "begin-of-text token by --tokens")
        if self.max_tokens < 0:
            raise ConfigError(f"--max-tokens must be 0 or more, got {self.max_tokens}")
        for prompt in self.prompts:
            wrong = [token for token in prompt if not 0 <= token < vocab]
            if wrong:
                raise ConfigError(f"token id {wrong[0]} is not in the vocabulary of {vocab}: "
                                  f"ids run from 0 to {vocab - 1}")
            if len(prompt) > positions:
                raise ConfigError(f"the prompt has {len(prompt)} tokens and the model's context holds {positions}: "
                                  "shorten it")
        if self.keep_logits and not self.gathered:
            raise ConfigError("the logits of every position can't be kept while they stay sharded: gather them")
        if not self.gathered:
            self.sampling.check_sharded()


@dataclass(frozen=True)
class Step:
    """What one pass produced: a token for every sequence still running (None for the others)."""
    index: int
    tokens: tuple[int | None, ...]
    gaps: tuple[float, ...]


class Generation:
    """A running generation on this rank: iterate over it, then read what it holds.

    `tokens`, `stops` and `gaps` grow as steps come: per sequence the new ids, why it stopped, and the smallest distance
    between the best and the second logit. `passes` lists (phase, tokens per row) of every forward pass.
    """

    def __init__(self, model: Transformer, weights: dict[str, Any], request: Request, *, dtype: Any = np.float32,
                 arrays: Arrays = NUMPY, observer: Observer | None = None):
        request.check(model.config.vocab, model.config.positions)
        self.model, self.weights, self.request = model, weights, request
        recorder = model.group.recorder
        self.observer = observer if observer is not None else recorder.observer()
        recorder.row = len(request.prompts[0]) - 1               # the token whose arrays a trace with values keeps
        self.dtype, self.arrays = np.dtype(dtype), arrays
        self.lengths = np.array([len(prompt) for prompt in request.prompts])
        self.tokens: list[list[int]] = [[] for _ in request.prompts]
        self.stops: list[StopReason] = [self._why_stop(row) for row in range(len(request.prompts))]
        self.gaps = [float("inf")] * len(request.prompts)
        self.logits: list[np.ndarray] = []                       # per pass (B, T, V), where they are kept
        self.passes: list[tuple[str, int]] = []
        slots = min(int(self.lengths.max()) + max(request.max_tokens, 1), model.config.positions)
        self.cache = KVCache(len(request.prompts), slots, dtype, arrays)
        self._logits_held = 0

    @property
    def group(self) -> Communicator:
        return self.model.group

    def __iter__(self) -> Iterator[Step]:
        """One step per pass, until every sequence has stopped. Once only: the tokens and the cache are this run's."""
        if self.passes:
            raise ConfigError("this generation has run already: make a new one from the same request")
        width = int(self.lengths.max())
        ids = np.zeros((len(self.lengths), width), np.int64)
        for row, prompt in enumerate(self.request.prompts):
            ids[row, :len(prompt)] = prompt
        positions = np.broadcast_to(np.arange(width), ids.shape)
        logits = self._pass("prefill", 0, ids, positions, self.lengths - 1)
        index = 0
        while not all(self.stops):
            yield self._choose(logits, index)
            if all(self.stops) and not self.request.keep_logits:
                return
            index += 1
            newest = np.array([[(*prompt, *new)[-1]] for prompt, new in zip(self.request.prompts, self.tokens,
                                                                            strict=True)])
            logits = self._pass("decode", index, newest, self._next_positions()[:, None], None)

    def _next_positions(self) -> np.ndarray:
        """Where each row's newest token stands; a row that has stopped stays where it is and computes it again."""
        return self.lengths + np.array([len(row) for row in self.tokens]) - 1

    def _why_stop(self, row: int) -> StopReason:
        """Empty while the row may go on. Prompt and new tokens together never exceed the model's context."""
        new = self.tokens[row]
        if new and new[-1] in self.request.end_tokens:
            return "end token"
        if len(new) >= self.request.max_tokens:
            return "length"
        return "context" if self.lengths[row] + len(new) >= self.model.config.positions else ""

    def _pass(self, phase: str, step: int, ids: np.ndarray, positions: np.ndarray, last: np.ndarray | None) -> Logits:
        """One forward pass of every row; logits of each row's last token, or of all where they are kept."""
        ctx = plan_pass(self.model.config, positions, dtype=self.dtype, arrays=self.arrays,
                        last=None if self.request.keep_logits else last, cache=self.cache, observer=self.observer)
        self.passes.append((phase, ids.shape[1]))              # first: should it fail, its trace is foretold, too
        with self.group.recorder.mark(phase, step):
            logits = self.model.forward(ids, self.weights, ctx, gathered=self.request.gathered)
        if self.request.keep_logits:
            self.logits.append(self.arrays.to_host(logits.array))
            if last is not None:
                logits = Logits(logits.array[ctx.row_index, self.arrays.from_host(last[:, None])], logits.cut)
        self._logits_held = max(self._logits_held, memory_of((self.logits, logits.array)))
        return logits

    def _choose(self, logits: Logits, index: int) -> Step:
        """The next token of every running row, the same on every rank."""
        with self.group.recorder.mark("prefill" if index == 0 else "decode", index):
            choice = choose(logits, self.request.sampling, index, self.group)
        chosen: list[int | None] = []
        for row, token in enumerate(choice.tokens.tolist()):
            chosen.append(None if self.stops[row] else token)
            if self.stops[row]:
                continue
            self.tokens[row].append(token)
            self.gaps[row] = min(self.gaps[row], float(choice.gaps[row]))
            self.stops[row] = self._why_stop(row)
        return Step(index, tuple(chosen), tuple(choice.gaps.tolist()))

    def held(self) -> dict[str, int]:
        """Bytes that this rank holds between passes, by kind, counted from its arrays; of logits, the most so far."""
        return {"weights": memory_of(self.weights), "kv cache": self.cache.nbytes, "logits": self._logits_held}

    def kept_logits(self) -> np.ndarray:
        """(P + G, V) for one prompt of P tokens and G new ones; (B, longest, V), NaN after a row's end, for several."""
        prefill, decode = self.logits[0], self.logits[1:]
        rows = [np.concatenate([prefill[b, :n], *(step[b] for step in decode[:len(self.tokens[b])])])
                for b, n in enumerate(self.lengths)]
        if len(rows) == 1:
            return rows[0]
        whole = np.full((len(rows), max(map(len, rows)), rows[0].shape[-1]), np.nan, self.dtype)
        for b, row in enumerate(rows):
            whole[b, :len(row)] = row
        return whole


def run(generation: Generation) -> Sequence[list[int]]:
    """Run to the end; the new tokens of each sequence."""
    for _ in generation:
        pass
    return generation.tokens
