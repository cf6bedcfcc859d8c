"""`--json-lines`: how a generation goes on, for a program that watches it."""
import json
from collections.abc import Sequence
from typing import Any

from minitp.trace.recorder import Recorder
from minitp.trace.wording import TextStream


class JsonLines:
    """One JSON object per line and step, in ASCII:

      {"loaded": {"model", "ranks", "world", "prompt_tokens"}}      once the weights are there
      {"step", "tokens", "texts", "sync_points", "payload"}         a list item per prompt (null: it has ended); since
                                                                    loading: sync points and bytes of payload, in all
      {"generated": tokens}                                         once all is computed, before it is written
      what `--json` prints                                          at the end
    """

    def __init__(self, stream: TextStream, recorder: Recorder):
        self.stream, self.recorder = stream, recorder
        self._seen = self._syncs = self._payload = 0

    def loaded(self, model: str, ranks: int, world: str, prompt_tokens: Sequence[int]) -> None:
        self.write({"loaded": {"model": model, "ranks": ranks, "world": world, "prompt_tokens": list(prompt_tokens)}})

    def step(self, index: int, tokens: Sequence[int | None], texts: Sequence[str]) -> None:
        for event in self.recorder.events[self._seen:]:
            if event.plane == "data" and event.phase != "load" and not event.broken:
                self._syncs, self._payload = self._syncs + 1, self._payload + event.payload
        self._seen = len(self.recorder.events)
        self.write({"step": index, "tokens": list(tokens), "texts": list(texts), "sync_points": self._syncs,
                    "payload": self._payload})

    def generated(self, tokens: Sequence[Sequence[int]]) -> None:
        self.write({"generated": sum(map(len, tokens))})

    def write(self, row: dict[str, Any]) -> None:
        self.stream.write(json.dumps(row) + "\n")
        self.stream.flush()
