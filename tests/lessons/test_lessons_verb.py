"""`minitp lessons`: what it copies, keeps and says, and that Jupyter starts there with a kernel that works."""
import errno
import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import nbformat
import pytest
from jupyter_client import BlockingKernelClient

import minitp as minitp_package
from minitp.commands import lessons as verb
from minitp.commands import lessons_copy
from minitp.commands.lessons_copy import RECORD, copy_lessons, files
from minitp.errors import ConfigError, FileFormatError, LaunchError, SaveError
from minitp.files import replacing
from tests.lessons.notebooks import LESSONS
from tests.test_cli import minitp
from tests.until import until

TWO = "02_two_cuts"


@pytest.fixture
def source(tmp_path):
    """Lessons of a few bytes."""
    folder = tmp_path / "source"
    for name, text in {"01_a.ipynb": "one", "01_a.py": "1", "02_b.ipynb": "two", "mpi/1.py": "raw",
                       "README.md": "read", "__pycache__/01_a.pyc": "junk", ".ipynb_checkpoints/01_a.ipynb": "junk",
                       "mpi/.DS_Store": "junk"}.items():
        put(folder / name, text)
    return folder


def put(file, text):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def held(folder):
    return {name: (folder / name).read_text() for name in files(folder)}


# --- copying ----------------------------------------------------------------------------------------------------------

def test_all_is_copied_but_what_python_and_jupyter_leave(source, tmp_path):
    done = copy_lessons(source, tmp_path / "mine")
    assert done.written == sorted(done.written) == ["01_a.ipynb", "01_a.py", "02_b.ipynb", "README.md", "mpi/1.py"]
    assert held(tmp_path / "mine") == held(source)
    assert not copy_lessons(source, tmp_path / "mine").written


def test_what_the_user_changed_is_kept_and_the_rest_is_brought_up_to_date(source, tmp_path):
    mine = tmp_path / "mine"
    copy_lessons(source, mine)
    put(mine / "02_b.ipynb", "my answer")
    put(mine / "notes.txt", "my notes")
    put(source / "02_b.ipynb", "two, better")
    put(source / "README.md", "read this")
    done = copy_lessons(source, mine)
    assert (done.written, done.kept, done.fresh) == (["README.md"], ["02_b.ipynb"], [])
    assert held(mine) | {"02_b.ipynb": "two, better"} == held(source) | {"notes.txt": "my notes"}


def test_a_notebook_and_its_script_are_one(source, tmp_path):
    """Jupytext takes the cells of the newer one: a new script would hide what the user wrote in the notebook."""
    mine = tmp_path / "mine"
    copy_lessons(source, mine)
    put(mine / "01_a.ipynb", "my answer")
    put(source / "01_a.py", "1, better")
    (mine / "01_a.py").unlink()
    assert copy_lessons(source, mine).kept == ["01_a.ipynb"]
    assert not (mine / "01_a.py").exists()


def test_fresh_writes_beside_what_the_user_changed_and_never_over_it(source, tmp_path):
    mine = tmp_path / "mine"
    copy_lessons(source, mine)
    put(mine / "02_b.ipynb", "my answer")
    assert copy_lessons(source, mine, fresh=True).fresh == ["02_b.fresh.ipynb"]
    put(source / "02_b.ipynb", "two, better")
    for _ in range(2):                                              # the second time it is there already
        assert copy_lessons(source, mine, fresh=True).fresh == ["02_b.fresh2.ipynb"]
    found = held(mine)
    assert [found[f"02_b{part}.ipynb"] for part in ("", ".fresh", ".fresh2")] == ["my answer", "two", "two, better"]


@pytest.mark.parametrize("record", [None, "", "[1]", "{\"02_b.ipynb\": 3}", "[" * 100_000])
def test_without_a_record_whatever_differs_is_the_user_s(source, tmp_path, record):
    mine = tmp_path / "mine"
    put(mine / "02_b.ipynb", "older than the record")
    if record is not None:
        put(mine / RECORD, record)
    assert copy_lessons(source, mine).kept == ["02_b.ipynb"]
    assert (mine / "02_b.ipynb").read_text() == "older than the record"


def test_links_and_folders_in_the_way_are_left_alone(source, tmp_path):
    mine, elsewhere = tmp_path / "mine", tmp_path / "elsewhere"
    mine.mkdir()
    (mine / "02_b.ipynb").symlink_to(elsewhere)
    (mine / "README.md").mkdir()
    assert copy_lessons(source, mine, fresh=True).kept == ["02_b.ipynb", "README.md"]
    assert not elsewhere.exists() and (mine / "README.fresh.md").read_text() == "read"


