"""`minitp plan verify`: every published value of the file, values that aren't in it, and what turns a verdict."""
import ast
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from minitp.cli import app
from minitp.plan.published import dllama
from minitp.plan.verify import hardware, keys, shape
from minitp.plan.verify.case import Case, Inputs, read_cases
from minitp.plan.verify.judge import MISSES, counts, judge, verify

CASES = Path(__file__).parent / "cases" / "planner_cases.csv"
UNLISTED = Path(__file__).parent / "cases" / "unlisted_cases.csv"
GOOD = {"formula": "lands", "known_disagreement": "stays out", "catalogue": "as listed", "measured": "ratio"}
LOOKED_UP = {"kor_t4_seqpar", "kor_t4_fullrec", "kor_t4_sel_seq", "palm540_chip_hours", "accel_zephyr_fp16",
             "kor_t4_baseline", "kor_t4_sel", "kor_t4_by_inputs", "accel_zephyr_fp32"}
"""Rows whose value is a published table's own: no formula lands there."""


def cases(path: Path) -> dict[str, Case]:
    return {row.id: row for row in read_cases(path) if isinstance(row, Case)}


LISTED, OTHERS = cases(CASES), cases(UNLISTED)


@pytest.mark.parametrize("path", [CASES, UNLISTED], ids=["the file", "others of its kinds"])
def test_every_case_gets_the_verdict_of_its_kind(path):
    outcomes = verify(read_cases(path))
    assert [(outcome.id, outcome.reason) for outcome in outcomes if outcome.verdict != (
        "looked up" if outcome.id in LOOKED_UP else GOOD.get(outcome.kind))] == []


def test_the_file_is_complete():
    assert {kind: sum(row.values()) for kind, row in counts(verify(read_cases(CASES))).items()} == {
        "formula": 265, "measured": 36, "known_disagreement": 9, "catalogue": 7}


def test_a_measured_value_is_judged_by_nobody_however_far_it_is():
    case = LISTED["dllama_405B_4node"]
    outcome = judge(replace(case, published=1e-9))
    assert outcome.verdict == "ratio" and not outcome.missed and outcome.ratio > 1e9


@pytest.mark.parametrize("name", [name for name, case in LISTED.items() if case.kind == "known_disagreement"])
def test_a_known_disagreement_that_the_planner_meets_is_a_miss(name):
    planned = judge(LISTED[name]).planned
    assert judge(replace(LISTED[name], published=planned)).verdict == "lands inside"


@pytest.mark.parametrize("name", [name for name, case in LISTED.items() if case.kind in ("formula", "catalogue")])
def test_another_published_value_is_a_miss(name):
    """Farther away than the tolerance, on either side."""
    case, planned = LISTED[name], judge(LISTED[name]).planned
    for factor in (2.2 + 2 * case.tolerance, 0.4 / (1 + case.tolerance)):
        assert judge(replace(case, published=planned * factor)).missed == (abs(1 / factor - 1) > case.tolerance)
    assert judge(replace(case, published=-planned)).missed == (case.tolerance < 2)


