"""`--break SITE`: which sites, what a broken run does, and that everything that reads its trace says so."""
import json
import re
from dataclasses import replace

import numpy as np
import pytest

from minitp.comm.broken import BrokenCommunicator
from minitp.commands.breaks import broken_sites
from minitp.config import TINY as TINY_MODEL
from minitp.errors import ConfigError
from minitp.generate import Generation, Request, run
from minitp.model import Transformer
from minitp.placement import Placement
from minitp.trace.file import Trace
from minitp.weights import RandomSource, load_weights
from tests.mpi_world import worlds
from tests.test_cli import TINY, minitp, refusal, row

THREE = Placement(TINY_MODEL, 3)


@pytest.mark.parametrize("patterns, sites", [
    ((), ()),
    (("layers.1.mlp.down",), ("layers.1.mlp.down",)),
    (("layers.*.mlp.down",), ("layers.0.mlp.down", "layers.1.mlp.down")),
    (("*.mlp.down",), ("layers.0.mlp.down", "layers.1.mlp.down")),
    (("*.down", "layers.0.attention.o"), ("layers.0.attention.o", "layers.0.mlp.down", "layers.1.mlp.down")),
    (("embedding",), ("embedding",)),
    (("*",), ("embedding", *(f"layers.{n}.{site}" for n in range(2) for site in ("attention.o", "mlp.down")))),
])
def test_sites_are_found_in_the_order_of_a_pass(patterns, sites):
    assert broken_sites(patterns, THREE, True) == sites


@pytest.mark.parametrize("pattern, placement, gathered, says", [
    ("layers.1.mlp.dwn", THREE, True, "did you mean layers.1.mlp.down"),
    ("layers.2.mlp.down", THREE, True, "(layers 0 to 1)"),
    ("mlp", THREE, True, "meets at embedding, layers.*.attention.o, layers.*.mlp.down, head"),
    ("layers.?.mlp.down", THREE, True, "the ranks don't meet there"),
    ("layers.[01].mlp.down", THREE, True, "the ranks don't meet there"),
    ("", THREE, True, "this one is empty"),
    ("head", THREE, True, "the collective at head is all-gather"),
    ("head", THREE, False, "the ranks don't meet there"),
    ("embedding", Placement(TINY_MODEL, 3, "hidden"), True, "the collective at embedding is all-gather"),
    ("head", Placement(replace(TINY_MODEL, tied=True), 3, "hidden"), True, "would draw different tokens and part ways"),
    ("head", Placement(replace(TINY_MODEL, tied=True), 3, "hidden"), False, "head is reduce-scatter"),
    ("*.o", Placement(replace(TINY_MODEL, parallel_block=True), 3), True, "the ranks don't meet there"),
    ("*.down", Placement(TINY_MODEL, 1), True, "one rank has nothing to add"),
])
def test_what_can_not_be_broken_is_refused_with_the_reason(pattern, placement, gathered, says):
    with pytest.raises(ConfigError) as error:
        broken_sites([pattern], placement, gathered)
    assert says in str(error.value) and len(str(error.value)) < 400


def test_a_refusal_comes_before_any_weight_is_read(monkeypatch):
    def read(*_):
        raise AssertionError("a weight was read")

    monkeypatch.setattr(RandomSource, "read", read)
    assert "did you mean layers.0.mlp.down" in refusal("ab", "--ranks", "2", "--break", "layers.0.mlp.donw")
    assert "nothing to add" in refusal("ab", "--break", "*.down")


# --- a broken run -----------------------------------------------------------------------------------------------------

def both(comm):
    return {"whole": generated(comm), "broken": generated(comm, ["*.mlp.down"])}


def generated(comm, breaks=()):
    """Tokens, and the stream before the last norm, of a run in which the sums at `breaks` are skipped."""
    group = BrokenCommunicator(comm.transport, comm.recorder, checked=comm.checked)
    group.broken = frozenset(broken_sites(breaks, Placement(TINY_MODEL, comm.size), True))

    class Last:
        stream = np.zeros(0)

        def save(self, site, arrays, ctx):
            if site == "norm":
                self.stream = np.array(arrays["x"])

    placement, seen, request = Placement(TINY_MODEL, comm.size), Last(), Request(((84, 111, 32),), 4)
    weights = load_weights(RandomSource(TINY_MODEL), placement, group, dtype=np.float64)
    tokens = run(Generation(Transformer(TINY_MODEL, placement, group), weights, request, dtype="f8", observer=seen))
    return {"tokens": tokens, "stream": seen.stream.reshape(-1)}