@pytest.mark.parametrize("fresh", [False, True])
def test_what_stands_where_a_folder_would_be_is_left_alone_and_told(source, tmp_path, fresh):
    mine, elsewhere = tmp_path / "mine", tmp_path / "elsewhere"
    put(source / "figures/deep/a.svg", "a")
    put(mine / "mpi", "a file of mine")
    elsewhere.mkdir()
    (mine / "figures").symlink_to(elsewhere)
    done = copy_lessons(source, mine, fresh=fresh)
    assert (done.blocked, done.kept, done.fresh) == (["figures", "mpi"], [], [])
    assert done.written == ["01_a.ipynb", "01_a.py", "02_b.ipynb", "README.md"]
    assert not list(elsewhere.iterdir()) and (mine / "mpi").read_text() == "a file of mine"
    assert "Left alone" in verb.told(mine, done)[1] and "figures, mpi" in verb.told(mine, done)[1]


@pytest.mark.parametrize("writes", range(1, 7))
def test_of_a_copy_that_is_cut_off_nothing_is_later_taken_for_the_user_s(source, tmp_path, monkeypatch, writes):
    """Cut off after so many files; then minitp is brought up to date and they are copied again."""
    mine, left = tmp_path / "mine", iter(range(writes))

    @contextmanager
    def cut_off(path):
        if next(left, None) is None:
            raise KeyboardInterrupt
        with replacing(path) as file:
            yield file

    with monkeypatch.context() as patch:
        patch.setattr(lessons_copy, "replacing", cut_off)
        with suppress(KeyboardInterrupt):
            copy_lessons(source, mine)
    for name in files(source):
        put(source / name, f"{name}, better")
    assert copy_lessons(source, mine).kept == []
    assert held(mine) == held(source)


def test_where_nothing_is_new_nothing_is_written(source, tmp_path, monkeypatch):
    mine = tmp_path / "mine"
    copy_lessons(source, mine)
    monkeypatch.setattr(lessons_copy, "_write", lambda path, data: pytest.fail(f"{path} was written"))
    copy_lessons(source, mine)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_a_folder_that_may_not_be_written_to_is_named_with_what_helps(source, tmp_path, monkeypatch, number):
    def refuse(path):
        raise OSError(number, "no", str(path.with_name(".x.0123456789ab.partial")))

    monkeypatch.setattr(lessons_copy, "replacing", refuse)
    with pytest.raises(SaveError, match=f"no permission to write in {tmp_path}/mine; .*chmod") as error:
        copy_lessons(source, tmp_path / "mine")
    assert "partial" not in str(error.value)


def test_a_file_that_may_not_be_read_is_the_user_s(source, tmp_path, monkeypatch):
    mine, read = tmp_path / "mine", Path.read_bytes
    copy_lessons(source, mine)

    def refuse(path):
        if path == mine / "README.md":
            raise PermissionError(errno.EACCES, "no", str(path))
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert copy_lessons(source, mine).kept == ["README.md"]


@pytest.mark.parametrize("link", [True, False])
def test_what_stands_where_the_record_would_be_is_not_overwritten(source, tmp_path, link):
    mine, victim = tmp_path / "mine", tmp_path / "victim"
    put(victim, "{}")
    mine.mkdir()
    if link:
        (mine / RECORD).symlink_to(victim)
    else:
        (mine / RECORD).mkdir()
    with pytest.raises(ConfigError, match=r"minitp-lessons\.json is no file of minitp's.*remove it"):
        copy_lessons(source, mine)
    assert victim.read_text() == "{}" and not files(mine)


def test_a_folder_that_can_not_be_one_is_refused(source, tmp_path, monkeypatch):
    put(tmp_path / "file", "")
    put(tmp_path / "src" / "pyproject.toml", '[project]\nname = "minitp"')
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("nowhere")
    package = Path(minitp_package.__file__).parent
    before = held(source)
    for folder, why in ((tmp_path / "file", "there is a file of that name"), (tmp_path / "file/x", "file is a file"),
                        (tmp_path / "loop", "loop is a link that leads nowhere"), (source, "a folder of your own"),
                        (tmp_path / "loop/x", "loop is a link that leads nowhere"),
                        (tmp_path / "dangling", "dangling is a link that leads nowhere"),
                        (tmp_path / "dangling/x", "dangling is a link that leads nowhere"),
                        (source / "mine", "a folder of your own"), (package, "minitp's own code"),
                        (package / "lessons", "minitp's own code"), (tmp_path / "src", "would mix with it")):
        with pytest.raises(ConfigError, match=why):
            copy_lessons(source, folder)
    assert held(source) == before and not (package / "lessons").exists()
    monkeypatch.chdir(tmp_path / "src")
    with pytest.raises(ConfigError, match="their own, as minitp-lessons"):
        copy_lessons(source, Path("."))
    assert copy_lessons(source, Path("minitp-lessons")).written
    put(tmp_path / "other/pyproject.toml", "project = 3")
    assert copy_lessons(source, tmp_path / "other").written