TURNED = {
    "zero_t1_7.5B_dp64_s1": "dp=16", "zero_t2_theory_mp4_s1": "gpu_mem_gb=40", "zero_comm_s3": "zero_stage=1",
    "zero_mp_comm_per_block": "allreduces=4", "zero_act_gpt2_1.5B": "seq=2000",
    "ds_z3_t5-3b_gpu_nooff": "cpu_offload=1", "ds_z3_t5-3b_cpu_off_all_init": "zero_init=0",
    "ds_z3_T0_3B_gpu_opt": "largest_layer=650e6", "shoeybi_abstract_eff": "gpus=256",
    "mlm20_params_4B": "layers=37", "mlm20_tflops_4B_A100": "recompute=none", "sc21_t1_145.6B_agg": "gpus=768",
    "sc21_t2_ptd_529.6B_560": "tflops_gpu=150", "sc21_gpt3_34days": "recompute=none", "sc21_1T_ckpt": "params=1.1e12",
    "sc21_bubble_interleaved": "chunks=2", "sc21_pp_comm_sg": "tp=4", "kor_t5_22B_hfu": "t_new=1.2",
    "kor_sel_saving_GPT-3": "seq=4096", "kor_sel_flops_GPT-3": "hidden=6144", "kor_fig7_both_1T": "tp=1",
    "kor_t4_sel_seq": "hidden=8192", "kor_sbhp_530B": "pp=8", "kor_530B_dp8_mfu": "tp=45.5",
    "mlm_bytes_distopt_dp8": "dp=16", "mtnlg_2240": "iter_s=70", "mtnlg_mfu_280n": "gpus=2800",
    "bloom_params": "vocab=150000", "bloom_layout": "pp=6", "bloom_inference_weights": "bytes=1",
    "opt13_kv_2048": "tokens=1024", "opt175_days": "gpus=992", "gpt3_train_16B": "bytes_per_param=18",
    "llama1_13B_gpuh": "tokens=1.4e12", "llama1_65B_days": "tok_s_gpu=300", "params_Llama-3.1-70B": "kv_heads=64",
    "gpuh_Llama-3.1-405B": "mfu=0.2", "llama3_t4_16384_cp16_tok": "dp=4", "llama3_405B_bf16_gpus": "bytes=1",
    "llama31_kv_70B_128k": "kv_heads=64", "palm540_params": "kv_heads=48", "palm540_mfu": "peak_flops=312e12",
    "pope_t1_multihead_dh128_b512": "variant=multiquery_headshard", "pope_t2_lowlat_decode_mfu": "batch=32",
    "pope_29ms": "gpus=1", "kipply_260B_comm": "layers=64", "kipply_530B_comm": "link=150e9",
    "gptfast_Llama-2-7B_tp4_bytes": "tp=8", "gptfast_Llama-2-7B_tp8_toks": "alpha_allreduce_us=50",
    "dllama01_Llama-2-7B_q80_n8_recv": "buffer=f32", "dllama07_Llama-3-8B_q80_n2": "nodes=4",
    "dllama_time_RasPi4B_Llama-2-7B_n2": "device=RasPi5", "nccl_a100x8_17179869184": "beta_GBps=80",
    "nccl_b200_4node_4294967296": "ranks=16", "nccl_model_tree_LL_4x8": "algo=ring",
    "hier_b200_4GiB_serial_bound": "nic=25e9", "mpich_recdbl": "gamma_s_per_byte=1e-10",
    "ultra_8B_act_1024": "micro_batch=2", "accel_zephyr_fp16": "params=7.0e9",
}
"""Case → an input put in place of its own, which must change the answer beyond the tolerance."""


@pytest.mark.parametrize("name", TURNED)
def test_an_input_turns_the_verdict(name):
    case = LISTED[name]
    key, _, value = TURNED[name].partition("=")
    changed = replace(case, inputs=Inputs({**case.inputs.texts, key: value}))
    assert not judge(case).missed and judge(changed).verdict == "misses"


@pytest.mark.parametrize(("change", "reason"), [
    ({"quantity": "wieghts_bytes"}, "isn't known; near: weights_bytes"),
    ({"unit": "ms"}, "'ms' is no unit of bytes; B, kB, MB, GB, GiB are"), ({"unit": "GB(1e12)"}, "contradicts itself"),
    ({"inputs": Inputs({"bytes": "2", "parms": "7e9"})}, "unknown input(s): parms; near: params"),
    ({"inputs": Inputs({"bytes": "two"})}, "doesn't begin with a number"),
    ({"inputs": Inputs({"bytes": "0"})}, "must be above 0"),
    ({"model": "Nobody's 9B", "inputs": Inputs({"bytes": "2"})}, "no model of the catalogue"),
    ({"inputs": Inputs({"weight_dtype": "bf17"})}, "bf17"),
    ({"inputs": Inputs({"params": "1e999"})}, "not finite"),
])
@pytest.mark.parametrize("kind", GOOD)
def test_what_cant_be_planned_is_reported_and_counts_as_a_miss(change, reason, kind):
    outcome = judge(replace(LISTED["bloom_inference_weights"], kind=kind, **change))
    assert outcome.verdict == "not judged" and outcome.missed and reason in outcome.reason


