"""Choosing a run: what is listed, what is opened, and files that mean harm."""
import gzip
import json
import os

import pytest

from minitp.runs import header_of, listed, title


@pytest.fixture(autouse=True)
def no_samples(monkeypatch):
    """Lists hold what the test puts there."""
    monkeypatch.setattr("ui.picker.samples", list)


def shows():
    import streamlit as st

    from ui.picker import open_run
    opened = open_run()
    if opened is not None:
        st.text(f"{opened.name} {opened.digest} {len(opened.trace)}")


def shown(app) -> str:
    assert not app.exception
    return app.text[0].value.split()[0] if app.text else ""


def upload(app, name: str, data: bytes):
    app.sidebar.file_uploader[0].upload(name, data)
    return app.run()


def test_with_nothing_there_it_says_what_to_do(page):
    app = page(shows)
    assert not app.exception and not app.selectbox
    assert "no run to show yet" in app.info[0].value and "minitp generate --trace" in app.code[0].value


def test_the_newest_run_is_shown_and_another_can_be_chosen(page, runs, tiny_trace):
    for age, name in enumerate(("new.json.gz", "old.json")):
        tiny_trace.write(runs / name)
        os.utime(runs / name, (10**9 - age, 10**9 - age))
    app = page(shows)
    assert shown(app) == "new.json.gz" and app.query_params["run"] in ("new.json.gz", ["new.json.gz"])
    app.sidebar.selectbox[0].set_value("old.json").run()
    assert shown(app) == "old.json" and app.query_params["run"] in ("old.json", ["old.json"])
    assert "tiny on 2 ranks (threads)" in app.sidebar.selectbox[0].options[0]


def test_runs_that_read_alike_are_told_apart_by_their_files(page, runs, tiny_trace):
    for name in ("one.json", "two.json"):
        tiny_trace.write(runs / name)
        os.utime(runs / name, (10**9, 10**9))
    options = page(shows).sidebar.selectbox[0].options
    assert len(set(options)) == 2 and any("one.json" in option for option in options)


@pytest.mark.parametrize("asked", ["../secret.json", "/etc/passwd", "gone.json", "", "<script>", ".hidden.json",
                                   "link.json", "folder.json"])
def test_the_address_names_a_run_of_the_list_and_nothing_else(page, runs, tiny_trace, asked):
    tiny_trace.write(runs / "one.json")
    tiny_trace.write(runs.parent / "secret.json")
    tiny_trace.write(runs / ".hidden.json")
    (runs / "link.json").symlink_to(runs.parent / "secret.json")
    (runs / "folder.json").mkdir()
    app = page(shows, run=asked)
    assert shown(app) == "one.json" and app.sidebar.selectbox[0].options == [app.sidebar.selectbox[0].options[0]]
    assert "run that isn't here" in app.info[0].value and (not asked or asked not in app.info[0].value)


def test_more_ranks_than_cores_and_an_emulated_or_broken_run_are_said_loudly(page, runs, tiny_trace):
    plain = tiny_trace.to_plain()
    plain["run"] |= {"ranks_per_core": 2.0, "cores": 1, "emulated": {"delay": [0.005, 0.005]}}
    plain["strings"] = [text.replace("layers.1.mlp.down", "**layers**") for text in plain["strings"]]
    plain["events"]["broken"] = [plain["strings"][site] == "**layers**" for site in plain["events"]["site"]]
    (runs / "crowded.json").write_text(json.dumps(plain))
    app = page(shows)
    loud = ["held up by 5 ms", "2 ranks shared 1 core", "broken on purpose"]
    assert [word for word in loud if any(word in warning.value for warning in app.warning)] == loud
    assert "**layers**" in app.text[0].value                      # as text, not in Markdown


def test_an_upload_is_shown_with_its_digest_until_it_is_removed(page, runs, tiny_trace):
    tiny_trace.write(runs / "kept.json")
    data = (runs / "kept.json").read_bytes()
    app = page(shows)
    kept = app.text[0].value
    first = upload(app, "mine.json", data.replace(b'"ranks":2', b'"ranks":2 ', 1))
    assert "mine.json" in app.sidebar.selectbox[0].options[0]
    one = first.text[0].value
    assert one.split()[1] != kept.split()[1] and one.split()[1] in app.sidebar.selectbox[0].options[0]

    second = upload(app, "mine.json", gzip.compress(data, mtime=0))            # another file of the same name
    assert second.text[0].value.split()[1] not in (one.split()[1], kept.split()[1])
    assert len(app.sidebar.selectbox[0].options) == 2              # the first one is gone
    app.button(key="_remove_upload").click().run()
    assert app.text[0].value == kept and "mine.json" not in str(app.sidebar.selectbox[0].options)


