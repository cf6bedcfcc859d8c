"""Shards: the page's tables and pictures say what the placement says, of every parameter on any number of ranks."""
from copy import deepcopy
from dataclasses import replace
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minitp.checkpoint import open_checkpoint
from minitp.config import TINY
from minitp.models import Bundled
from minitp.placement import Placement
from minitp.trace import Trace
from minitp.trace.kept import KeptArray
from minitp.trace.values import as_plain, matrix
from minitp.view.figures.shards import tensor_figure, totals_figure
from minitp.view.shards import (
    KINDS,
    band_rows,
    bands,
    holders,
    kind_of,
    parameter_rows,
    piece_in_words,
    repeated,
    sentence,
    total_rows,
    totals,
)
from minitp.view.tensor import CELLS, kept_pieces, picture, tensor_words
from minitp.weights import RandomSource
from tests.app.real_runs import tiny_run
from tests.test_placement import GPT2, LLAMA_405B, SMOLLM2_135M

CONFIGS = [TINY, replace(SMOLLM2_135M, layers=2), replace(GPT2, layers=1),
           replace(TINY, heads=9, kv_heads=3, tied=True, qkv_bias=True)]
models = st.sampled_from(CONFIGS)
ranks = st.integers(1, 12)


@settings(max_examples=30)
@given(models, ranks, st.sampled_from(["vocab", "hidden"]), st.sampled_from(["even", "balanced"]))
def test_totals_are_the_placements(config, n, embedding, cut):
    placement = Placement(config, n, embedding, cut)
    sums = totals(placement, 2)
    assert list(sums.ranks) == [2 * placement.elements(rank) for rank in range(n)]
    assert sums.model == 2 * sum(p.size for p in placement.parameters)
    assert 0 < sums.evenness <= 1 <= sums.copies
    assert [row["exact bytes"] for row in total_rows(sums)] == list(sums.ranks)
    assert set(sums.held) <= set(KINDS) and ("head" in sums.held) == (not config.tied)
    assert len(totals_figure(sums).data) == len(sums.held)


@settings(max_examples=30)
@given(models, ranks, st.data())
def test_bands_hold_every_number_as_often_as_the_placement_says(config, n, data):
    placement = Placement(config, n)
    parameter = data.draw(st.sampled_from(placement.parameters))
    found = bands(placement, parameter)
    axis = parameter.cut_axis or 0
    assert [i for band in found for i in range(band.start, band.stop)] == list(range(parameter.shape[axis]))
    for rank in range(n):
        held = sum(band.stop - band.start for band in found if rank in band.ranks)
        assert held == placement.shape(parameter, rank)[axis]
    times = sum((band.stop - band.start) * len(band.ranks) for band in found) / parameter.shape[axis]
    assert times == pytest.approx(placement.copies(parameter))
    assert len(band_rows(placement, parameter, 4)) == len(found)


@settings(max_examples=30)
@given(models, ranks, st.data())
def test_the_pieces_of_a_picture_tile_the_matrix(config, n, data):
    """Nothing is left open, nothing lies over another; whole parameters are one gray piece."""
    placement = Placement(config, n)
    parameter = data.draw(st.sampled_from(placement.parameters))
    drawn = picture(placement, parameter)
    area = sum((p.across[1] - p.across[0]) * (p.down[1] - p.down[0]) for p in drawn.pieces)
    assert area == pytest.approx(1) and not drawn.known
    assert sorted(drawn.shape) == sorted(parameter.shape if len(parameter.shape) == 2 else (1, *parameter.shape))
    assert (parameter.cut_axis is None) == (drawn.cut is None) == ([p.rank for p in drawn.pieces] == [-1])
    figure = tensor_figure(drawn)
    assert len(figure.layout.shapes) == len(drawn.pieces)
    assert drawn.name in tensor_words(drawn)


def test_a_column_cut_looks_like_columns_and_a_row_cut_like_rows():
    """The transpose is drawn; tables are drawn as they are stored."""
    placement = Placement(TINY, 4)
    cut = {p.name: picture(placement, p).cut for p in placement.parameters}
    assert cut["layers.0.mlp.gate.weight"] == cut["layers.0.attention.q.weight"] == cut["head.weight"] == 1
    assert cut["layers.0.mlp.down.weight"] == cut["layers.0.attention.o.weight"] == cut["embedding.weight"] == 0
    hidden = Placement(TINY, 4, "hidden")
    assert picture(hidden, hidden.parameter("embedding.weight")).cut == 1


def test_a_kv_head_on_two_ranks_is_said_and_striped():
    placement = Placement(TINY, 3)                          # 8 heads, 4 kv heads: rank 0 ends within kv head 1
    k = placement.parameter("layers.0.attention.k.weight")
    assert [band.ranks for band in bands(placement, k)] == [(0,), (0, 1), (1,), (2,)]
    assert "held more than once (the first by ranks 0 and 1)" in sentence(placement, k)
    shared = [p for p in picture(placement, k).pieces if p.holders == (0, 1)]
    assert [p.rank for p in shared] == [0, 1] and shared[0].across == shared[1].across
    assert piece_in_words(placement, k, 1) == "kv heads 1–2 of 4"
    assert "held by ranks 0 and 1" in str(tensor_figure(picture(placement, k)).to_dict())
    rows = {row["parameter"]: row for row in parameter_rows(placement, 4, 2)}
    assert rows["layers.*.attention.k.weight"]["gradient"] == "partial"
    assert rows["layers.*.attention.k.weight"]["copies"] == "1.25"
    assert rows["norm.weight"]["rank 2 holds"] == "all"


