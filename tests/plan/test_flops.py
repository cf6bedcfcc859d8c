"""Operations counted from the placement against the closed forms that papers print."""
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minitp.errors import ConfigError
from minitp.plan.job import Training
from minitp.plan.layout import Layout
from minitp.plan.speed import flops
from tests.plan.plan_models import GPT3, LLAMA2_7B, LLAMA2_70B, LLAMA31_405B, gpt, llama


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 5), st.integers(1, 12), st.integers(1, 64), st.integers(1, 700), st.integers(1, 5),
       st.integers(1, 300))
def test_counted_gpt_is_the_papers_closed_forms(layers, heads, head_size, vocab, batch, seq):
    hidden = heads * head_size
    model, sizes = gpt(layers, hidden, heads, vocab), (batch, seq, layers, hidden, vocab)
    full = flops.step(model, Training(batch=batch, seq=seq, recompute="full"))
    assert full.hardware == pytest.approx(flops.gpt_full(*sizes), rel=1e-12)
    assert full.model == pytest.approx(flops.gpt_model(*sizes), rel=1e-12)
    selective = flops.step(model, Training(batch=batch, seq=seq, recompute="selective"))
    printed_too_much = 8 * batch * seq ** 2 * hidden * layers            # of 12 Bs²h a layer, only 4 are done again
    assert selective.hardware == pytest.approx(flops.gpt_selective(*sizes) - printed_too_much, rel=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 7), st.integers(1, 6), st.integers(1, 3), st.integers(2, 40), st.integers(2, 60))
def test_ranks_shares_add_up_where_no_kv_head_is_copied(tp, kv_heads, group, ffn, vocab):
    model = llama(2, 8 * kv_heads * group, kv_heads * group, kv_heads, ffn, vocab)
    whole = flops.matrices(model)
    shares = [flops.matrices(model, tp, rank) for rank in range(tp)]
    for name in ("mlp", "head", "width"):
        assert sum(getattr(share, name) for share in shares) == getattr(whole, name)
    added = sum(share.projections for share in shares)
    assert added > whole.projections if model.placement(tp).kv_copied else added == whole.projections


def test_gqa_and_gates_are_counted_by_their_sizes():
    h, kv, f = 8192, 1024, 28672
    assert flops.matrices(LLAMA2_70B) == (2 * h * h + 2 * h * kv, 3 * h * f, 32000 * h, h)
    assert flops.per_token(LLAMA2_70B, 0).total == 2 * (LLAMA2_70B.parameters - 32000 * h - (2 * 80 + 1) * h)


def test_experts_count_those_that_a_token_visits():
    mixtral = llama(32, 4096, 32, 8, 14336, 32000, experts=8, active=2)
    assert flops.matrices(mixtral).mlp == 2 * 3 * 4096 * 14336 + 8 * 4096
    assert flops.touched(8, 2, 1) == pytest.approx(2)
    assert flops.touched(8, 2, 1000) == pytest.approx(8)
    assert 3 < flops.touched(8, 2, 2) < 4                                # two tokens may choose the same expert


def test_stages_are_one_of_each_kind_and_the_head_is_on_the_last():
    layout = Layout(tp=8, pp=16, dp=64)
    assert flops.stages(LLAMA31_405B, layout) == {0: 1, 1: 13, 14: 1, 15: 1}          # 126 layers: 14 stages of 8
    with_head = flops.on_stage(LLAMA31_405B, layout, 15, 8192)
    assert with_head.head == 2 * 128256 * 16384 / 8
    assert flops.on_stage(LLAMA31_405B, layout, 0, 8192).head == 0
    everywhere = sum(flops.on_stage(LLAMA31_405B, layout, stage, 8192).total * 8 for stage in range(16))
    assert everywhere == pytest.approx(flops.per_token(LLAMA31_405B, 8192).total)


def test_causal_attention_is_half_of_the_convention():
    whole, half = (flops.step(LLAMA2_7B, Training(seq=2048), causal=causal).forward for causal in (False, True))
    assert half.scores / whole.scores == pytest.approx(2049 / 4096)
    assert half.mlp == whole.mlp


def test_days_and_hours_of_published_trainings():
    assert flops.training_days(flops.training_flops(175e9, 300e9, "full"), 1024, 140e12) == pytest.approx(34, rel=0.01)
    steps = 300e9 / (1536 * 2048)
    long_form = steps * flops.step(GPT3, Training(batch=1536, recompute="full")).hardware
    assert flops.training_days(long_form, 384, 153e12) == pytest.approx(84, rel=0.015)         # SC21, Table 2
    assert flops.device_hours(flops.training_flops(65.29e9, 1.4e12), 0.5 * 312e12) == pytest.approx(976_544, rel=1e-3)


def test_utilization_of_published_steps():
    h22 = gpt(48, 6144, 64)
    took = flops.step(h22, Training(batch=4, recompute="selective"))
    assert flops.utilization(took.model, 1.10, 8, 312e12) == pytest.approx(0.415, rel=0.01)    # KOR, Table 5
    assert flops.utilization(flops.gpt_selective(4, 2048, 48, 6144, 51200), 1.10, 8, 312e12) == pytest.approx(
        0.437, rel=0.01)


def test_short_form_of_selective_recomputation_is_refused():
    with pytest.raises(ConfigError, match="selective"):
        flops.training_flops(1e9, 1e9, "selective")
