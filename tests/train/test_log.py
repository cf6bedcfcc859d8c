"""The log of a run: whole lines, nothing twice when a run goes on, and what a killed run leaves."""
import json
from errno import ENOSPC
from pathlib import Path

import pytest

from minitp.errors import FileFormatError, SaveError
from minitp.files import replacing
from minitp.train.log import FILE, RunLog, line, read_log, take_back


def written(folder, rows):
    log = RunLog(folder)
    for row in rows:
        log.write(row)
    log.close()


STEPS = [{"kind": "step", "step": n, "loss": 5.0 - n} for n in range(1, 6)]


def test_rows_come_back_as_they_were_written(tmp_path):
    written(tmp_path, STEPS)
    assert read_log(tmp_path) == STEPS


def test_a_loss_that_is_not_finite_is_null(tmp_path):
    written(tmp_path, [{"kind": "step", "step": 1, "loss": float("nan")}])
    assert read_log(tmp_path) == [{"kind": "step", "step": 1, "loss": None}]
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


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, as Linux has it")
def test_a_full_disk_is_told_by_the_log_s_name(tmp_path):
    (tmp_path / FILE).symlink_to("/dev/full")
    with pytest.raises(SaveError, match=r"log\.jsonl can't be written: No space left"):
        written(tmp_path, STEPS[:1])


def test_a_line_that_the_disk_takes_in_parts_is_written_whole(tmp_path):
    log = RunLog(tmp_path)
    whole, log._file = log._file, Slow(log._file)
    for row in STEPS:
        log.write(row)
    whole.close()
    assert read_log(tmp_path) == STEPS


class Slow:
    """A file that takes 5 bytes at a time."""

    def __init__(self, file):
        self.file = file

    def write(self, data):
        return self.file.write(data[:5])


def test_what_a_full_disk_stops_names_the_file_that_was_to_be(tmp_path):
    with pytest.raises(OSError, match=r"No space left on device: '.*a\.json'"), replacing(tmp_path / "a.json"):
        raise OSError(ENOSPC, "No space left on device")