@pytest.mark.parametrize("world", worlds(threads=(2, 4), mpi=(3,)))
def test_ranks_go_on_with_arrays_of_their_own_and_the_same_tokens(world):
    whole, broken = ([rank[which] for rank in ranks] for ranks in [world(both)] for which in ("whole", "broken"))
    for ranks in (whole, broken):
        assert [rank["tokens"] for rank in ranks] == [ranks[0]["tokens"]] * world.n
    assert broken[0]["tokens"] != whole[0]["tokens"] and len(broken[0]["tokens"][0]) == 4
    streams = [rank["stream"] for rank in broken]
    assert all(not np.allclose(stream, streams[0]) for stream in streams[1:])
    assert all(np.allclose(rank["stream"], whole[0]["stream"]) for rank in whole)


@pytest.mark.parametrize("more", [(), ("--sharded-logits",), ("--load", "scatter", "--embedding", "hidden"),
                                  ("--parallel-block",)])
def test_the_trace_of_a_broken_run_is_as_foretold_and_says_so(tmp_path, more):
    file = tmp_path / "t.json"
    got = row("ab", "--ranks", "3", "--max-tokens", "3", "--break", "*.mlp.down", "--trace", str(file), *more)
    assert got["broken"] == ["layers.0.mlp.down", "layers.1.mlp.down"]
    trace = Trace.read(file)
    assert trace.run["generation"]["broken"] == got["broken"] and trace.events["broken"].sum() == 3 * 2 * 3
    assert not trace.events["payload"][trace.events["broken"]].any()
    said = minitp("trace", "check", str(file)).stdout
    assert "6 all-reduces on each rank were skipped on purpose, at layers.*.mlp.down (2 layers)" in said
    assert re.search(r"all other \d+ collectives on each of 3 ranks are as the closed form says", said)
    shown = minitp("trace", "show", str(file)).stdout
    assert "Broken on purpose: 6 of the sums were skipped" in " ".join(shown.split()) and "2 skipped" in shown
    phases = json.loads(minitp("trace", "show", str(file), "--json").stdout)["by"]["phase"]
    decode = next(phase for phase in phases if phase["key"] == "decode")
    assert decode["broken"] == 4 and decode["sync_points"] == 2 * (got["sync_points_per_token"] - ("--sharded" in more))
    assert "all_reduce, skipped" in minitp("trace", "export", str(file), "--format", "chrome").stdout


def test_each_rank_s_own_array_is_in_the_trace(tmp_path):
    """Where ranks should hold the same and don't, the trace has each one's."""
    file = tmp_path / "t.json"
    row("ab", "--ranks", "3", "--max-tokens", "2", "--break", "layers.0.mlp.down", "--values", "--trace", str(file))
    trace = Trace.read(file)
    at = [trace.array(rank, "decode", 1, "layers.1.attention_norm", "x").cells for rank in range(3)]
    before = [trace.array(rank, "decode", 1, "layers.0.mlp_norm", "x").cells for rank in range(3)]
    assert np.array_equal(before[0], before[2]) and not np.allclose(at[0], at[1]) and not np.allclose(at[1], at[2])
    for rank in range(3):
        taken, given = trace.value(int(np.flatnonzero(trace.where(rank=rank, step=1, site="layers.0.mlp.down"))[0]))
        assert np.array_equal(taken.cells, given.cells)
        assert before[rank] + given.cells == pytest.approx(at[rank], abs=1e-4)


def test_a_trace_that_hides_a_fault_or_claims_one_is_found_out(tmp_path):
    file = tmp_path / "t.json"
    row("ab", "--ranks", "2", "--max-tokens", "1", "--break", "layers.0.mlp.down", "--trace", str(file))
    plain = json.loads(file.read_text())
    for broken, says in (([], "broken is True, predicted False"),
                         (["layers.0.mlp.down", "layers.1.mlp.down"], "broken is False, predicted True")):
        plain["run"]["generation"]["broken"] = broken
        file.write_text(json.dumps(plain))
        with pytest.raises(AssertionError, match=says):
            minitp("trace", "check", str(file))


def test_what_is_printed_says_that_the_run_is_broken():
    result = minitp(*TINY, "ab", "--ranks", "2", "--max-tokens", "1", "--break", "layers.0.mlp.down", "--show-comm")
    skipped = [line for line in result.stderr.splitlines() if "─skipped→" in line]
    assert len(skipped) == 1 and skipped[0].startswith("layers.0.mlp.down") and " 0 B " in skipped[0]
    result = minitp(*TINY, "ab", "--ranks", "2", "--max-tokens", "1", "--break", "layers.0.mlp.down")
    assert "5 sync points each" in result.stderr and "broken on purpose at layers.0.mlp.down]" in result.stderr
