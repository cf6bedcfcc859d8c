"""Files of cases, their numbers and their units: what is read, and what is said of what can't be."""
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitp.errors import ConfigError
from minitp.plan.verify.case import Case, CaseError, Inputs, Unreadable, number, read_cases
from minitp.plan.verify.judge import judge
from minitp.plan.verify.units import DIMENSIONS, factor

HEADER = "case_id,kind,source,model,quantity,inputs,published_value,unit,tolerance,note\n"
ROW = "a,formula,s,m,weights_bytes,params=1e9;bytes=2,2,GB(1e9),0.01,n\n"


def written(tmp_path, text: str | bytes):
    path = tmp_path / "cases.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(("text", "what"), [
    ("", "is empty"), ("\n\n", "is empty"), (HEADER, "no case below"),
    ("case_id,kind,quantity,inputs,unit,tolerance\na,b,c,d,e,f\n", "lacks the column(s) published_value"),
    (HEADER.replace("note", "unit"), "has the column(s) unit twice"),
    (HEADER + ROW + 'b,formula,"s,m\n', "unexpected end of data"), (b"\xff\xfe\x00", "isn't text in UTF-8"),
])
def test_a_file_that_is_none_is_refused(tmp_path, text, what):
    with pytest.raises(ConfigError) as told:
        read_cases(written(tmp_path, text))
    assert what in str(told.value)


def test_a_file_that_isnt_there(tmp_path):
    with pytest.raises(ConfigError, match="can't be read"):
        read_cases(tmp_path / "none.csv")


@pytest.mark.parametrize(("row", "what"), [
    (ROW.replace(",n", ""), "it has 9 cells, the header 10"), (ROW.replace("n\n", "n,more\n"), "it has 11 cells"),
    (ROW.replace("a,", ",", 1), "no case_id"), (ROW.replace("formula", "guess"), "the kind 'guess' isn't known"),
    (ROW.replace(",2,GB", ",two,GB"), "published_value is 'two', which is no number"),
    (ROW.replace(",2,GB", ",inf,GB"), "not finite"), (ROW.replace("0.01", ""), "tolerance is ''"),
    (ROW.replace("0.01", "-1"), "0 or more"), (ROW.replace("bytes=2", "bytes"), "isn't of the form key=value"),
    (ROW.replace("bytes=2", "bytes="), "isn't of the form"), (ROW.replace("bytes=2", "params=2"), "given twice"),
])
def test_a_row_that_is_none_counts_as_a_miss_and_the_others_are_judged(tmp_path, row, what):
    bad, good = read_cases(written(tmp_path, HEADER + row + ROW))
    assert isinstance(bad, Unreadable) and what in bad.reason and bad.line == 2
    assert judge(bad).missed and judge(bad).verdict == "not judged"
    assert judge(good).verdict == "lands"


def test_columns_in_another_order_a_mark_and_blank_lines(tmp_path):
    text = "\ufeffunit, quantity,kind,case_id,inputs,tolerance,published_value,extra\n\n" \
           "GB, weights_bytes ,formula,a,\" params = 1e9 ; bytes=2; \",0.01,2,x\n"
    (case,) = read_cases(written(tmp_path, text))
    assert isinstance(case, Case) and case.note == "" and judge(case).verdict == "lands"


def test_a_measured_row_needs_no_tolerance(tmp_path):
    (case,) = read_cases(written(tmp_path, HEADER + ROW.replace("formula", "measured").replace("0.01", "")))
    assert judge(case).verdict == "ratio" and judge(case).margin is None


@pytest.mark.parametrize(("text", "value"), [
    ("1e6", 1e6), ("4GiB", 4 * 2**30), ("250k", 250_000), ("0.5", 0.5), ("64 TPUv4", 64), ("2048 tok", 2048),
    ("4 Framework Desktop", 4), ("1/4", 0.25), ("30%", 0.3), ("7B", 7e9), ("1.5T", 1.5e12), ("16 KiB", 16384),
    ("10e-6", 1e-5), ("-2", -2), ("2 GB", 2e9),
])
def test_numbers_as_they_are_written(text, value):
    assert number(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "x", "1x", "GiB", "1e", "1/0", "nan", "inf", "1e999", "0x10", "1_000", "1,5"])
def test_what_is_no_number(text):
    with pytest.raises(CaseError):
        number(text)


