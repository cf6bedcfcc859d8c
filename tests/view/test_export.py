"""`minitp watch --html`: one file that holds everything, runs the player's script alone, and destroys nothing."""
import base64
import hashlib
import json
import re

import pytest
from typer.testing import CliRunner

from minitp.cli import app
from minitp.commands import watch as command
from minitp.errors import ConfigError, FileFormatError
from minitp.trace import Trace
from minitp.view.player.export import to_html
from minitp.view.watch import play
from tests.view.view_runs import RUNS, run


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "run.json"
    run(**RUNS["no values"]).write(path)
    return path


def test_the_page_needs_nothing_but_itself():
    page = to_html(play(run(**RUNS["uneven heads"])))
    assert not re.search(r"""(?:src|href|@import|url\()\s*=?\s*["']?(?:https?:)?//""", page)
    assert page.count("<script") == page.count("</script") == 2
    assert "<title>llama on 5 ranks · minitp</title>" in page and "startStandalone(" in page


def test_only_the_players_script_may_run():
    page = to_html(play(run(**RUNS["no values"])))
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)[1]
    script = re.search(r'<script type="module">(.*)</script>', page, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in policy and policy.startswith("default-src 'none';")


def test_words_cannot_break_out_of_their_element():
    trace = run(**RUNS["no values"])
    evil = "</script><script>alert(1)</script><!-- &lt; \u2028"
    words = trace.run | {"pieces": [[evil] * 3], "id": evil, "model": trace.run["model"] | {"name": evil}}
    page = to_html(play(Trace.from_plain(trace.to_plain() | {"run": words})))
    assert page.count("<script") == 2 and "alert(1)</script>" not in page
    data = json.loads(re.search(r'id="play">(.*?)</script>', page, re.DOTALL)[1])
    assert any(evil.replace("\u2028", "�") == text for text in data["strings"])


def test_watch_writes_the_page_and_says_what_is_in_it(file, tmp_path):
    words = ["watch", str(file), "--html", str(tmp_path / "out.html"), "--first", "2", "--count", "1"]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0
    page = (tmp_path / "out.html").read_text(encoding="utf-8")
    data = json.loads(re.search(r'id="play">(.*?)</script>', page, re.DOTALL)[1])
    assert data["run"]["window"] == {"first": 1, "count": 1, "of": 3}
    assert result.stderr.endswith("out.html: llama on 4 ranks, 1 of 3 passes, 6 sync points.\n")


def test_watch_opens_a_file_of_its_own(file, tmp_path, capsys, monkeypatch):
    opened = []
    monkeypatch.setattr(command.webbrowser, "open", lambda address: opened.append(address) or len(opened) == 1)
    monkeypatch.setattr(command.tempfile, "tempdir", str(tmp_path))
    command.watch(file, None, None, None)
    assert opened[0].startswith("file://") and opened[0].endswith("/watch.html")
    assert "No browser" not in capsys.readouterr().err
    command.watch(file, None, None, None)
    assert "No browser could be started here" in capsys.readouterr().err and len(set(opened)) == 2


def test_nothing_is_destroyed(file, tmp_path):
    before = file.read_bytes()
    targets = {file: "is the trace itself", tmp_path: "is a folder", tmp_path / "no" / "a.html": "no folder"}
    for target, rule in targets.items():
        with pytest.raises(ConfigError, match=rule):
            command.watch(file, target, None, None)
    with pytest.raises(FileFormatError):
        command.watch(tmp_path / "none.json", tmp_path / "new.html", None, None)
    assert file.read_bytes() == before and not (tmp_path / "new.html").exists()