def test_an_input_that_is_known_but_not_needed_is_told():
    assert judge(LISTED["gptfast_Llama-2-7B_tp2_bytes"]).unused == ("gpu", "batch", "tokens_per_second", "bw_reported")


@given(st.sampled_from(sorted(LISTED)), st.randoms(use_true_random=False),
       st.sampled_from(["0", "1", "7", "9999", "1e15", "1e300", "1e-300", "x", ""]))
def test_whatever_an_input_says_there_is_a_verdict(name, random, value):
    """Also where it isn't there at all."""
    case = LISTED[name]
    texts = dict(case.inputs.texts)
    if texts:
        key = random.choice(sorted(texts))
        texts.pop(key) if not value else texts.update({key: value})
    outcome = judge(replace(case, inputs=Inputs(texts)))
    assert outcome.planned is not None or outcome.reason


def test_what_a_row_leaves_out_is_taken_from_the_run_that_it_is_about():
    left = {"kor_t5_175B_hfu": {"t_new"}, "sc21_t1_145.6B_agg": set(), "llama3_t4_8192_cp1_mfu": {"dp"},
            "llama1_33B_gpuh": {"gpu"}, "sc21_t1_1.7B_peak": {"tflops_gpu"}}
    for name, told in left.items():
        case = LISTED[name]
        kept = Inputs({key: text for key, text in case.inputs.texts.items() if key in told})
        assert judge(replace(case, inputs=kept)).verdict == "lands", name


@pytest.mark.parametrize("path", [CASES, UNLISTED], ids=["the file", "others of its kinds"])
def test_no_id_decides_a_value_silently(path):
    """Under neutral names a row keeps its plan, or isn't judged; where a tool's default stands in, that is told."""
    for case in cases(path).values():
        outcome, renamed = judge(case), judge(replace(case, id="x"))
        if renamed.verdict == "not judged":
            assert "ambiguous: " in renamed.reason and any("row's name" in what for what in outcome.assumed), case.id
        elif renamed.planned != outcome.planned:
            assert renamed.missed and renamed.assumed, case.id


def test_no_note_decides_a_value_silently():
    told = {case.id: judge(case) for case in (*LISTED.values(), *OTHERS.values()) if case.note}
    changed = [case.id for case in (*LISTED.values(), *OTHERS.values())
               if case.note and judge(replace(case, note="")).planned != told[case.id].planned]
    assert changed == ["ds_z3_T0_3B_cpu_none_as_its_note_says"]
    assert "zero_init=0 (from the row's note)" in told[changed[0]].assumed


@pytest.mark.parametrize(("name", "inputs", "asked"), [
    ("ds_z3_T0_3B_gpu_all", {}, "a GPU's memory or the host's"), ("mpich_recdbl", {}, "which algorithm"),
    ("hier_b200_4GiB_serial_bound", {}, "in turn or at once"), ("kor_t4_fullrec", {}, "which scheme"),
    ("ds_z3_t5-large_case1", {}, "what is kept in the host's memory"),
    ("nccl_model_ring_LL_8gpu_new", {"algo": ""}, "which algorithm"),
    ("nccl_model_ring_LL_8gpu_new", {"proto": "", "base": ""}, "which protocol"),
    ("dllama01_Llama-2-7B_q80_n8_recv", {"buffer": ""}, "which number type"),
])
def test_what_nothing_tells_is_asked_for(name, inputs, asked):
    case = LISTED[name]
    texts = {key: text for key, text in case.inputs.texts.items() if inputs.get(key) != ""}
    outcome = judge(replace(case, id="x", inputs=Inputs(texts)))
    assert outcome.verdict == "not judged" and asked in outcome.reason and "ambiguous" in outcome.reason


