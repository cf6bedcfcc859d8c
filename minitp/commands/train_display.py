"""What `minitp train` shows: a bar of three lines that stays in its place on a terminal, plain lines elsewhere."""
import time
from collections.abc import Mapping
from typing import Any

from minitp.environment import is_unicode
from minitp.trace.wording import TextStream, count, duration, plain, size
from minitp.train.schedule import Schedule

LINES = 20                         # plain lines of steps, in all, and as many again at the start
FRAME = 0.1                        # seconds between two pictures of the bar
BAR = 20                           # columns
TOKENIZERS = {"bytes": "bytes", "bpe": "byte pairs", "model": "the model's"}
COPIES = "one sync point more where kv heads are held by several ranks: their gradients\nare summed once a step"
Row = Mapping[str, Any]


class Display:
    """Rows of the log, in words, on `stream`.

    A bar is drawn over itself by moving the cursor up; it is not hidden, so whatever ends the run leaves the terminal
    as it was. What is said for good (a sample, a checkpoint) goes above the bar.
    """

    def __init__(self, stream: TextStream, steps: int, first: int = 0, bar: bool = False, columns: int = 80):
        self.stream, self.steps, self.first, self.bar, self.columns = stream, steps, first, bar, columns
        self.every = max(1, (steps - first) // LINES)
        self.memory = ""
        self._drawn, self._shown_at, self._begun = 0, 0.0, time.monotonic()
        self._last: Row | None = None

    def show(self, row: Row) -> None:
        """One row, as far as it is to be seen."""
        if row["kind"] == "step":
            self._step(row)
        elif row["kind"] == "memory":
            self.memory = memory_in_words(row)
            if not self.bar and self._last is not None:
                self.say(f"{syncs_in_words(self._last)}; the fullest rank holds\n{self.memory}")
        elif row["kind"] == "evaluation":
            self.say(f"step {row['step']:,}: loss {number(row['loss'])} on {count(row['tokens'], 'token')} that it "
                     "doesn't learn from")
        elif row["kind"] == "sample":
            self.say(f"step {row['step']:,}: {plain(row['prompt'] + (row['text'] or ''), 200)}")
        elif row["kind"] == "checkpoint":
            self.say(f"step {row['step']:,}: saved as {row['folder']}")

    def say(self, text: str) -> None:
        """Something that stays."""
        self._clear()
        self._write(text + "\n")
        if self.bar and self._last is not None:
            self._draw(self._last)

    def finish(self) -> None:
        """The bar's last picture stays; what follows begins on a line of its own."""
        if self.bar and self._last is not None:
            self._clear()
            self._draw(self._last)
        self._drawn, self._last = 0, None

    def _step(self, row: Row) -> None:
        done, before = row["step"] - self.first, self._last
        self._last = row
        if not self.bar:
            if done <= 1 or row["step"] == self.steps or done % self.every == 0:
                self.say(step_in_words(row, self.steps))
            return
        now = time.monotonic()
        if before is None or now - self._shown_at >= FRAME or row["step"] == self.steps:
            self._shown_at = now
            self._clear()
            self._draw(row)

    def _draw(self, row: Row) -> None:
        done, left = row["step"] - self.first, self.steps - row["step"]
        filled = BAR * row["step"] // max(1, self.steps)
        full, empty = ("━", "─") if is_unicode(self.stream) else ("#", "-")
        passed = time.monotonic() - self._begun
        ends = f" {clock(passed * left / done)} left" if done and left else f" {clock(passed)}"
        lines = [f"{full * filled}{empty * (BAR - filled)} {step_in_words(row, self.steps)}{ends}",
                 syncs_in_words(row), self.memory]
        lines = [line[:self.columns - 1] for line in lines]
        self._write("\n".join(lines) + "\n")
        self._drawn = len(lines)

    def _clear(self) -> None:
        if self._drawn:
            self._write(f"\x1b[{self._drawn}A\x1b[J")
            self._drawn = 0

    def _write(self, text: str) -> None:
        self.stream.write(text)
        self.stream.flush()


def step_in_words(row: Row, steps: int) -> str:
    """step 120/200 loss 2.345 12,300 tokens/s; a step that was skipped says so."""
    skipped = " skipped: gradient not finite" if row["skipped"] else ""
    return (f"step {row['step']:>{len(f'{steps:,}')},}/{steps:,} loss {number(row['loss'])}{skipped} "
            f"{row['tokens_per_second']:,.0f} tokens/s")


def syncs_in_words(row: Row) -> str:
    """22 sync points and 393 kB of payload a step."""
    return f"{count(row['sync_points'], 'sync point')} and {size(row['payload'])} of payload a step"


def memory_in_words(row: Row) -> str:
    """What the fullest rank holds: weights 85 kB, gradients 85 kB, …"""
    return ", ".join(f"{kind} {size(row[kind])}" for kind in ("weights", "gradients", "optimizer", "activations"))


def number(loss: float | None) -> str:
    return "not finite" if loss is None or loss != loss else f"{loss:.3f}"


def clock(seconds: float) -> str:
    """0:12, 2:03:04."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def head(row: Row) -> str:
    """What is trained on what, before the first step."""
    rank = count(row["ranks"], "rank")
    return (f"{row['model']}: {row['parameters']:,} weights on {rank} ({row['world']}), {row['dtype']}; "
            f"{row['batch']}×{row['tokens']} tokens a step\n"
            f"{row['text']['name']}: {row['train_tokens']:,} tokens to learn from, {row['validation_tokens']:,} to "
            f"test on ({TOKENIZERS[row['tokenizer']]})\n"
            f"{row['folder']}: log, settings, checkpoints" + (f"\n{COPIES}" if row["kv_copies"] else ""))


def schedule_in_words(done: int, before: Schedule, now: Schedule) -> str:
    """What other rates a run takes that goes on after `done` steps with another length."""
    peak = f" up to {now.peak:.3g} in step {now.warmup:,}," if done + 1 < now.warmup else ""
    return (f"the schedule now ends at step {now.steps:,}, not {before.steps:,}: the rate goes from "
            f"{now.rate(done):.3g} in step {done + 1:,}{peak} to {now.rate(now.steps - 1):.3g} in step {now.steps:,}. "
            f"It was {before.rate(done - 1):.3g} in step {done:,}: a run of {now.steps:,} from the start would have "
            "learned otherwise")


def tail(row: Row) -> str:
    """What the run has come to."""
    if not row["steps"]:
        return f"all {count(row['step'], 'step')} of this run are done; --resume --steps N goes on to N"
    losses = f"loss {number(row['first_loss'])} → {number(row['loss'])}"
    tested = "" if row["validation_loss"] is None else f", {number(row['validation_loss'])} on unseen text"
    lines = [f"{count(row['steps'], 'step')} in {duration(row['seconds'] * 1e9)}: {losses}{tested}"]
    if row["memory"]:
        lines.append(f"held: {memory_in_words(row['memory'])}")
    if row["checkpoint"]:
        lines.append(f'it continues a text by\nminitp generate -m {row["checkpoint"]} '
                     f'--temperature {row["temperature"]:g} "{row["prompt"]}"')
    return "\n".join(lines)
