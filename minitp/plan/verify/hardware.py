"""The device of a row: what its inputs, model or source name, looked up in the catalogue."""
import re

from minitp.plan.catalogue.devices import shipped
from minitp.plan.machine import Device
from minitp.plan.published.runs import family
from minitp.plan.verify.case import Case
from minitp.plan.verify.known import known_run

USUAL = "a100-80"
"""The device of most published tables, where a row names none: told with the outcome."""
NO_RATE = 1e6
"""Peaks are FLOP/s; below this many they are 10¹² of them, as the files of cases write small ones."""


def named_in(text: str) -> Device | None:
    """The catalogue's device of the longest name that a text has in it, blanks and dashes apart; None for none."""
    known, told = shipped()[0], _bare(text)
    if text.strip().lower() in known:
        return known[text.strip().lower()]
    found = [name for name in known if len(name) > 2 and not name.isdigit() and _bare(name) in told]
    return known[max(found, key=lambda name: len(_bare(name)))] if found else None


def _bare(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


def device(case: Case) -> Device:
    """By `gpu`, `device` or what stands behind the number of GPUs; else what the source is known to have used."""
    told = " ".join(case.inputs.text(key) for key in ("gpu", "device", "gpus"))
    if found := named_in(told):
        return found
    if (run := known_run(case)) is not None:
        case.assume(f"{run.machine.device.name} (that of the run {run.name})")
        return run.machine.device
    if found := named_in(case.model):
        case.assume(f"{found.name} (from the row's model)")
        return found
    made_by = family(case.model, case.source)
    if made_by and made_by.device:
        case.assume(f"{made_by.device.name} ({made_by.source})")
        return made_by.device
    case.assume(f"{USUAL} (that of most published tables; nothing in the row names a device)")
    return shipped()[0][USUAL]


def peak(case: Case) -> float:
    """FLOP/s: as given, else the device's for the row's number type."""
    inputs = case.inputs
    if "peak_flops" in inputs or "peak" in inputs:
        value = inputs.positive("peak_flops", "peak")
        return value * 1e12 if value < NO_RATE else value
    return device(case).peak("bf16")


def memory(case: Case) -> float:
    """Bytes of a device: hbm_gib means powers of 1024, gpu_gb and gpu_mem_gb don't; else what the named device has."""
    inputs = case.inputs
    if "hbm_gib" in inputs:
        return 2.0**30 * inputs.positive("hbm_gib")
    if "gpu_gb" in inputs or "gpu_mem_gb" in inputs:
        return 1e9 * inputs.positive("gpu_gb", "gpu_mem_gb")
    return device(case).memory


def bandwidth(case: Case) -> float:
    """Bytes/s of memory: as given, else the device's on its data sheet."""
    if case.inputs.has("hbm_eff") or case.inputs.has("hbm_bytes_per_s"):
        return case.inputs.positive("hbm_eff", "hbm_bytes_per_s")
    return device(case).bandwidth
