"""Layouts, machines and models of the planner: who stands where, and what a rank holds."""
from dataclasses import replace
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitp.config import TINY, ModelConfig
from minitp.errors import ConfigError
from minitp.plan.layout import AXES, Layout, Place, parse_stage_layers, shortly
from minitp.plan.links import LINKS
from minitp.plan.machine import Device, Level, Machine
from minitp.plan.model import PlannedModel

GPU = Device("gpu", "gpu", 80 * 10**9, 85 * 10**9, "HBM2e", 2e12, {"fp16": 312e12, "float32": 19.5e12}, "made up")
BOXES = Machine("boxes", GPU, (Level("inside", 8, LINKS[0]), Level("between", 4, LINKS[1], ports=8)))

NINE_HEADS = ModelConfig(hidden=36, layers=5, heads=9, kv_heads=3, head_size=4, ffn=50, vocab=101, positions=32)
degrees = st.integers(1, 5)


@given(degrees, degrees, degrees, degrees, st.data())
def test_a_rank_and_its_place_are_one_to_one(tp, cp, pp, dp, data):
    layout = Layout(tp=tp, cp=cp, pp=pp, dp=dp)
    rank = data.draw(st.integers(0, layout.devices - 1))
    assert layout.rank(layout.place(rank)) == rank
    for axis in AXES:
        group = layout.group(axis, rank)
        assert rank in group and len(group) == getattr(layout, axis)
        assert [getattr(layout.place(r), axis) for r in group] == list(range(len(group)))
        assert len({layout.place(r)._replace(**{axis: 0}) for r in group}) == 1


@given(st.integers(1, 7), st.integers(1, 3), st.integers(21, 40))
def test_every_layer_is_on_one_stage(pp, chunks, layers):
    layout = Layout(pp=pp, chunks=chunks, schedule="interleaved")
    held = [layer for stage in range(pp) for part in layout.layers_of(layers, stage) for layer in part]
    assert sorted(held) == list(range(layers))


def test_layers_can_be_dealt_by_hand():
    layout = Layout(pp=3, stage_layers=(3, 4, 3))
    assert [layout.layers_of(10, stage) for stage in range(3)] == [(range(0, 3),), (range(3, 7),), (range(7, 10),)]
    with pytest.raises(ConfigError, match="add up to 10, the model has 12"):
        layout.layers_of(12, 0)


def test_two_chunks_more_than_layers_leave_the_ends_alone():
    """As Grattafiori et al. 2024 lay 126 layers out over 16 stages of 8 chunks; any other number isn't filled."""
    layout = Layout(pp=16, chunks=8, schedule="interleaved")
    assert layout.fills(126) and not layout.fills(127 - 2) and not layout.fills(127) and layout.fills(128)
    assert layout == replace(layout) and layout.layers_of(126, 0)[0] == range(0) == range(126, 126)
    assert [layout.layers_on(126, stage) for stage in range(16)] == [7, *[8] * 14, 7]
    by_hand = replace(layout, stage_layers=(0, *[1] * 126, 0))
    assert all(layout.layers_of(126, stage) == by_hand.layers_of(126, stage) for stage in range(16))
    assert str(by_hand) == str(layout) == "PP16, 8 chunks"                # the same layout, the same words
    assert not Layout(pp=5).fills(3)                                      # a stage would have nothing to do


@given(st.lists(st.integers(0, 99), min_size=1, max_size=40))
def test_named_layers_are_read_as_they_are_written(layers):
    assert parse_stage_layers(shortly(layers)) == tuple(layers)


def test_how_layers_are_named():
    assert parse_stage_layers("0, 1x126, 0") == (0, *[1] * 126, 0) and shortly((5, *[6] * 10, 5)) == "5,6x10,5"
    assert str(Layout(pp=3, stage_layers=(3, 4, 3))) == "PP3, layers 3,4,3"
    for wrong in ("", "5,", "x3", "3x", "-1", "5 6", "1x99999999", "1x99999999999999", "a"):
        with pytest.raises(ConfigError):
            parse_stage_layers(wrong)


