"""Models and machines for the planner's tests, made by hand: the formulas are tested here, not the catalogue."""
from minitp.config import ModelConfig
from minitp.plan.links import Link
from minitp.plan.machine import Device, Level, Machine
from minitp.plan.model import PlannedModel


def gpt(layers: int, hidden: int, heads: int, vocab: int = 51200, positions: int = 2048) -> PlannedModel:
    """A GPT with biases, learned positions and a tied head (Narayanan et al. 2021, Table 1)."""
    return PlannedModel(ModelConfig(
        name=f"gpt-{layers}x{hidden}", hidden=hidden, layers=layers, heads=heads, kv_heads=heads,
        head_size=hidden // heads, ffn=4 * hidden, vocab=vocab, positions=positions, norm="layer", gated=False,
        activation="gelu", rotary=None, tied=True, qkv_bias=True, attention_bias=True, mlp_bias=True))


def llama(layers: int, hidden: int, heads: int, kv_heads: int, ffn: int, vocab: int, **more: int) -> PlannedModel:
    """A Llama: gated, rotary, untied, no biases. `more`: experts and active ones."""
    return PlannedModel(ModelConfig(
        name=f"llama-{layers}x{hidden}", hidden=hidden, layers=layers, heads=heads, kv_heads=kv_heads,
        head_size=hidden // heads, ffn=ffn, vocab=vocab, positions=131_072), **more)


LLAMA2_7B = llama(32, 4096, 32, 32, 11008, 32000)
LLAMA2_70B = llama(80, 8192, 64, 8, 28672, 32000)
LLAMA31_8B = llama(32, 4096, 32, 8, 14336, 128256)
LLAMA31_70B = llama(80, 8192, 64, 8, 28672, 128256)
LLAMA31_405B = llama(126, 16384, 128, 8, 53248, 128256)
GPT3 = gpt(96, 12288, 96)


A100 = Device("A100-80", "gpu", 80 * 10**9, 85 * 10**9, "HBM2e", 2.039e12,
              {"bf16": 312e12, "fp16": 312e12, "float32": 19.5e12}, "made for tests", 0.68, 0.57)
NVLINK = Link("NVLink", 1.5e-6, 235e9, "made for tests")
HDR = Link("HDR", 5e-6, 25e9, "made for tests")
ETHERNET = Link("1 GbE", 60e-6, 0.118e9, "made for tests")


def boxes(devices: int, per_box: int = 8, device: Device = A100, inner: Link = NVLINK, outer: Link = HDR) -> Machine:
    """Boxes of `per_box` devices with a port each to the network between them."""
    inside = Level("box", min(devices, per_box), inner, 0, {})
    if devices <= per_box:
        return Machine("one box", device, (inside,))
    return Machine("boxes", device, (inside, Level("network", devices // per_box, outer, per_box)))
