"""The file: a round trip loses nothing, plain Python can read it, and what a stranger sends is refused in words."""
import gzip
import json
import os

import pytest
from broken_files import put
from trace_runs import body, on_threads

from minitp.errors import FileFormatError
from minitp.trace import Event, Mark, Trace
from minitp.trace import text as text_module
from minitp.trace.schema import Inner, Weight

EVENT = Event(0, "tp", 0, 0, "data", "all_reduce", None, None, None, "layers.0.mlp.down", "add", "decode", 3, None,
              None, "partial", "whole", (1, 1, 8), "float32", 32, 10, 30, None, None, None, None, False, "mlp.py:3")
MARK = Mark(0, "decode", 3, None, 0, 40)
HTML = "<script>alert(1)</script>\n\x1b[2J\ud800 [red]"


def small(**run):
    return Trace.of([EVENT, EVENT._replace(sequence=1, root=2, enter=30, leave=35, broken=True, shape=(), wire=7)],
                    [MARK], run={"ranks": 4, "text": [HTML], **run}, clock={"offset_ns": [0] * 4, "error_ns": [0] * 4},
                    values=[{"event": 1, "before": None, "after": {"shape": [2], "data": [1.5, None]}},
                            {"event": 0, "before": {"shape": [4], "row": 2, "block": 3, "maxima": [2, 1],
                                                    "first": [-2]}, "after_of": 1}],
                    arrays=[(Inner(0, "decode", 3, "layers.0.mlp", "h"), {"shape": [2], "data": [1, 2]}),
                            (Inner(2, "load", None, HTML, "h"), {"shape": [2, 3], "block": 2, "maxima": [1, 2, 3, 4]})],
                    weights=[(Weight(1, "layers.0.mlp.up.weight"),
                              {"shape": [3, 3], "block": [2, 3], "maxima": [5, 6]})])


@pytest.fixture(scope="module")
def recorded():
    return on_threads(3, lambda comm: body(comm, tokens=2, seconds=0), keep_values=True)[0]


@pytest.mark.parametrize("name", ["run.json", "run.json.gz"])
def test_round_trip_of_a_real_run(recorded, tmp_path, name):
    recorded.write(tmp_path / name)
    assert os.listdir(tmp_path) == [name]                        # no unfinished file is left
    again = Trace.read(tmp_path / name)
    assert list(again) == list(recorded)
    assert again.mark_rows() == recorded.mark_rows()
    assert (again.run, again.clock, again.values) == (recorded.run, recorded.clock, recorded.values)
    assert again.to_plain() == recorded.to_plain()
    assert again.event(5) == list(recorded)[5]


def test_readable_without_minitp(tmp_path):
    small().write(tmp_path / "run.json.gz")
    with gzip.open(tmp_path / "run.json.gz") as stream:
        plain = json.load(stream)
    events, strings = plain["events"], plain["strings"]
    assert set(events) == set(Event._fields)
    assert strings[events["site"][0]] == EVENT.site
    assert plain["shapes"][events["shape"][0]] == [1, 1, 8]
    assert events["root"] == [None, 2]
    assert plain["run"]["text"] == [HTML]


def test_kept_arrays_survive_and_are_found(tmp_path):
    small().write(tmp_path / "run.json")
    again = Trace.read(tmp_path / "run.json")
    assert again.to_plain() == small().to_plain()
    before, after = again.value(0)
    assert before.cells.tolist() == [[2, 1]] and before.first == (-2,) and before.row == 2 and before.block == (1, 3)
    assert after.token[0] == 1.5 and after.whole and again.value(1)[0] is None
    h = again.array(0, "decode", 3, "layers.0.mlp", "h")
    assert h.cells.tolist() == [[1, 2]] == again.array(3, "decode", 3, "layers.0.mlp", "h").cells.tolist()
    assert again.array(0, "load", None, HTML, "h").cells.tolist() == [[1, 2], [3, 4]]
    assert again.array(0, "decode", 3, "layers.0.mlp", "up") is None is again.weight(0, "no such weight")
    assert again.weight(0, "layers.0.mlp.up.weight").cells.tolist() == [[5], [6]]
    assert again.words("name", "arrays").tolist() == ["h", "h"]


def test_a_trace_without_arrays_has_none():
    trace = Trace.of([EVENT])
    assert trace.value(0) == (None, None) and trace.array(0, "decode", 3, "s", "x") is trace.weight(0, "w") is None
    assert trace.row == -1
    assert [Trace.of([], run={"prompts": prompts}).row for prompts in ([5, 6], [[5], [6, 7]], [], "ab", [None])] == [
        1, 0, -1, -1, 0]


def test_a_failed_write_leaves_the_old_file(tmp_path):
    small().write(tmp_path / "run.json")
    before = (tmp_path / "run.json").read_bytes()
    with pytest.raises(ValueError):
        small(nan=float("nan")).write(tmp_path / "run.json")
    assert (tmp_path / "run.json").read_bytes() == before
    assert os.listdir(tmp_path) == ["run.json"]


