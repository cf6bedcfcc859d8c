"""`minitp app` as a user starts it: a server of this machine alone that Ctrl-C ends, with the run it has going on."""
import os
import signal
import socket
import subprocess
import sys
import tomllib
import urllib.request
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

from minitp.commands import app as command
from minitp.errors import ConfigError, LaunchError
from tests.app.conftest import APP, ROOT
from tests.needs import missing
from tests.test_manager import SOON, nothing_left, processes
from tests.until import until


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return probe.getsockname()[1]


def children(pid: int) -> list[int]:
    """The living processes whose parent is `pid`: the fourth word of their stat, the second after the name."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(path.parent.name))
    return found


class Server:
    """`minitp app --no-browser` in a folder that has a `random.py`, as users' folders do."""

    def __init__(self, port: int, runs, folder):
        if find_spec("streamlit") is None:
            missing("Streamlit: pip install 'minitp[app]'")
        (folder / "random.py").write_text("raise SystemExit('the wrong random.py')\n")
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "minitp", "app", "--no-browser", "--port", str(port), "--runs", str(runs)],
            cwd=folder, env=os.environ | {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True)
        self.address = f"http://localhost:{port}"

    def wait_until_up(self) -> None:
        """Until it answers, and hears Ctrl-C itself: it answers first."""
        until(lambda: self._answers() and self._hears())

    def _answers(self) -> bool:
        assert self.process.poll() is None, self.process.stdout.read()
        with suppress(OSError), urllib.request.urlopen(self.address + "/_stcore/health", timeout=5) as answer:
            return answer.read() == b"ok"
        return False

    def _hears(self) -> bool:
        """Whether Streamlit has set its handlers, of which that of SIGQUIT is the last."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return bool(int(status.partition("SigCgt:")[2].split()[0], 16) >> (signal.SIGQUIT - 1) & 1)

    def end(self, number: int = signal.SIGINT) -> tuple[int, str]:
        self.process.send_signal(number)
        told = self.process.communicate(timeout=SOON)[0]
        return self.process.returncode, told


def test_it_serves_this_machine_alone_and_ctrl_c_ends_it(port, runs, tmp_path):
    """F03."""
    server = Server(port, runs, tmp_path)
    try:
        server.wait_until_up()
        with pytest.raises(LaunchError, match=f"port {port} is in use"):
            command.free_port(port)
        assert _listens_on(port) <= {"0100007F", "00000000000000000000000001000000"}       # 127.0.0.1 and ::1
        pid = server.process.pid
        assert not children(pid)                                   # the server is this process itself
        code, told = server.end()
        assert code == 0 and f"http://localhost:{port}" in told and "Traceback" not in told
        assert command.free_port(port) == port
    finally:
        server.process.kill()
        server.process.wait()


def test_ctrl_c_ends_it_also_where_nobody_reads_its_output_any_more(port, runs, tmp_path):
    """As in `minitp app | tee log`, where Ctrl-C ends tee first."""
    server = Server(port, runs, tmp_path)
    try:
        server.wait_until_up()
        server.process.stdout.close()
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(SOON) == 0 and command.free_port(port) == port
    finally:
        server.process.kill()
        server.process.wait()


def _listens_on(port: int) -> set[str]:
    lines = [line.split() for name in ("tcp", "tcp6") if (table := Path("/proc/net", name)).exists()
             for line in table.read_text().splitlines()[1:]]
    return {address.split(":")[0] for _, address, _, state, *_ in lines
            if state == "0A" and int(address.split(":")[1], 16) == port}


def test_a_taken_port_is_refused_or_passed_over(monkeypatch):
    with socket.socket() as taken:
        taken.bind(("localhost", 0))
        taken.listen()
        number = taken.getsockname()[1]
        with pytest.raises(LaunchError, match="in use"):
            command.free_port(number)
        monkeypatch.setattr(command, "PORT", number)
        assert number < command.free_port(None) < number + 50


def test_a_port_that_is_not_for_this_user_is_not_called_taken(monkeypatch):
    def refuse(self, address):
        raise PermissionError(13, "Permission denied")
    monkeypatch.setattr(socket.socket, "bind", refuse)
    with pytest.raises(LaunchError, match="may not listen on port 80;"):
        command.free_port(80)


def test_what_is_missing_is_named(monkeypatch, tmp_path):
    with pytest.raises(ConfigError, match="no such folder"):
        command.serve(None, False, tmp_path / "gone")
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    with pytest.raises(LaunchError, match=r"pip install 'minitp\[app\]'"):
        command.serve(None, False, None)


def test_the_settings_that_keep_it_safe_lie_beside_the_entry():
    """Streamlit reads them from there in both ways of starting."""
    assert command.main_script() == APP / "main.py"
    settings = tomllib.loads((APP / ".streamlit" / "config.toml").read_text())
    assert settings["server"]["address"] == "localhost" and settings["server"]["maxUploadSize"] <= 64
    assert settings["browser"]["gatherUsageStats"] is False


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_run_ends_with_the_server(chromium, port, runs, tmp_path, number):
    """Started by a real page in a real browser, which is closed before the server ends (F01, F02)."""
    server = Server(port, runs, tmp_path)
    try:
        server.wait_until_up()
        page = chromium.new_page()
        page.goto(f"{server.address}/run")
        page.get_by_role("button", name="Start").click()
        page.get_by_text("Running").or_(page.get_by_text("Starting the ranks")).first.wait_for()
        page.close()
        assert processes(runs)
        server.process.send_signal(number)
        server.process.wait(SOON)
        assert nothing_left(runs)
    finally:
        server.process.kill()
        server.process.wait()