def test_what_makes_no_difference_isnt_asked_for():
    """One GPU, all offloaded: the host holds as much whether the model was built in pieces or not."""
    case = LISTED["ds_z3_T0_3B_gpu_all"]
    host = Inputs({**case.inputs.texts, "offload": "all"})
    assert judge(replace(case, id="x", quantity="cpu_mem", inputs=host, published=70)).verdict == "lands"


def test_flops_of_a_training_are_no_peak():
    """Llama 3.1 405B: 3.8e25 operations on 16,384 H100 at 40 % of 989 TFLOP/s are 68 days, by a 2 FLOP/s peak never."""
    case = replace(LISTED["sc21_gpt3_34days"], model="Llama-3.1-405B", source="x", inputs=Inputs(
        {"flops": "3.8e25", "gpus": "16384", "mfu": "0.4", "gpu": "h100"}))
    assert judge(case).planned == pytest.approx(3.8e25 / (16384 * 0.4 * 989e12) / 86400, rel=1e-3)


def test_an_input_key_has_one_meaning():
    """Each key is of one group, and what the row's machine is comes from keys of machines alone."""
    groups = [keys.MODEL, keys.JOB, keys.LAYOUT, keys.MACHINE, keys.NETWORK, keys.REACHED]
    assert sum(len(group.split()) for group in groups) == len(keys.KNOWN)
    told = set(keys.MACHINE.split())
    assert asked_in(hardware) <= told | {"gpus"}                             # "64 TPUv4": the words behind a number
    assert asked_in(shape) <= set(keys.MODEL.split()) | {"seq"}
    of_machines = {key for key in told if key.startswith(("peak", "hbm"))}
    for topic in Path(hardware.__file__).with_name("quantities").glob("*.py"):
        assert not asked_in(topic) & of_machines, topic.name


def asked_in(module) -> set[str]:
    """Input keys that stand as texts in a module, but for its docstrings."""
    path = module if isinstance(module, Path) else Path(module.__file__)
    return {node.value for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.Constant) and isinstance(node.value, str)} & keys.KNOWN


def test_a_plan_of_nothing_is_a_miss():
    case = LISTED["ds_z3_6.8B_measured_init"]
    assert judge(case).planned == pytest.approx(4 * 131e6 / 2**20)
    other = Inputs({**case.inputs.texts, "params": "7.1e9"})
    assert "largest_layer is missing" in judge(replace(case, inputs=other)).reason
    for kind in GOOD:
        idle = replace(case, kind=kind, quantity="bubble_fraction_of_ideal", unit="ratio", published=0.1,
                       inputs=Inputs({"pp": "1", "micro_batches": "8"}))
        assert judge(idle).missed and "the plan is 0" in judge(idle).reason
        assert judge(replace(idle, published=0)).verdict != "not judged"


def test_a_tolerance_as_wide_as_the_disagreement_is_not_the_margin():
    wide, narrow = judge(LISTED["llama31_fullft_8B"]), judge(LISTED["llama31_kv_405B_1k"])
    assert wide.by_accuracy and wide.margin == 0.05 and LISTED["llama31_fullft_8B"].tolerance == 2.8
    assert not narrow.by_accuracy and narrow.margin == 0.01


STAR = {("RasPi4B", "Llama-2-7B"): {1: 1312.5, 2: 793.7, 4: 494.0, 8: 588.2},
        ("RasPi4B", "Llama-2-13B"): {2: 1497.2, 4: 848.2, 8: 1114.9}, ("RasPi4B", "Llama-2-70B"): {8: 4842.8},
        ("RasPi5", "Llama-2-7B"): {1: 441.1, 2: 341.5, 4: 219.1},
        ("RasPi5", "Llama-3-8B"): {1: 564.3, 2: 444.3, 4: 331.5},
        ("c3d-highcpu-30 VM", "Llama-2-7B"): {1: 101.8, 2: 69.7, 4: 53.7},
        ("c3d-highcpu-30 VM", "Llama-2-13B"): {4: 86.81},
        ("c3d-highcpu-30 VM", "Llama-2-70B"): {1: 909.7, 2: 501.4, 4: 293.1}}
