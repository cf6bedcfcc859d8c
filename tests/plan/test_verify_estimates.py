"""Estimates beside measured values: what no memory does is refused, what is of another order is told."""
import json
from dataclasses import replace
from pathlib import Path

import pytest

from minitp.plan.verify.case import Case, Inputs, read_cases
from minitp.plan.verify.judge import counts, judge, verify
from tests.plan.test_verify import CASES, LISTED, OTHERS, run

TOKENS = replace(LISTED["gptfast_mixtral_tp2"], model="Llama-2-7B", published=105.0)
KIPPLY = LISTED["kipply_13B_tp1"]


def told(case: Case, inputs: str):
    return judge(replace(case, inputs=Inputs.parse(inputs)))


@pytest.mark.parametrize(("share", "rate"), [("0.68;hbm_bytes_per_s=2.039e12", "1.38652e12"), ("1", "2.039e12"),
                                             ("68%;hbm_bytes_per_s=2.039e12", "1.38652e12")])
def test_a_share_of_the_bandwidth_is_as_good_as_a_rate(share, rate):
    for case, more in ((TOKENS, "bytes=2;tp=1;gpu=a100-80;"), (KIPPLY, "layers=40;hidden=5120;gpu=a100-80;")):
        one, other = told(case, f"{more}hbm_eff={share}"), told(case, f"{more}hbm_eff={rate}")
        assert one.planned == pytest.approx(other.planned, rel=1e-3) and not one.suspicious


@pytest.mark.parametrize("inputs", ["hbm_eff=68", "hbm_eff=1397.31", "hbm_bytes_per_s=2039", "hbm_eff=0",
                                    "hbm_eff=3e12;hbm_bytes_per_s=2.039e12"])
def test_a_bandwidth_of_no_memory_is_refused(inputs):
    for case, more in ((TOKENS, "bytes=2;tp=1;"), (KIPPLY, "layers=40;hidden=5120;")):
        outcome = told(case, more + inputs)
        assert outcome.missed and "hbm_" in outcome.reason


def test_more_than_all_of_a_peak_or_a_memory_is_refused():
    assert "1 or less (or 52%)" in judge(turned("gpuh_Llama-3.1-405B", mfu="52")).reason
    assert "1 or less" in judge(turned("pope_t1_multihead_dh128_b512", kv_share="30")).reason


def turned(name: str, **texts: str) -> Case:
    return replace(LISTED[name], inputs=Inputs(LISTED[name].inputs.texts | texts))


def test_an_estimate_of_another_order_is_suspicious(tmp_path):
    path = tmp_path / "cases.csv"
    path.write_text("case_id,kind,quantity,inputs,published_value,unit,tolerance,model\n"
                    "a,measured,tokens_per_second,bytes=2;tp=1;params=7e9,1e-9,tok/s,,Llama-2-7B\n", encoding="utf-8")
    result = run(str(path))
    assert result.exit_code == 0 and "suspicious: line 2, a: planned" in result.output
    assert "  params: a" in result.output and json.loads(run(str(path), "--json").output)["cases"][0]["suspicious"]
    assert not any(judge(case).suspicious for case in (*LISTED.values(), *OTHERS.values()))


def test_the_readme_tells_what_the_file_gives():
    found = counts(verify(read_cases(CASES)))
    row = (f"{found['formula']['lands']} formulas within tolerance, {found['formula']['looked up']} values looked up, "
           f"and {found['known_disagreement']['stays out']} published values known to be off")
    assert row in (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