# --- what it says -----------------------------------------------------------------------------------------------------

def test_the_real_ones_are_copied_whole_and_what_is_kept_is_named(tmp_path):
    words = ["lessons", "--folder", str(tmp_path / "mine"), "--no-start"]
    assert f"{len(files(LESSONS))} files written" in minitp(*words).stdout
    assert files(tmp_path / "mine") == files(LESSONS)
    (tmp_path / "mine" / f"{TWO}.ipynb").write_text("{}")
    told = minitp(*words).stdout
    assert "0 files written" in told and f"Kept as you have changed them: {TWO}.ipynb." in told and "--fresh" in told
    assert f"Beside them, as minitp has them: {TWO}.fresh.ipynb." in minitp(*words, "--fresh").stdout


def test_without_jupyter_they_are_copied_and_it_is_said_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setattr(verb, "find_spec", lambda name: None)
    with pytest.raises(LaunchError, match=r"pip install 'minitp\[lessons\]'.*minitp run"):
        verb.open_lessons(tmp_path / "mine")
    assert files(tmp_path / "mine") == files(LESSONS)


@pytest.mark.parametrize("asked", ["02", "2", TWO, f"{TWO}.ipynb", "two_cuts", "Two_Cuts"])
def test_a_lesson_is_found_by_number_and_name(asked):
    assert verb.find(asked).file.name == f"{TWO}.ipynb"


def test_a_lesson_that_is_not_there_is_refused_before_anything_is_copied(tmp_path):
    with pytest.raises(ConfigError, match=r"no lesson 77�; there are .*02.*--list"):
        verb.open_lessons(tmp_path / "mine", "77\x1b")
    assert not (tmp_path / "mine").exists()


@pytest.mark.parametrize("asked", ["", " ", ".ipynb"])
def test_a_lesson_without_a_name_is_refused(asked):
    with pytest.raises(ConfigError, match="no lesson without a name; there are 01"):
        verb.find(asked)


def test_a_folder_without_a_name_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="--folder has no name"):
        minitp("lessons", "--no-start", "--folder", "")
    assert not files(tmp_path)


