"""Python itself, the packages that minitp needs, and the extras that it can use."""
import json
import re
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import minitp
from minitp.doctor.finding import Finding, python

_LEAST_PYTHON = (3, 11)
_USES = {"app": ("the walkthrough in the browser", "main.py"), "lessons": ("the lesson notebooks", "*.ipynb")}
_IMPORT_ALL = """
import importlib, json
failed = {}
for name in NAMES:
    try:
        importlib.import_module(name.replace("-", "_"))          # a distribution's ml-dtypes is the module ml_dtypes
    except BaseException as error:
        failed[name] = f"{type(error).__name__}: {error}"
print(json.dumps(failed))
"""


def check_python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] < _LEAST_PYTHON:
        return Finding("Python", "bad", f"{version}: minitp needs 3.11 or newer",
                       "python3.11 -m venv .venv && .venv/bin/pip install 'minitp[mpi]'")
    return Finding("Python", "ok", f"{version} ({sys.executable})")


def check_minitp() -> Finding:
    """minitp's version, and whether each package that it always needs is there, new enough and can be imported."""
    needed = requirements().get("", {})
    old = [f"{name} {have} (needs {least})" for name, least in needed.items()
           if (have := version_of(name)) and _numbers(have) < _numbers(least)]
    outcome = python(_IMPORT_ALL.replace("NAMES", json.dumps(list(needed))), 60)
    if outcome.data is None:
        return Finding("minitp", "bad", f"its packages can't be imported: {outcome.error}",
                       "pip install --force-reinstall minitp")
    if outcome.data:
        wrong = "; ".join(f"{name}: {error}" for name, error in outcome.data.items())
        return Finding("minitp", "bad", f"{minitp.__version__}, but {wrong}", f"pip install {_quoted(outcome.data)}")
    if old:
        names = {line.split()[0]: None for line in old}
        return Finding("minitp", "bad", f"{minitp.__version__}, but too old: {', '.join(old)}",
                       f"pip install --upgrade {_quoted(names)}")
    held = ", ".join(f"{name} {version_of(name)}" for name in ("numpy", "tokenizers", "gguf"))
    return Finding("minitp", "ok", f"{minitp.__version__}; {held}")


def check_extras() -> Iterator[Finding]:
    inside = Path(minitp.__file__).parent
    for extra, (use, files) in _USES.items():
        if not any(found for folder in (inside / f"_{extra}", inside.parent / extra) for found in folder.glob(files)):
            continue                                # this minitp has no use for the extra
        missing = [name for name in requirements().get(extra, {}) if version_of(name) is None]
        if missing:
            yield Finding(extra, "note", f"{use}: not installed ({', '.join(missing)})",
                          f"pip install 'minitp[{extra}]'")
        else:
            yield Finding(extra, "ok", f"{use}: installed")


def version_of(name: str) -> str | None:
    """The installed version of a distribution, None without it."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def requirements() -> dict[str, dict[str, str]]:
    """extra ("" for what is always needed) → package → least version: as installed, or from the source folder."""
    try:
        lines = metadata.requires("minitp") or []
    except metadata.PackageNotFoundError:
        lines = list(_from_source())
    found: dict[str, dict[str, str]] = {}
    for line in lines:
        requirement, _, marker = line.partition(";")
        extra = re.search(r"""extra\s*==\s*["']([\w-]+)""", marker)
        parts = re.match(r"\s*([\w.-]+)(?:\[[^]]*\])?\s*(?:>=\s*([\d.]+))?", requirement)
        if parts:
            found.setdefault(extra[1] if extra else "", {})[parts[1]] = parts[2] or "0"
    return found


def _from_source() -> Iterator[str]:
    import tomllib
    source = Path(minitp.__file__).parents[1] / "pyproject.toml"
    if source.is_file():
        project = tomllib.loads(source.read_text())["project"]
        yield from project["dependencies"]
        for extra, lines in project["optional-dependencies"].items():
            yield from (f"{line} ; extra == '{extra}'" for line in lines)


def _numbers(version: str) -> list[int]:
    return [int(n) for n in re.findall(r"\d+", version)[:3]]


def _quoted(names: dict) -> str:
    needed = requirements().get("", {})
    return " ".join(f"'{name}>={needed[name]}'" if needed.get(name, "0") != "0" else name for name in names)
