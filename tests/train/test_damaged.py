"""Checkpoints that are damaged, or only half there: found, said, and the one before is taken."""
import json
import re
import shutil
from pathlib import Path

import pytest

from minitp.errors import FileFormatError
from minitp.train.checkpoint import digest
from minitp.train.resume import latest, open_training
from tests.mpi_world import run_threads
from tests.train.test_checkpoint import resumed, slow, trained


def cut_short(path):
    with open(path, "r+b") as file:
        file.truncate(path.stat().st_size - 8)


def flip(path):
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(("name", "harm"), [
    ("model.safetensors", flip), ("optimizer.safetensors", Path.unlink), ("training.json", cut_short),
    slow("model.safetensors", cut_short), slow("optimizer.safetensors", flip), slow("config.json", flip),
    ("training.json", lambda path: path.write_text(path.read_text().replace('"step": 3', '"step": 2')))])
def test_a_damaged_checkpoint_is_found_and_the_one_before_is_taken(tmp_path, name, harm):
    run_threads(trained, 2, run=tmp_path, family="mqa", steps=(2, 3))
    harm(tmp_path / "step-00000003" / name)
    results = run_threads(resumed, 3, run=tmp_path, family="mqa")
    assert [step for _, step, _ in results] == [2, 2, 2]
    assert [len(said) for *_, said in results] == [1, 0, 0]
    assert "step-00000003 is damaged" in results[0][2][0]
    assert name in results[0][2][0]
    assert "step-00000002" in results[0][2][0]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-00000002", "step-00000003.damaged"]


@pytest.mark.parametrize("change", [
    {"format": "other"}, {"version": 2}, {"step": "3"}, {"step": True}, {"optimizer_steps": 4}, {"optimizer_steps": -1},
    {"dtype": "int8"}, {"dtype": "bf16"}, {"files": []}, {"files": {}}, {"files": {"../x": {}}}, {"files": {"a": 1}},
    {"state": 1}, {"config": {}}, {"config": {"layers": 10 ** 12}}, {"config": {"layers": 2}}, {"config": {"more": 1}},
    {"config": {"rotary": {"x": 1}}}, {"config": {"tied": "yes"}}])
def test_whatever_training_json_says_it_is_checked(signed, change):
    """Every field, in a file whose digest fits: nothing is allocated by what it claims, and the error says where."""
    folder, facts = signed[0], dict(signed[1])
    for key, value in change.items():
        merged = isinstance(value, dict) and key in ("config", "files") and value
        facts[key] = facts[key] | value if merged else value
    facts["sha256"] = digest(facts)
    (folder / "training.json").write_text(json.dumps(facts))
    with pytest.raises(FileFormatError, match=re.escape(str(folder))):
        open_training(folder, digests=False)


@pytest.fixture(scope="module")
def signed(tmp_path_factory):
    """A checkpoint and its training.json, which each test writes anew."""
    folder = tmp_path_factory.mktemp("run") / "step-00000003"
    run_threads(trained, 1, run=folder.parent, family="mqa", dtype="float32")
    return folder, json.loads((folder / "training.json").read_text())


def finds(comm, run):
    with pytest.raises(FileFormatError, match=r"no checkpoint in .* is in order: .*contents have changed"):
        latest(run, comm, print)


def test_a_run_whose_checkpoints_are_all_damaged_does_not_begin_anew(tmp_path):
    run_threads(trained, 1, run=tmp_path, family="mqa")
    flip(tmp_path / "step-00000003/model.safetensors")
    run_threads(finds, 3, run=tmp_path)
    assert (tmp_path / "step-00000003").is_dir()


def test_a_new_run_has_none(tmp_path):
    assert run_threads(lambda comm: latest(tmp_path / "new", comm, print), 2) == [None, None]


def test_what_a_killed_writer_left_is_removed(tmp_path):
    run_threads(trained, 2, run=tmp_path, family="mqa")
    for name in (".step-00000004.0123456789ab.partial", ".step-00000001.abcdefabcdef.partial", ".mine.partial",
                 "step-00000009"):
        shutil.copytree(tmp_path / "step-00000003", tmp_path / name)
    (tmp_path / "step-00000009/training.json").unlink()
    *_, said = run_threads(resumed, 1, run=tmp_path, family="mqa")[0]
    assert ["step-00000001, step-00000004" in said[0], "step-00000009 is no checkpoint" in said[1]] == [True, True]
    assert sorted(p.name for p in tmp_path.iterdir()) == [".mine.partial", "step-00000003", "step-00000009"]


def test_a_checkpoint_under_another_step_s_name_is_not_taken(tmp_path):
    run_threads(trained, 1, run=tmp_path, family="mqa", steps=(2, 3))
    (tmp_path / "step-00000003").rename(tmp_path / "step-00000009")
    (_, step, said), = run_threads(resumed, 1, run=tmp_path, family="mqa")
    assert step == 2 and "this is the checkpoint of step 3" in said[0]