@pytest.mark.parametrize(("asked", "said"), [
    ({"tp": 0}, "tp must be"), ({"chunks": 2}, "interleaved"), ({"dp": 4, "ep": 3}, "divide"),
    ({"pp": 2, "stage_layers": (1,)}, "each of 2 chunks")])
def test_a_layout_that_cannot_be_is_refused(asked, said):
    with pytest.raises(ConfigError, match=said):
        Layout(**asked)


@pytest.mark.parametrize(("layout", "spread"), [
    (Layout(tp=8, pp=16, dp=64), {"tp": (8, 1), "dp": (1, 64), "pp": (1, 16)}),
    (Layout(tp=16, pp=4, dp=2), {"tp": (8, 2), "dp": (1, 2), "pp": (1, 4)}),
    (Layout(tp=2, pp=4, dp=16), {"tp": (2, 1), "dp": (4, 4), "pp": (1, 4)})])
def test_where_the_groups_of_a_layout_meet(layout, spread):
    machine = BOXES.with_devices(layout.devices)
    assert machine.devices == layout.devices
    assert {axis: machine.spread(layout, axis) for axis in spread} == spread


@given(st.integers(1, 64), st.sampled_from([1, 2, 4, 8, 16]))
def test_no_member_of_a_group_is_lost(members, stride):
    assert prod(BOXES.meeting(members, stride)) >= members


def test_a_machine_grows_by_whole_boxes():
    assert BOXES.with_devices(3).devices == 3
    assert BOXES.with_devices(20).devices == 24
    with pytest.raises(ConfigError, match="nothing is known of a network between"):
        Machine("box", GPU, BOXES.levels[:1]).with_devices(16)


def test_a_type_without_units_of_its_own_runs_on_the_next_wider_ones():
    assert GPU.peak("bf16") == GPU.peak("int8") == 312e12
    with pytest.raises(ConfigError, match="float64"):
        GPU.peak("float64")


# --- what a rank holds ------------------------------------------------------------------------------------------


GPT = ModelConfig(hidden=24, layers=4, heads=6, kv_heads=6, head_size=4, ffn=96, vocab=53, positions=40, norm="layer",
                  activation="gelu", gated=False, rotary=None, tied=True, qkv_bias=True, attention_bias=True,
                  mlp_bias=True)
MODELS = {"nine heads": PlannedModel(NINE_HEADS), "tiny": PlannedModel(TINY), "gpt": PlannedModel(GPT)}


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("tp", [1, 2, 3, 5, 7])
def test_numbers_held_are_those_of_the_placement(model, tp):
    placement = model.placement(tp)
    for rank in range(tp):
        held = model.on_stage(Layout(tp=tp), Place(rank, 0, 0, 0))
        assert sum(part.total for part in held.values()) == placement.elements(rank)
    assert model.parameters == model.placement(1).elements(0)


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_the_stages_of_a_pipeline_hold_the_model_once_and_a_tied_table_twice(model):
    layout = Layout(pp=2)
    held = sum(part.total for stage in range(2) for part in model.on_stage(layout, Place(0, 0, 0, stage)).values())
    table = model.config.vocab * model.config.hidden if model.config.tied else 0
    assert held == model.parameters + table


def test_experts_are_spread_and_a_token_visits_some():
    model = PlannedModel(NINE_HEADS, experts=5, active=2)
    mlp = 3 * 36 * 50
    assert model.parameters == PlannedModel(NINE_HEADS).parameters + 5 * (4 * mlp + 36 * 5)
    assert model.active_parameters == model.parameters - 5 * 3 * mlp
    layout = Layout(dp=3, ep=3)
    experts = [model.on_stage(layout, Place(0, 0, dp, 0))["layer"].expert for dp in range(3)]
    assert experts == [5 * 2 * mlp, 5 * 2 * mlp, 5 * mlp]
    with pytest.raises(ConfigError, match="6 of 5 experts"):
        PlannedModel(NINE_HEADS, experts=5, active=6)
