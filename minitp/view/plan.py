"""What the page Memory and machines is asked: every input, read from an address, written to it, and as a plan's parts.

A link says what differs from the usual. An address is written by strangers: names must be in the lists, numbers are
clamped, and each that had to be mended is told.

    asked, told = Asked.from_address({"model": "llama-3.1-405b", "task": "train", "tp": "8"})
    asked.planned(), asked.job(), asked.layout(), asked.described()
"""
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, Literal, NamedTuple, cast

from minitp.plan import catalogue
from minitp.plan.job import BYTES, PRECISIONS, STEP, Inference, Job, Training
from minitp.plan.layout import Layout
from minitp.plan.machine import Machine
from minitp.plan.memory.capacity import Capacity
from minitp.plan.model import PlannedModel
from minitp.view.known_models import known_models

SECTIONS = ("memory", "layouts", "network", "check", "ask")
DEGREES = ("tp", "pp", "dp", "ep", "zero", "recompute", "micro", "chunks")
"""What a search may be told to keep as it is set."""
GROUPS = ("tp", "dp", "box", "all")
OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
TYPES = tuple(name for name in BYTES if name not in ("float64", "tf32", "q80", "q40"))
POWERS = tuple(2**n for n in range(21))
SMALL = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 128)
MEMORY = ("", "16 GB", "24 GB", "40 GB", "80 GB", "141 GB", "192 GB", "288 GB", "512 GB", "1 TB", "4 TB")


class Number(NamedTuple):
    """A whole number from `lo` to `hi`; `nice`: the values that a slider stops at."""
    lo: int
    hi: int
    nice: tuple[int, ...]

    def stops(self, value: int) -> list[int]:
        """The slider's values, with the one that is set."""
        return sorted({one for one in self.nice if self.lo <= one <= self.hi} | {value})


NUMBERS = {
    "devices": Number(0, 1 << 17, (0, *SMALL[:8], *POWERS[4:17], 384, 1000, 10_000, 24_576)),
    "reserve": Number(0, 90, tuple(range(0, 55, 5))),
    "batch": Number(1, 1 << 16, POWERS[:13]), "prompt": Number(1, 1 << 20, POWERS[4:]),
    "new": Number(0, 1 << 20, (0, *POWERS)),
    "step": Number(1, 1 << 17, (*POWERS[:15], 48, 96, 192, 384, 768, 1536, 3072)),
    "seq": Number(0, 1 << 20, (0, *POWERS[7:])), "micro": Number(1, 1 << 12, POWERS[:8]),
    "tokens": Number(0, 10**15, (0, 10**9, 10**10, 10**11, 3 * 10**11, 10**12, 14 * 10**11, 2 * 10**12, 15 * 10**12)),
    "tp": Number(1, 256, SMALL), "pp": Number(1, 256, (*SMALL, 60, 105, 120, 126)),
    "dp": Number(1, 1 << 14, (*SMALL, *POWERS[8:15], 192, 384, 768)),
    "cp": Number(1, 256, POWERS[:7]), "ep": Number(1, 256, POWERS[:7]), "zero": Number(0, 3, (0, 1, 2, 3)),
    "chunks": Number(1, 32, (1, 2, 3, 4, 5, 6, 7, 8)), "wider": Number(0, 4, (0, 1, 2, 3, 4)),
    "more": Number(0, 6, tuple(range(7))),
}
FLAGS = ("nominal", "sp", "fused")


def model_names() -> list[str]:
    """The catalogue's models, then those that lie on this machine and it lacks."""
    there = list(catalogue.models())
    return [*there, *(name for name in known_models() if name not in there)]


def machine_names() -> list[str]:
    """Machines, the user's own among them, then devices, of which a machine can be put together."""
    machines = list(catalogue.machines())
    return [*machines, *(name for name in catalogue.devices() if name not in machines)]


@cache
def link_names() -> tuple[str, ...]:
    """The catalogue's links once each; "" leaves a machine as it is."""
    return ("", *dict.fromkeys(link.name for link in catalogue.links().values()))


def choices() -> dict[str, tuple[str, ...]]:
    """Field → what may be chosen."""
    return {"show": SECTIONS, "task": ("infer", "train"), "model": tuple(model_names()),
            "machine": tuple(machine_names()), "memory": MEMORY, "link": link_names(), "between": link_names(),
            "weights": TYPES, "cache": TYPES, "precision": tuple(PRECISIONS),
            "recompute": ("none", "selective", "full"), "op": OPS, "group": GROUPS}


