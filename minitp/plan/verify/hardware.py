"""The device of a row: what its inputs, model or source name, looked up in the catalogue."""
import re

from minitp.plan.catalogue.devices import shipped
from minitp.plan.machine import Device
from minitp.plan.published.runs import family
from minitp.plan.verify.case import Case, CaseError
from minitp.plan.verify.known import known_run

USUAL = "a100-80"
"""The device of most published tables, where a row names none: told with the outcome."""
NO_RATE = 1e6
"""Peaks are FLOP/s; below this many they are 10¹² of them, as the files of cases write small ones."""
SLOWEST = 1e6
"""Bytes/s: no memory is slower."""


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


def bandwidth(case: Case, default: float | None = None) -> float:
    """Bytes/s that memory is read with: hbm_eff, in bytes/s or (up to 1) as a share of hbm_bytes_per_s; else that one,
    the data sheet's. Where neither is given `default`, or the device's data sheet.

    CaseError for what no memory does: files write 0.68, 68 and 1397e9 under one name, and 68 bytes/s is nonsense.
    """
    inputs = case.inputs
    sheet = _rate(case, "hbm_bytes_per_s") if "hbm_bytes_per_s" in inputs else None
    if "hbm_eff" not in inputs:
        return sheet or default or device(case).bandwidth
    reached = inputs.positive("hbm_eff")
    if reached <= 1:
        return reached * (sheet or device(case).bandwidth)
    reached = _rate(case, "hbm_eff")
    if sheet and reached > sheet:
        raise CaseError(f"hbm_eff is {reached:g} bytes/s, more than hbm_bytes_per_s, {sheet:g}: no memory is read "
                        "faster than its data sheet says")
    return reached


def _rate(case: Case, key: str) -> float:
    """Bytes/s of a memory; CaseError for fewer than any has."""
    value = case.inputs.positive(key)
    if value < SLOWEST:
        raise CaseError(f"{key} is {value:g}, which is no memory's bytes/s (1397.31e9)"
                        + ("; a share of hbm_bytes_per_s is 1 or less" if key == "hbm_eff" else ""))
    return value