def test_rows_name_every_parameter():
    placement = Placement(GPT2, 5)
    every = parameter_rows(placement, 4, 0, every_layer=True)
    assert [row["parameter"] for row in every] == [p.name for p in placement.parameters]
    short = parameter_rows(placement, 4, 0)
    assert sum(row["layers"] for row in short) == len(every)
    assert {kind_of(p) for p, _ in repeated(placement)} == {"embedding", "attention", "mlp", "norm"}
    many = Placement(TINY, 11)
    assert piece_in_words(many, many.parameter("layers.0.attention.q.weight"), 10) == "nothing"


@pytest.mark.parametrize(("given_", "of", "said"), [
    ((0,), 1, "rank 0"), ((2,), 4, "rank 2"), ((0, 1), 2, "all 2 ranks"), ((0, 1, 3), 4, "ranks 0, 1 and 3")])
def test_holders_in_words(given_, of, said):
    assert holders(given_, of) == said


def test_the_table_answers_for_the_largest_model():
    placement = Placement(LLAMA_405B, 64)
    assert len(parameter_rows(placement, 2, 63)) == 12 and len(totals_figure(totals(placement, 2)).data) == 5


# --- numbers from a trace --------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def trace() -> Trace:
    return tiny_run()


def test_the_numbers_of_a_run_are_the_models(trace):
    """Put together from what the ranks kept, every matrix is the one that was loaded, to six digits."""
    placement, source = Placement(TINY, trace.run["ranks"]), open_checkpoint(Bundled("tiny").folder)
    seen = 0
    for parameter in placement.parameters:
        whole = source.read(parameter, tuple(slice(0, n) for n in parameter.shape))
        drawn = picture(placement, parameter, kept_pieces(trace, placement, parameter))
        assert drawn.known == (len(parameter.shape) == 2)             # a trace keeps the matrices
        if not drawn.known:
            continue
        turned = np.atleast_2d(whole if parameter.name == "embedding.weight" else whole.T)
        for piece in drawn.pieces:
            rows, columns = (slice(round(a * n), round(b * n)) for (a, b), n in
                             zip((piece.down, piece.across), turned.shape, strict=True))
            part = turned[rows, columns]
            if piece.exact:
                np.testing.assert_allclose(piece.cells, part, rtol=1e-5, atol=1e-12)
                seen += part.size
            else:
                assert np.abs(part).max() == pytest.approx(piece.cells.max(), rel=1e-5)
        assert len(tensor_figure(drawn).data) == len(drawn.pieces)
    assert seen > 5000


def test_numbers_that_do_not_fit_are_not_drawn(trace):
    """A trace may say of a piece what it likes: another shape is nobody's, and other ranks' pieces none of these."""
    placement = Placement(TINY, 5)
    parameter = placement.parameter("layers.0.mlp.gate.weight")
    assert kept_pieces(trace, placement, parameter) == {} and not picture(placement, parameter, {}).known
    other = Placement(GPT2, 2)
    assert all(kept_pieces(trace, other, p) == {} for p in other.parameters)


def test_numbers_that_are_not_finite_do_not_break_the_picture(trace):
    plain = deepcopy(trace.to_plain())
    for array in plain["weights"]["array"]:
        if "data" in array:
            array["data"] = [None] * prod(array["shape"])
    placement, hostile = Placement(TINY, trace.run["ranks"]), Trace.from_plain(plain)
    parameter = placement.parameter("layers.0.mlp.gate.weight")
    drawn = picture(placement, parameter, kept_pieces(hostile, placement, parameter))
    assert drawn.known and drawn.largest == 0 and tensor_figure(drawn).to_json()


def kept_arrays(placement, parameter):
    """Each rank's piece of a random parameter, as a trace keeps it."""
    source = RandomSource(placement.config)
    return {rank: KeptArray.of(plain) for rank in range(placement.ranks) for plain in
            [as_plain(matrix(source.read(parameter, placement.slices(parameter, rank))))] if plain}


def test_large_matrices_are_drawn_as_blocks():
    config = replace(TINY, ffn=1000, hidden=200)
    placement = Placement(config, 2)
    parameter = placement.parameter("layers.0.mlp.gate.weight")
    arrays = kept_arrays(placement, parameter)
    drawn = picture(placement, parameter, arrays)
    assert drawn.blocks and not drawn.signed and all(max(p.cells.shape) <= CELLS for p in drawn.pieces)
    assert drawn.largest == pytest.approx(max(a.cells.max() for a in arrays.values()))


def test_a_band_of_copied_heads_has_its_own_blocks():
    """Where a piece is kept as blocks and two bands lie in it, each cell is in the band where its middle is."""
    config = replace(TINY, hidden=200, head_size=40)
    placement = Placement(config, 3)
    k = placement.parameter("layers.0.attention.k.weight")
    arrays = kept_arrays(placement, k)
    drawn = picture(placement, k, arrays)
    assert drawn.blocks and [p.rank for p in drawn.pieces] == [0, 0, 1, 1, 2]
    assert all(p.cells is not None for p in drawn.pieces)
    first, second = (sum(p.cells.shape[1] for p in drawn.pieces if p.holders == holders_) for holders_ in ((0,), (1,)))
    assert first > 0 and second > 0 and first + drawn.pieces[1].cells.shape[1] == arrays[0].cells.shape[0]