def nested(depth: int, plain: dict) -> bytes:
    text = json.dumps(plain | {"run": plain["run"] | {"x": 0}})
    return text.replace('"x": 0', '"x": ' + "[" * depth + "]" * depth).encode()


HOSTILE = {
    "nothing": lambda plain: b"",
    "a picture": lambda plain: b"\x89PNG\r\n\x1a\n" + bytes(1000),
    "a zip bomb": lambda plain: gzip.compress(bytes(64 * 2**20), 9),
    "half a gzip": lambda plain: gzip.compress(json.dumps(plain).encode())[:-200],
    "1000 deep": lambda plain: nested(1000, plain),
    "100,000 deep": lambda plain: b"[" * 100_000,
    "NaN": lambda plain: json.dumps(plain | {"clock": {"x": float("nan")}}).encode(),
    "1e999": lambda plain: json.dumps(plain | {"clock": {"x": 1}}).replace('"x": 1', '"x": 1e999').encode(),
    "no trace": lambda plain: b'{"model": "/etc/passwd"}',
    "HTML for its format": lambda plain: json.dumps(plain | {"format": "<img src=x onerror=alert(1)>"}).encode(),
    "too many ranks": lambda plain: json.dumps(plain | {"run": {"ranks": 10**12}}).encode(),
    "a far event": lambda plain: json.dumps(plain | {"values": [{"event": 10**9}]}).encode(),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_upload_is_refused_in_words_and_the_session_goes_on(page, runs, tiny_trace, what):
    tiny_trace.write(runs / "good.json")
    app = upload(page(shows), "**bad**.json", HOSTILE[what](tiny_trace.to_plain()))
    assert shown(app) == "" and "can't be opened" in app.error[0].value
    assert "**bad**.json" in app.code[0].value and "**bad**" not in app.error[0].value
    app.button(key="_remove_upload").click().run()
    assert shown(app) == "good.json"


def test_html_in_strings_stays_text(page, runs, tiny_trace):
    plain = tiny_trace.to_plain()
    plain["run"]["text"] = "<img src=x onerror=alert(1)>"
    app = upload(page(shows), "x.json", json.dumps(plain).encode())
    assert not app.exception and not app.error
    everywhere = [element.value for kind in ("markdown", "caption", "warning", "info", "error", "html")
                  for element in app.get(kind)]
    assert not any("<img" in str(value) for value in everywhere)


# --- the list, without Streamlit --------------------------------------------------------------------------------------

def test_a_title_comes_from_the_head_of_the_file_alone(runs, tiny_trace):
    tiny_trace.run["text"] = "a\x1b[31m river\n" + "x" * 200
    tiny_trace.write(runs / "one.json.gz")
    said = title(header_of(runs / "one.json.gz"))
    assert said.startswith("“a�[31m river xxx") and said.endswith("tiny on 2 ranks (threads)") and len(said) < 120
    with open(runs / "one.json.gz", "r+b") as file:
        file.truncate(5000)                                        # nothing behind the head is read
    assert listed(runs)[0].name == "one.json.gz"


@pytest.mark.parametrize("data", [b"", b"\x1f\x8b", b"[" * 10**6, b'"run":' + b"[" * 10**5, b'"run": 5,\n',
                                  b"\xff" * 100, b'"run":{"text":[[]],"model":[],"ranks":true,"world":3}\n'])
def test_a_file_without_a_header_has_no_title(tmp_path, data):
    (tmp_path / "x.json").write_bytes(data)
    assert title(header_of(tmp_path / "x.json")) == ""
    assert isinstance(header_of(tmp_path / "x.json"), dict)


def test_no_folder_is_an_empty_list(tmp_path):
    assert listed(tmp_path / "gone") == [] and title({}) == ""