def test_an_empty_trace(tmp_path):
    Trace.of([]).write(tmp_path / "run.json")
    assert list(Trace.read(tmp_path / "run.json")) == []


def test_where():
    trace = small()
    assert trace.where(op="all_reduce", step=3).tolist() == [True, True]
    assert trace.where(root=None).tolist() == [True, False]
    assert trace.where(shape=(1, 1, 8)).tolist() == [True, False]
    assert not trace.where(site="no such site").any()


def test_what_is_unknown_is_ignored(tmp_path):
    plain = json.loads(json.dumps(small().to_plain()))
    plain["later"] = {"version": "2"}
    plain["events"]["temperature"] = ["hot", None]
    (tmp_path / "run.json").write_text(json.dumps(plain))
    assert list(Trace.read(tmp_path / "run.json")) == list(small())


# --- hostile files: (what is done to the plain data, what the message says) -----------------------------------------

DEEP: list = []
for _ in range(200):
    DEEP = [DEEP]

BROKEN = {
    "other format": (put("format", "minitp checkpoint"), "no trace"),
    "newer version": (put("version", 2), "update minitp"),
    "no version": (put("version", None), "version 'None'"),
    "version true": (put("version", True), "version 'True'"),
    "no marks": (lambda plain: plain.pop("marks"), "lacks `marks`"),
    "no column": (lambda plain: plain["events"].pop("site"), "lacks the column site"),
    "run no object": (put("run", []), "`run` must be an object"),
    "run too deep": (put("run/x", DEEP), "more than 32 deep"),
    "ranks zero": (put("run/ranks", 0), "`run.ranks`"),
    "ranks huge": (put("run/ranks", 10**9), "`run.ranks`"),
    "clock short": (put("clock/offset_ns", [0]), "clock.offset_ns"),
    "strings no strings": (put("strings", [1]), "`strings`"),
    "shapes negative": (put("shapes/0", [-1]), "`shapes`"),
    "shapes deep": (put("shapes/0", [[1]]), "`shapes`"),
    "events no object": (put("events", [1]), "object of lists"),
    "column no list": (put("events/rank", {}), "object of lists"),
    "lengths differ": (put("events/site", [0]), "must have one length"),
    "unknown column's length": (put("events/x", [0]), "must have one length"),
    "index too large": (put("events/site/1", 10**6), "`events.site`, entry 1, is 1000000"),
    "index negative": (put("events/site/0", -1), "of `strings`"),
    "shape index": (put("events/shape/0", 99), "of `shapes`"),
    "huge integer": (put("events/enter/0", 10**30), "`events.enter`, entry 0"),
    "too large for JSON": (put("events/payload/0", 2**53), "small enough"),
    "float": (put("events/enter/0", 1.5), "whole number"),
    "true": (put("events/enter/0", True), "whole number"),
    "null": (put("events/enter/0", None), "whole number"),
    "minus one for null": (put("events/root/0", -1), "or null"),
    "huge nullable": (put("events/root/0", -10**30), "or null"),
    "broken is a number": (put("events/broken/0", 0), "true or false"),
    "rank too large": (put("events/rank/0", 4), "below run.ranks"),
    "leaves before it enters": (put("marks/leave/0", 0) if MARK.enter else put("events/leave/0", 5), "leaves before"),
    "values no list": (put("values", {}), "`values` must be a list"),
    "value of no event": (put("values/0/event", 2), "`values`, entry 0"),
    "value's size": (put("values/0/after", {"shape": [3], "data": [1.0]}), "`values`, entry 0"),
    "value's text": (put("values/0/after", {"shape": [1], "data": ["1"]}), "`values`, entry 0"),
    "value's blocks": (put("values/0/after", {"shape": [5], "block": 0, "maxima": []}), "`values`, entry 0"),
    "value's row": (put("values/0/after", {"shape": [1], "row": -1, "data": [1]}), "`values`, entry 0"),
    "value's first too long": (put("values/1/before/first", [1, 2, 3, 4, 5]), "`values`, entry 1"),
    "value's first of words": (put("values/1/before/first", ["1"]), "`values`, entry 1"),
    "value's maxima of nothing": (put("values/1/before", {"shape": [0], "block": 1, "maxima": []}), "entry 1"),
    "value's maxima of a number": (put("values/1/before", {"shape": [], "block": 1, "maxima": [1]}), "entry 1"),
    "value after no event": (put("values/1/after_of", 9), "`values`, entry 1"),
    "value after a word": (put("values/1/after_of", "0"), "`values`, entry 1"),
    "arrays no object": (put("arrays", []), "`arrays` must be an object of lists"),
    "arrays without arrays": (lambda plain: plain["arrays"].pop("array"), "lacks the column array"),
    "arrays lengths": (put("arrays/array", []), "must have one length"),
    "array no array": (put("arrays/array/1", None), "`arrays.array`, entry 1"),
    "array size": (put("arrays/array/0/data", [1]), "`arrays.array`, entry 0"),
    "array's numbers": (put("arrays/array/0/data", [1, True]), "`arrays.array`, entry 0"),
    "array's blocks": (put("arrays/array/1/block", 0), "`arrays.array`, entry 1"),
    "array's endless shape": (put("arrays/array/1/shape", [2**53] * 32), "`arrays.array`, entry 1"),
    "array's rank": (put("arrays/rank/0", 4), "`arrays`, entry 0: its rank must be below"),
    "array's site": (put("arrays/site/0", 99), "of `strings`"),
    "array's step": (put("arrays/step/0", 0.5), "or null"),
    "weight's grid": (put("weights/array/0/block", [2, 3, 1]), "`weights.array`, entry 0"),
    "weight's grid of zeros": (put("weights/array/0/block", [0, 3]), "`weights.array`, entry 0"),
    "weight's grid of booleans": (put("weights/array/0/block", [True, 3]), "`weights.array`, entry 0"),
    "weight's grid too small": (put("weights/array/0/maxima", [5]), "`weights.array`, entry 0"),
    "a grid of a vector": (put("weights/array/0/shape", [9]), "`weights.array`, entry 0"),
    "weight's rank": (put("weights/rank/0", 9), "`weights`, entry 0: its rank must be below"),
    "weight's name": (put("weights/name/0", -1), "of `strings`"),
    "value's huge integer": (put("values/0/after", {"shape": [1], "data": [10**400]}), "`values`, entry 0"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_data_is_refused(case, tmp_path):
    change, says = BROKEN[case]
    plain = json.loads(json.dumps(small().to_plain()))
    change(plain)
    (tmp_path / "run.json").write_text(json.dumps(plain))
    with pytest.raises(FileFormatError) as error:
        Trace.read(tmp_path / "run.json")
    assert says in str(error.value)
    assert str(error.value).startswith(f"{tmp_path / 'run.json'}: ")
    assert len(str(error.value)) < 900


TEXT = json.dumps(small().to_plain())
BROKEN_TEXT = {
    "empty": ("", "not JSON"),
    "truncated": (TEXT[:len(TEXT) // 2], "cut off"),
    "a list": ("[1, 2]", "no trace"),
    "NaN": (TEXT.replace('"ranks": 4', '"ranks": 4, "x": NaN'), "must be finite"),
    "a number of 400 digits": (TEXT.replace('"ranks": 4', '"ranks": 4, "x": ' + "9" * 400 + ".5"), "must be finite"),
    "210 digits and an exponent of two": (TEXT.replace('"ranks": 4', '"ranks": 4, "x": ' + "9" * 210 + "e99"),
                                          "must be finite"),
    "an exponent with zeros": (TEXT.replace('"ranks": 4', '"ranks": 4, "x": 1E+0000999'), "must be finite"),
    "1e999 in UTF-16": (TEXT.replace('"ranks": 4', '"ranks": 4, "x": 1e999').encode("utf-16"), "must be finite"),
    "a value of 2e308": (TEXT.replace("1.5", "2e308"), "must be finite"),
    "1e999": (TEXT.replace('"ranks": 4', '"ranks": 4, "x": -1e999'), "must be finite"),
    "100,000 deep": ("[" * 100_000, "deep"),
    "1,000 deep": ('{"format": "minitp trace", "version": 1, "run": ' + "[" * 1000 + "]" * 1000 + "}", "deep|object"),
    "10,000 digits": (TEXT.replace('"ranks": 4', '"ranks": ' + "9" * 10_000), "not JSON"),
    "HTML": ("<!doctype html><html>", "not JSON"),
    "not UTF-8": (b"\x80\x81{}", "not JSON"),
    "a gzip cut off": (gzip.compress(TEXT.encode())[:100], "can't be read"),
    "a gzip with a wrong sum": (gzip.compress(TEXT.encode())[:-8] + b"\0" * 8, "can't be read"),
    "a gzip of nonsense": (b"\x1f\x8b" + b"\xff" * 50, "can't be read"),
}


@pytest.mark.parametrize("case", BROKEN_TEXT)
def test_broken_text_is_refused(case, tmp_path):
    text, says = BROKEN_TEXT[case]
    (tmp_path / "run.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(FileFormatError, match=says):
        Trace.read(tmp_path / "run.json")


def test_a_gzip_bomb_is_refused_before_it_unfolds(tmp_path, monkeypatch):
    monkeypatch.setattr(text_module, "MAX_BYTES", 2**20)
    (tmp_path / "run.json.gz").write_bytes(gzip.compress(b" " * 2**24))
    with pytest.raises(FileFormatError, match=r"more than 1\.05 MB"):
        Trace.read(tmp_path / "run.json.gz")


def test_no_file_and_no_plain_file(tmp_path):
    with pytest.raises(FileFormatError, match="no such file"):
        Trace.read(tmp_path / "none.json")
    with pytest.raises(FileFormatError, match="not a file"):
        Trace.read(tmp_path)
