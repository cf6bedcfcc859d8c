"""The machine: cores, BLAS and its threads, GPU, disk."""
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from shutil import disk_usage, which

from minitp.doctor.finding import Finding, python
from minitp.doctor.packages import version_of
from minitp.environment import cores, threads_per_rank, threads_set_by_user

_BLAS = """
import json, numpy, threadpoolctl
pools = [pool for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"]
print(json.dumps(pools[0] if pools else {}))
"""
_GPU = """
import json, cupy
if not cupy.cuda.is_available():
    print(json.dumps({"devices": []}))
else:
    runtime = cupy.cuda.runtime
    x = cupy.ones((64, 64), "float32")
    works = float((x @ x + 1).sum()) == 64 * 64 * 65
    devices = []
    for i in range(runtime.getDeviceCount()):
        with cupy.cuda.Device(i) as device:
            free, total = device.mem_info
        devices.append([runtime.getDeviceProperties(i)["name"].decode(), free, total])
    print(json.dumps({"devices": devices, "works": works, "driver": runtime.driverGetVersion(),
                      "runtime": runtime.runtimeGetVersion()}))
"""
MODEL_NEEDS = 10**9           # bytes: SmolLM2 as fetched (93 + 98 MB), and its weights in float32 (538 MB)


def check_cores() -> Iterator[Finding]:
    here, machine, quota = cores(), os.cpu_count() or 1, cpu_quota()
    ranks = min(here, max(1, int(quota))) if quota else here
    found = f"{here} of {machine}" + (f", {quota:g} by the container's quota" if quota and quota < here else "")
    if ranks == 1:
        found += ": more than 1 rank takes turns on it (right results, no speed)"
    else:
        found += f": up to {ranks} ranks compute side by side; more take turns, and those that wait yield their core"
    yield Finding("cores", "ok", found)
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if load > machine:
        yield Finding("load", "note", f"{load:.1f} processes want the {machine} cores just now: times will show that, "
                      "too")


def cpu_quota(root: Path = Path("/sys/fs/cgroup")) -> float | None:
    """The cores' worth of time that a container may use, which the number of cores doesn't show; None without limit."""
    try:
        limit, period = (root / "cpu.max").read_text().split()
        return int(limit) / int(period)
    except (OSError, ValueError):
        return None


def check_blas() -> Finding:
    """The library behind NumPy's products, and whether threads × ranks can outnumber the cores."""
    outcome = python(_BLAS)
    if outcome.error:
        return Finding("BLAS", "bad", f"NumPy can't be asked: {outcome.error}",
                       "pip install --force-reinstall numpy threadpoolctl")
    blas = outcome.data or {}
    name = f"{blas.get('internal_api', 'BLAS')} {blas.get('version') or ''}".strip()
    if not blas:
        return Finding("BLAS", "note", "its threads can't be counted from here (Apple's Accelerate, or none)")
    chosen = threads_set_by_user()
    threads = int(os.environ[chosen]) if chosen and os.environ[chosen].isdigit() else 0
    if chosen and threads * 2 > max(2, cores()):
        return Finding("BLAS", "warn", f"{name}; {chosen}={threads} is set and stays: already 2 ranks are "
                       f"{2 * threads} threads on {_count(cores(), 'core')}, which can be 10 to 35 times slower",
                       f"unset {chosen}")
    if chosen:
        return Finding("BLAS", "ok", f"{name}, {_count(threads, 'thread')} a rank, as {chosen} says")
    return Finding("BLAS", "ok", f"{name}, {_count(blas['num_threads'], 'thread')} for one rank; with more, minitp "
                   f"gives each cores // ranks (2 ranks: {threads_per_rank(2)})")