"""Milliseconds a token in distributed-llama's READMEs."""


@pytest.mark.parametrize("kind", ["RasPi4B", "RasPi5", "c3d-highcpu-30 VM"])
@pytest.mark.parametrize("version", ["v0.1.0", "v0.7.1"])
def test_a_star_of_computers_is_fitted_within_the_error_that_it_states(kind, version):
    """Whichever version a row's source names: one fit a device, of the version that was measured."""
    apart = []
    for (device, model), table in STAR.items():
        for nodes, published in table.items() if device == kind else ():
            row = replace(LISTED["dllama_time_RasPi4B_Llama-2-7B_n2"], model=model, published=published,
                          source=f"README ({version})", inputs=Inputs({"device": device, "nodes": f"{nodes}",
                                                                       "weight_dtype": "q40", "buffer": "q80"}))
            apart.append(abs(judge(row).difference))
    stated = dllama.node(kind).error
    assert stated - 0.02 < max(apart) <= stated < 0.4


def test_a_printed_size_holds_for_its_model_alone():
    """accelerate prints more than two bytes a parameter of Zephyr: looked up there, planned from P elsewhere."""
    case = LISTED["accel_zephyr_fp16"]
    assert judge(case).verdict == "looked up" and "13.74 GiB" in judge(case).formula
    other = judge(replace(case, model="another 7B", published=8 * 7.24e9 / 2**30))
    assert other.verdict == "lands" and other.formula == "4 · P · 2 B"
    assert judge(replace(case, inputs=Inputs({"params": "7.3e9"}))).planned == pytest.approx(8 * 7.3e9 / 2**30)


def run(*arguments: str):
    return CliRunner().invoke(app, ["plan", "verify", *arguments], env={"COLUMNS": "100"})


def test_the_command_line():
    result = run(str(UNLISTED))
    assert result.exit_code == 0, result.output
    assert "¹ assumed, as no input tells" in result.output and "² the row's tolerance is as wide" in result.output
    assert "known_disagreement" not in result.output
    assert "known disagreement: 6 published values known to be off, on none of which the planner lands: right (4 of " \
        in result.output
    assert "³ given, and not needed by the formula:" in result.output
    assert " 0 missed" in result.output and "kor_t5_22B_mfu" in result.output


def test_one_case_in_full():
    result = run(str(CASES), "--only", "bloom_layout", "--only", "kor_t4_seqpar")
    assert result.exit_code == 0 and "tp · cp · pp · dp" in result.output and "table 4" in result.output


def test_json_of_a_kind(tmp_path):
    result = run(str(CASES), "--kind", "catalogue", "--json")
    told = json.loads(result.output)
    assert result.exit_code == 0 and told["misses"] == 0 and told["counts"] == {"catalogue": {"as listed": 7}}
    assert told["cases"][0]["quantity"] == "model_parallel_size" and told["cases"][0]["planned"] == 8


def test_a_miss_makes_it_fail_and_says_why(tmp_path):
    text = UNLISTED.read_text(encoding="utf-8").replace(",1312.5,ms", ",131.25,ms").replace(";tp=8;pp=8;", ";tpp=8;")
    path = tmp_path / "cases.csv"
    path.write_text(text, encoding="utf-8")
    result = run(str(path))
    assert result.exit_code == 1 and "published 131.25 ms, tolerance 40 %" in result.output
    assert "unknown input(s): tpp" in result.output and " 2 missed" in result.output
    assert json.loads(run(str(path), "--json").output)["misses"] == 2
    assert run(str(path), "--kind", "catalogue").exit_code == 0


@pytest.mark.parametrize("arguments", [("--only", "nobody"), ("--kind", "nothing")])
def test_nothing_to_judge_is_an_error(arguments):
    assert run(str(CASES), *arguments).exit_code != 0


def test_misses_are_all_verdicts_but_the_good_ones():
    assert not set(MISSES) & set(GOOD.values())
