"""The log of a run: whole lines, nothing twice when a run goes on, and what a killed run leaves."""
import json

import pytest

from minitp.errors import FileFormatError
from minitp.train.log import FILE, RunLog, line, losses, read_log, take_back


def written(folder, rows):
    log = RunLog(folder)
    for row in rows:
        log.write(row)
    log.close()


STEPS = [{"kind": "step", "step": n, "loss": 5.0 - n} for n in range(1, 6)]


def test_rows_come_back_as_they_were_written(tmp_path):
    written(tmp_path, STEPS)
    assert read_log(tmp_path) == STEPS
    assert losses(read_log(tmp_path)) == [(1, 4.0), (2, 3.0), (3, 2.0), (4, 1.0), (5, 0.0)]


def test_a_loss_that_is_not_finite_is_null(tmp_path):
    written(tmp_path, [{"kind": "step", "step": 1, "loss": float("nan")}])
    assert read_log(tmp_path) == [{"kind": "step", "step": 1, "loss": None}]
    assert losses(read_log(tmp_path)) == []
    assert json.loads(line({"kind": "a", "loss": float("inf")})) == {"kind": "a", "loss": None}


def test_a_run_that_goes_on_takes_back_what_lies_beyond_its_checkpoint(tmp_path):
    start = {"kind": "start", "step": 0}
    written(tmp_path, [start, *STEPS, {"kind": "end", "step": 5}])
    take_back(tmp_path, 3)
    written(tmp_path, [{"kind": "resume", "step": 3}, *STEPS[3:]])
    assert [row["step"] for row in read_log(tmp_path) if row["kind"] == "step"] == [1, 2, 3, 4, 5]
    assert [row["kind"] for row in read_log(tmp_path)].count("end") == 0


def test_a_line_that_was_cut_off_is_not_there(tmp_path):
    written(tmp_path, STEPS)
    with open(tmp_path / FILE, "ab") as file:
        file.write(b'{"kind": "step", "st')
    assert read_log(tmp_path) == STEPS
    take_back(tmp_path, 5)
    written(tmp_path, [{"kind": "step", "step": 6, "loss": 1.0}])
    assert len(read_log(tmp_path)) == 6


def test_without_a_log_there_is_none_to_take_back(tmp_path):
    take_back(tmp_path, 0)
    assert read_log(tmp_path) == []


@pytest.mark.parametrize("text", ["3\n", "{}\n", "x\n", '{"kind": 3}\n', "[" * 100_000 + "\n"])
def test_what_is_no_log_is_refused_by_its_line(tmp_path, text):
    (tmp_path / FILE).write_text('{"kind": "start"}\n' + text)
    with pytest.raises(FileFormatError, match="line 2"):
        read_log(tmp_path)
