"""How numbers and names of a trace are put in words: the same in tables, live lines and messages."""
import re
from collections.abc import Iterable
from typing import Any, Protocol, runtime_checkable

WIDTH = 120


@runtime_checkable
class TextStream(Protocol):
    """Where text can be written: a file, a terminal, a notebook's output, io.StringIO."""

    def write(self, text: str, /) -> Any: ...

    def flush(self) -> Any: ...


def plain(text: object, longest: int = WIDTH) -> str:
    """Text from a file or a user as one line that a terminal can't misread: control characters become �."""
    line = " ".join(str(text).split())
    line = "".join(char if char.isprintable() else "�" for char in line)
    return line if len(line) <= longest else line[:longest - 1] + "…"


STEP = ("forward", "backward", "optimizer")        # the phases that one training step is made of
PHASES = {
    "load": "every rank gets its part of the weights",
    "prefill": "the whole prompt in one pass",
    "decode": "one new token a pass, from the cache of those before it",
    "forward": "a micro-batch through the layers to its loss",
    "backward": "the loss's gradient back through the layers: where forward summed nothing is sent, and where it sent "
                "nothing the partial gradients are summed",
    "optimizer": "once a step: what the ranks owe each other's gradients, their norm, and AdamW on every rank's own",
    "evaluate": "text that isn't trained on, to its loss: forward alone",
    "checkpoint": "the ranks' parts brought together and written",
}
"""What happens in each phase of a run."""


def pass_name(phase: str, step: int | None, micro_batch: int | None = None, longest: int = 40) -> str:
    """decode 3, forward 1 · micro-batch 2: which pass something belongs to.

    Training steps and micro-batches count from 1 as in the log, though a trace has them from 0; an evaluation has the
    number of the step before it.
    """
    name = plain(phase, longest) or "no phase"
    if step is not None and step >= 0:
        name += f" {step + (phase in STEP)}"
    return name if micro_batch is None or micro_batch < 0 else f"{name} · micro-batch {micro_batch + 1}"


def kind_of_site(site: str) -> str:
    """The site with numbers left open: layers.3.mlp.down → layers.*.mlp.down."""
    return re.sub(r"(?<![^.])\d+(?![^.])", "*", site)


def sites_in_words(sites: Iterable[str], longest: int = WIDTH) -> str:
    """layers.3.mlp.down; of several layers layers.*.mlp.down (30 layers)."""
    kinds: dict[str, list[str]] = {}
    for site in dict.fromkeys(sites):
        kinds.setdefault(kind_of_site(site), []).append(site)
    return plain(", ".join(f"{kind} ({len(found)} layers)" if len(found) > 1 else found[0]
                           for kind, found in kinds.items()), longest)


def size(count: int) -> str:
    """Bytes: exact up to 9,999, then kB, MB, GB (powers of 1000)."""
    if count < 10_000:
        return f"{count:,} B"
    for factor, unit in ((10**3, "kB"), (10**6, "MB"), (10**9, "GB"), (10**12, "TB")):
        if count < 999.5 * factor or unit == "TB":
            return f"{count / factor:,.3g} {unit}" if count < 999.5 * factor else f"{count / factor:,.0f} {unit}"
    return ""


def duration(ns: float) -> str:
    """A time with three digits and its unit; clocks of traces tell no part of a ns."""
    if ns < 1:
        return "0 ns"
    for factor, unit in ((1, "ns"), (10**3, "µs"), (10**6, "ms")):
        if ns < 999.5 * factor:
            return f"{ns / factor:.3g} {unit}"
    return f"{ns / 10**9:,.3g} s" if ns < 999.5 * 10**9 else f"{ns / 10**9:,.0f} s"


def share(part: float, whole: float) -> str:
    """A percentage without decimals; "<1 %" for what is there and small."""
    if not whole or not part:
        return "0 %"
    percent = 100 * part / whole
    return "<1 %" if percent < 1 else f"{percent:.0f} %"


def dimensions(shape: tuple[int, ...]) -> str:
    """1×1×576; a single number has no dimensions."""
    return "×".join(map(str, shape)) or "–"


def count(number: int, noun: str) -> str:
    """1 rank, 2 ranks, 3 passes."""
    plural = noun + ("es" if noun.endswith("s") else "s")
    return f"{number:,} {noun if number == 1 else plural}"


_SHORT_TYPES = {"float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16", "int64": "i64",
                "int32": "i32", "uint8": "u8"}


def short_type(dtype: str) -> str:
    return _SHORT_TYPES.get(dtype, dtype)