@dataclass(frozen=True)
class Asked:
    """All inputs, by the names that the address has for them.

    devices    in all; 0: as many as the machine has         memory, link, between  what-ifs; "": as it is
    reserve    percent of a device's memory kept free        nominal  capacity by the device's name
    batch, prompt, new, weights, cache                       of a generation
    step, seq, micro, recompute, precision, fused, tokens    of a training; `step` is its batch in sequences; seq 0:
                                                             as long as usual; fused: attention's scores aren't stored
    wider, more  how often the width and the sequences are doubled in the picture of what grows with what
    op, group    of the network's chart                      keep  degrees that the search leaves as they are
    """
    show: str = "memory"
    task: str = "infer"
    model: str = "gpt-3-175b"
    machine: str = "8xa100-80"
    devices: int = 0
    memory: str = ""
    link: str = ""
    between: str = ""
    reserve: int = 10
    nominal: bool = False
    batch: int = Inference.batch
    prompt: int = Inference.prompt
    new: int = Inference.new
    weights: str = Inference.weights
    cache: str = Inference.cache
    step: int = STEP
    seq: int = 0
    micro: int = Training.micro_batch
    recompute: str = Training.recompute
    precision: str = "mixed"
    fused: bool = True
    tokens: int = 0
    tp: int = 8
    pp: int = 1
    dp: int = 1
    cp: int = 1
    ep: int = 1
    zero: int = 0
    sp: bool = False
    chunks: int = 1
    wider: int = 1
    more: int = 3
    op: str = "all_reduce"
    group: str = "tp"
    keep: tuple[str, ...] = ()

    @classmethod
    def from_address(cls, address: Mapping[str, str]) -> tuple["Asked", list[str]]:
        """What an address asks for, the usual for what it doesn't name; and a sentence for each that is mended."""
        lists, given, told = choices(), {}, []
        for name in FIELDS:
            if name not in address:
                continue
            value, word = _read(name, address[name], getattr(cls, name), lists.get(name, ()))
            given[name] = value
            if word:
                told.append(f"The address asks for a `{name}` that isn't there: {word}")
        return cls(**given), told

    def to_address(self) -> dict[str, str]:
        """What differs from the usual, and always model, machine and task: it opens the same."""
        usual = Asked()
        return {name: _written(getattr(self, name)) for name in FIELDS
                if name in ("model", "machine", "task") or getattr(self, name) != getattr(usual, name)}

    # --- as the planner's own objects: ConfigError for what can't be ---

    def planned(self) -> PlannedModel:
        return catalogue.model(self.model)

    def described(self) -> Machine:
        """The machine with its what-ifs; where the layout takes more devices, with as many as it takes."""
        found = catalogue.machine(self.machine, devices=self.devices or None, memory=self.memory or None,
                                  link=self.link or None, between=self.between or None)
        return found if found.devices >= self.layout().devices else found.with_devices(self.layout().devices)

    def had(self) -> int:
        """Devices of the machine as it was asked for, however many the layout takes."""
        return replace(self, tp=1, pp=1, dp=1, cp=1, ep=1).described().devices

    def job(self) -> Job:
        if self.task == "infer":
            return Inference(self.batch, self.prompt, self.new, self.weights, self.cache)
        return Training(self.step, self.length(), self.micro, cast(Any, self.recompute), PRECISIONS[self.precision],
                        stored=not self.fused, tokens=self.tokens)

    def length(self) -> int:
        """Tokens of a training's sequence: those that were asked for, else the usual, or the model's where it has
        positions for fewer."""
        return self.seq or min(Training.seq, self.planned().config.positions)

    def layout(self) -> Layout:
        training = self.task == "train"
        schedule: Literal["interleaved", "1f1b"] = "interleaved" if self.chunks > 1 else "1f1b"
        return Layout(tp=self.tp, pp=self.pp, dp=self.dp, cp=self.cp, ep=self.ep, sequence=self.sp and training,
                      zero=cast(Any, self.zero if training else 0), schedule=schedule, chunks=self.chunks)

    def capacity(self) -> Capacity:
        return Capacity.of(self.described().device, self.reserve / 100, nominal=self.nominal)


FIELDS = tuple(field.name for field in fields(Asked))


def _read(name: str, text: str, usual: Any, among: tuple[str, ...]) -> tuple[Any, str]:
    """A value from the address, and what to say where it isn't the one that was asked for."""
    if name in NUMBERS:
        lo, hi, _ = NUMBERS[name]
        try:
            wanted = int(text)                            # of too many digits: ValueError as well
        except ValueError:
            return usual, f"it goes from {lo:,} to {hi:,}. Shown is {usual:,}."
        value = max(lo, min(hi, wanted))
        return value, "" if value == wanted else f"it goes from {lo:,} to {hi:,}. Shown is {value:,}."
    if name in FLAGS:
        known = {"1": True, "0": False}
        return known.get(text, usual), "" if text in known else "it is 1 or 0. Shown is the usual one."
    if name == "keep":
        parts = [part for part in text.split(",") if part]
        good = tuple(part for part in DEGREES if part in parts)
        return good, "" if len(good) == len(parts) else f"it is made of {', '.join(DEGREES)}."
    return (text, "") if text in among else (usual, "Shown is the usual one.")


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return str(int(value))
    return ",".join(value) if isinstance(value, tuple) else str(value)