@given(st.floats(1e-12, 1e18))
def test_any_number_comes_back(value):
    assert number(repr(value)) == value and Inputs.parse(f"tokens={value!r}").number("tokens") == value


@given(st.text(max_size=40))
def test_any_text_is_a_number_or_a_message(text):
    try:
        assert abs(number(text)) < float("inf")
    except CaseError as error:
        assert "\n" not in str(error)


def test_a_value_on_a_condition():
    assert Inputs.parse("alpha_us=22 if tp>1;tp=2").number("alpha_us") == 22
    assert Inputs.parse("alpha_us=22 if tp>1;tp=1").number("alpha_us") == 0
    assert Inputs.parse("alpha_us=22 if tp>=4").number("alpha_us") == 0


@pytest.mark.parametrize("text", ["tp=2 if tp>1", "tp=2 if dp>1;dp=2 if tp>1"])
def test_a_condition_on_itself(text):
    inputs = Inputs.parse(text)
    for _ in range(2):
        with pytest.raises(CaseError, match="goes in a circle"):
            inputs.number("tp")


@pytest.mark.parametrize(("key", "text", "what"), [
    ("tp", "0", "whole number of 1 or more"), ("tp", "1.5", "whole number"), ("tp", "-1", "0 or more"),
    ("tp", "20000", "up to 1,024"), ("dp", "1e30", "whole number"),
])
def test_degrees_are_whole_numbers(key, text, what):
    inputs = Inputs.parse(f"{key}={text}")
    with pytest.raises(CaseError, match=what):
        inputs.degree("tp") if key == "tp" else inputs.whole("dp")
    with pytest.raises(CaseError, match="pp is missing"):
        inputs.number("pp")


@pytest.mark.parametrize(("unit", "dimension", "worth"), [
    ("GB(1e9)", "bytes", 1e9), ("GB", "bytes", 1e9), ("GiB", "bytes", 2**30), ("GiB (printed GB)", "bytes", 2**30),
    ("MiB (printed MB)", "bytes", 2**20), ("KiB (printed kB)", "bytes", 1024), ("TB(1e12)", "bytes", 1e12),
    ("TB", "bytes", 1e12), ("TiB", "bytes", 2**40), ("B", "bytes", 1), ("GB (nvidia-smi)", "bytes", 1e9),
    ("ms", "seconds", 1e-3), ("us", "seconds", 1e-6), ("days", "seconds", 86400), ("FLOP", "flop", 1),
    ("TFLOP/s", "flop/s", 1e12), ("PFLOP/s", "flop/s", 1e15), ("GB/s", "bytes/s", 1e9), ("tok/s", "tokens/s", 1),
    ("GPU h", "device hours", 1), ("TPUv4 h", "device hours", 1), ("M GPU h", "device hours", 1e6),
    ("percent", "share", 0.01), ("percent (stated: under 20)", "share", 0.01), ("ratio", "share", 1),
    ("x", "share", 1), ("params", "count", 1), ("1e9", "count", 1e9), ("1e9 params", "count", 1e9),
    ("GPUs", "count", 1), ("TP", "count", 1), ("tokens", "count", 1), ("Mi tokens (printed M)", "count", 2**20),
    ("multiples of Psi elements per rank", "count", 1), ("B/param", "bytes/parameter", 1),
])
def test_units_as_sources_print_them(unit, dimension, worth):
    assert factor(unit, dimension) == worth


@pytest.mark.parametrize(("unit", "dimension"), [
    ("ms", "bytes"), ("GB", "seconds"), ("FLOP/s", "flop"), ("FLOP", "flop/s"), ("furlongs/s", "tokens/s"),
    ("GiBs", "bytes"), ("GB(1e10)", "bytes"), ("", "bytes"), ("percent!", "share"), ("9 params", "count"),
])
def test_a_unit_of_something_else_is_refused(unit, dimension):
    with pytest.raises(CaseError):
        factor(unit, dimension)


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_what_a_refused_unit_is_told_works(dimension):
    with pytest.raises(CaseError) as told:
        factor("furlongs!", dimension)
    works = str(told.value).split("; ")[1].removesuffix(" are").split(", ")
    assert works and all(factor(unit, dimension) > 0 for unit in works)


def test_a_tool_that_prints_powers_of_1024_as_gb():
    assert factor("GB", "bytes", 2**30) == 2**30 and factor("GB(1e9)", "bytes", 2**30) == 1e9