def test_the_list_is_what_the_notebooks_say(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    told = minitp("lessons", "--list").stdout
    for file in LESSONS.glob("*.ipynb"):
        first = nbformat.read(file, 4).cells[0].source
        assert first.splitlines()[0].removeprefix("# ") in told
    found = verb.find("02")
    assert (found.name, found.question, found.minutes) == (
        "02", "Can two matrices be shared out over ranks so that they talk only once?", 25)
    assert re.search(rf"{re.escape(found.title)} +{re.escape(found.question)} +{found.minutes}\n", told)


def test_every_lesson_says_what_it_answers_and_how_long_it_takes():
    for lesson in verb.lessons():
        assert lesson.question.endswith("?") and lesson.minutes, lesson.file.name


def test_a_lesson_without_question_or_cells_is_listed_and_a_broken_file_named(tmp_path, monkeypatch):
    monkeypatch.setattr(verb, "source_folder", lambda: tmp_path)
    (tmp_path / "a_x.ipynb").write_text(json.dumps({"cells": []}))
    assert [(one.name, one.title, one.question, one.minutes) for one in verb.lessons()] == [("a", "a_x", "", None)]
    (tmp_path / "b.ipynb").write_text("{")
    with pytest.raises(FileFormatError, match=r"b\.ipynb is not a notebook"):
        verb.lessons()


# --- Jupyter ----------------------------------------------------------------------------------------------------------

def test_a_script_follows_its_notebook_that_was_changed_elsewhere(tmp_path):
    for name in ("puzzles", "02_two_cuts", "03_mlp_of_a_real_model"):
        for end in (".py", ".ipynb"):
            shutil.copy(LESSONS / f"{name}{end}", tmp_path)
        os.utime(tmp_path / f"{name}.py", (1, 1))
    book = nbformat.read(tmp_path / "puzzles.ipynb", 4)
    book.cells[1].source += "\nprint('mine')"
    nbformat.write(book, tmp_path / "puzzles.ipynb")
    (tmp_path / "03_mlp_of_a_real_model.ipynb").write_text("no notebook")
    before = (tmp_path / "02_two_cuts.py").read_bytes()
    assert verb.follow(tmp_path) == ["puzzles.py"]
    assert "print('mine')" in (tmp_path / "puzzles.py").read_text("utf-8")
    assert (tmp_path / "02_two_cuts.py").read_bytes() == before
    assert (tmp_path / "02_two_cuts.py").stat().st_mtime >= (tmp_path / "02_two_cuts.ipynb").stat().st_mtime
    assert verb.follow(tmp_path) == []


def test_what_jupyter_is_started_with(tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr(verb.os, "execve", lambda *call: started.append(call))
    monkeypatch.delenv("JUPYTER_CONFIG_PATH", raising=False)
    verb.open_lessons(tmp_path / "mine", "2")
    verb.open_lessons(tmp_path / "mine", browser=False)
    for program, command, environment in started:
        assert program == command[0] == sys.executable and command[command.index("-m") + 1] == "jupyterlab"
        assert f"--ServerApp.root_dir={tmp_path / 'mine'}" in command
        assert environment["JUPYTER_PREFER_ENV_PATH"] == "1"
        assert environment["PYTHONPATH"].split(os.pathsep)[0] == str(LESSONS.parent)
        assert Path(environment["JUPYTER_CONFIG_PATH"], "labconfig", "default_setting_overrides.json").is_file()
    assert f"--LabApp.default_url=/lab/tree/{TWO}.ipynb" in started[0][1] and "--no-browser" not in started[0][1]
    assert "--LabApp.default_url=/lab/tree/README.md" in started[1][1] and "--no-browser" in started[1][1]


@pytest.mark.slow
def test_jupyter_starts_and_the_lesson_s_kernel_finds_minitp(tmp_path):
    with started(tmp_path) as (server, runtime):
        def ask(path, data=None):
            with urlopen(f"{server['url']}{path}?token={server['token']}", data) as answer:
                return json.load(answer)

        assert server["root_dir"] == str(tmp_path / "mine")
        settings = ask("lab/api/settings/@jupyterlab/docmanager-extension:plugin")["schema"]["properties"]
        assert settings["defaultViewers"]["default"]["markdown"] == "Markdown Preview"
        spec = ask(f"api/contents/{TWO}.ipynb")["content"]["metadata"]["kernelspec"]["name"]
        kernel = ask("api/sessions", json.dumps({"kernel": {"name": spec}, "name": TWO, "type": "notebook",
                                                 "path": f"{TWO}.ipynb"}).encode())["kernel"]["id"]
        client = BlockingKernelClient(connection_file=str(runtime / f"kernel-{kernel}.json"))
        client.load_connection_file()
        client.start_channels()
        client.wait_for_ready(timeout=60)
        said = []
        client.execute_interactive("import sys, minitp; print(sys.executable, minitp.__file__, sep='\\n')", timeout=60,
                                   output_hook=lambda message: said.append(message["content"].get("text", "")))
        client.stop_channels()
    assert "".join(said).split("\n")[:2] == [sys.executable, str(LESSONS.parent / "minitp" / "__init__.py")]


@contextmanager
def started(folder):
    """(what `minitp lessons` started says of itself, its runtime folder), nothing of it in the user's home."""
    runtime = folder / "runtime"
    env = os.environ | {f"JUPYTER_{kind}_DIR": str(folder / kind.lower()) for kind in ("RUNTIME", "CONFIG", "DATA")}
    env["PYTHONPATH"] = str(LESSONS.parent)
    command = [sys.executable, "-m", "minitp", "lessons", "02", "--folder", str(folder / "mine"), "--no-browser"]
    log = folder / "log.txt"
    with log.open("wb") as out, subprocess.Popen(command, env=env, stdout=out, stderr=out) as process:
        try:
            def said():
                assert process.poll() is None, log.read_text()
                with suppress(StopIteration, json.JSONDecodeError, URLError):   # not there, not whole, not listening
                    server = json.loads(next(runtime.glob("jpserver-*.json")).read_text())
                    urlopen(f"{server['url']}api").close()
                    return server

            yield until(said), runtime
        finally:
            process.terminate()
