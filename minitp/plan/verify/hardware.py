"""The device of a row: what its inputs, model or source name, looked up in the catalogue."""
from minitp.errors import ConfigError
from minitp.plan.catalogue import device as catalogue_device
from minitp.plan.machine import Device
from minitp.plan.verify.case import Case, CaseError
from minitp.plan.verify.known import known_run

DEVICES = (("a100-40", "a100-40"), ("a100 40", "a100-40"), ("a100", "a100-80"), ("h100", "h100"), ("h200", "h200"),
           ("gb200", "gb200"), ("b200", "b200"), ("v100", "v100-32"), ("tpuv4", "tpu-v4"), ("tpu v4", "tpu-v4"))
"""What a text has in it → the catalogue's name; the first that fits."""
SOURCES = (("llama-3.", "h100"), ("llama-3-", "h100"), ("llama 3", "h100"), ("palm", "tpu-v4"), ("pope", "tpu-v4"))
"""Published runs whose rows don't always name the device. All others here ran on A100-80."""


def device(case: Case) -> Device:
    """By `gpu`, `device` or what stands behind the number of GPUs; else what the source is known to have used."""
    told = " ".join(case.inputs.text(key) for key in ("gpu", "device", "gpus")).lower()
    places = (told, DEVICES), (case.model.lower(), DEVICES), (f"{case.model} {case.source}".lower(), SOURCES)
    run = None if told.strip() else known_run(case)
    if run is not None:
        return run.machine.device
    name = next((name for text, table in places for word, name in table if word in text), "a100-80")
    try:
        return catalogue_device(name)
    except ConfigError as error:
        raise CaseError(f"no device is known for this row: {error}") from None


def peak(case: Case) -> float:
    """FLOP/s: as given (in 10¹² where the number is small), else the device's for the row's number type."""
    for key in ("peak_flops", "peak", "flops"):
        if key in case.inputs:
            value = case.inputs.positive(key)
            return value * 1e12 if value < 1e6 else value
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
