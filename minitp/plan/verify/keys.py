"""The input keys of the files of cases. A key that isn't here is reported, and its row counts as a miss: a planner
that ignores what it was told would be right by accident."""
from difflib import get_close_matches

from minitp.plan.verify.case import CaseError, Inputs
from minitp.trace.wording import plain

MODEL = """params active_params layers hidden heads kv_heads head_dim kv_dim ffn vocab positions tied experts active
largest_layer shards"""
JOB = """seq batch batch_per_dp micro_batch micro_batches tokens prompt new context phase latency_s recompute
weight_dtype bytes bytes_w bytes_g bytes_opt bytes_per_param bytes_kv bytes_act K precision optimizer flops flops_eff
elems_per_token_layer allreduces iterations mfu"""
LAYOUT = """tp pp dp cp ep sp chunks gpus nodes ranks zero_stage scheme layout variant case tp_x_pp offload cpu_offload
cpu_offload_params zero_init use_distributed_optimizer gpus_per_node buffer_factor weak_scaling strong_scaling"""
MACHINE = """gpu device hbm_gib gpu_gb gpu_mem_gb budget_gb reserve kv_share hbm_bytes_per_s hbm_eff peak peak_flops
link link_spec_GBps nic nvlink_busbw gpus_per_machine machines net buffer bw_reported"""
NETWORK = """op algo algorithm proto base hw intra inter alpha_s alpha_us alpha_allreduce_us beta_s_per_byte beta_GBps
gamma_s_per_byte nvls"""
REACHED = """tflops_gpu pflops single_gpu_tflops iter_s iter_ms t_full t_new tokens_per_second tokens_s tok_s_gpu
busbw algbw time_us"""

KNOWN = frozenset(" ".join((MODEL, JOB, LAYOUT, MACHINE, NETWORK, REACHED)).split())


def check_keys(inputs: Inputs) -> None:
    """CaseError for keys that no formula knows, with those that look like them."""
    unknown = [key for key in inputs if key not in KNOWN]
    if unknown:
        near = get_close_matches(unknown[0], KNOWN, 3)
        raise CaseError(f"unknown input(s): {plain(', '.join(unknown), 80)}"
                        + (f"; near: {', '.join(near)}" if near else ""))