def check_gpu() -> Finding:
    """CuPy and a device are never needed, so their absence is no fault."""
    packages = [name for name in ("cupy-cuda12x", "cupy-cuda13x", "cupy") if version_of(name)]
    driver = which("nvidia-smi")
    if not packages:
        found = "CuPy is not installed, arrays are NumPy's" + ("; a driver is here" if driver else "")
        return Finding("GPU", "note", found, "pip install 'minitp[cuda12]'" if driver else "")
    if len(packages) > 1:
        return Finding("GPU", "warn", f"{' and '.join(packages)} are both installed and get in each other's way",
                       f"pip uninstall {packages[1]}")
    outcome = python(_GPU, 60)
    version = f"CuPy {version_of(packages[0])}"
    if outcome.data is None:
        return Finding("GPU", "warn", f"{version} does not work: {outcome.error}", f"pip install '{packages[0]}[ctk]'")
    if not outcome.data["devices"]:
        return Finding("GPU", "note", f"{version}, but no CUDA device is seen; arrays are NumPy's", "nvidia-smi")
    if not outcome.data["works"]:
        return Finding("GPU", "warn", f"{version} computes a product wrongly on {outcome.data['devices'][0][0]}",
                       "nvidia-smi")
    devices = "; ".join(f"{name}, {_size(free)} of {_size(total)} free"
                        for name, free, total in outcome.data["devices"])
    return Finding("GPU", "ok", f"{version}, CUDA {_cuda(outcome.data['runtime'])}, driver for "
                   f"{_cuda(outcome.data['driver'])}: {devices}")


def check_cache() -> Iterator[Finding]:
    """Where models are kept: can it be written, is there room, what is in it."""
    from minitp.models import cache_folder
    folder = cache_folder().parent
    wrong, held = unwritable(folder), list(cached(folder))
    if wrong and held:
        yield Finding("cache", "note", f"{folder} can be read but not written: what is in it works")
    elif wrong:
        yield Finding("cache", "bad", f"no model can be fetched: {wrong}", 'export MINITP_CACHE="$HOME/minitp-cache"')
    elif (free := disk_usage(_existing(folder)).free) < MODEL_NEEDS:
        yield Finding("cache", "warn", f"{folder}: {_size(free)} free, SmolLM2 and its float32 copy take up to "
                      f"{_size(MODEL_NEEDS)}", 'export MINITP_CACHE="/a/larger/disk"')
    else:
        yield Finding("cache", "ok", f"{folder}: {_size(free)} free")
    if held:
        yield Finding("models", "ok", "; ".join(f"{name} {_size(size)}" for name, size in held))
    else:
        yield Finding("models", "note", "none is fetched yet (the bundled `tiny` needs none)",
                      "minitp models fetch smollm2-135m")


def cached(folder: Path) -> Iterator[tuple[str, int]]:
    """What the cache holds: files of at least 1 MB, and folders below a kind's folder, with their bytes."""
    for kind in sorted(folder.glob("*/")):
        for entry in sorted(kind.iterdir()):
            files = [entry] if entry.is_file() else [file for file in entry.rglob("*") if file.is_file()]
            size = sum(file.stat().st_size for file in files)
            if size >= 10**6 and not entry.name.startswith("."):
                yield f"{kind.name}/{entry.name}", size


def check_temporary() -> Finding:
    """Ranks leave their results and errors in a temporary folder."""
    try:
        folder = Path(tempfile.gettempdir())
    except OSError as error:
        return Finding("temporary", "bad", str(error), 'mkdir -p "$HOME/tmp" && export TMPDIR="$HOME/tmp"')
    free = disk_usage(folder).free
    if free < 10**8:
        return Finding("temporary", "warn", f"{folder}: only {_size(free)} free",
                       'mkdir -p "$HOME/tmp" && export TMPDIR="$HOME/tmp"')
    return Finding("temporary", "ok", f"{folder} can be written, {_size(free)} free")


def unwritable(folder: Path) -> str:
    """Why nothing can be written to `folder` (or made, where it isn't there yet); "" if it can."""
    there = _existing(folder)
    try:
        with tempfile.TemporaryFile(dir=there):
            return ""
    except OSError as error:
        return f"{there}: {error.strerror}"


def _existing(folder: Path) -> Path:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB ({count / 2**30:.1f} GiB)" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def _cuda(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"
