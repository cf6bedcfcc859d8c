"""The KV cache, as the planner's own row of it, and the longest context that fits."""
from dataclasses import replace

from minitp.plan import memory
from minitp.plan.job import Inference, bytes_of
from minitp.plan.layout import Layout, Place
from minitp.plan.model import PlannedModel
from minitp.plan.published.calculators import pope_divisor
from minitp.plan.verify import hardware
from minitp.plan.verify.case import Case, CaseError, ambiguous
from minitp.plan.verify.registry import Planned, quantity
from minitp.plan.verify.shape import Shape

FORMULA = "2·L·kv·e·bytes a token"


def cached(model: PlannedModel) -> float:
    """Numbers of K and V of one token in all layers, by the planner's own row of them."""
    job = Inference(batch=1, prompt=1, new=0)
    rows = memory.rows(model, Layout(), job, Place(0, 0, 0, 0))
    return sum(row.bytes for row in rows if row.kind == "kv cache") / bytes_of(job.cache)


def a_token(case: Case) -> float:
    """Bytes of K and V of one token, in all layers."""
    return cached(Shape(case).planned) * case.inputs.positive("bytes_kv", "bytes", default=2)


@quantity("bytes", "kv_bytes_per_token")
def kv_bytes_per_token(case: Case) -> Planned:
    """Bytes of K and V of a token, by the planner's own row of the cache."""
    return Planned(a_token(case), FORMULA, 0.03)


@quantity("bytes", "kv_bytes", "kv_bytes_per_sequence")
def kv_bytes(case: Case) -> Planned:
    """Bytes of `batch` sequences of `tokens` tokens, by the same row."""
    inputs = case.inputs
    tokens = inputs.whole("tokens", "context", "seq") * inputs.whole("batch", default=1)
    return Planned(a_token(case) * tokens, f"{FORMULA} · tokens", 0.06)


@quantity("count", "max_context_tokens")
def max_context_tokens(case: Case) -> Planned:
    """Tokens (Pope et al. 2022, table 1): a share of every chip's memory for the cache, which a layout spreads over
    more or fewer of them."""
    inputs = case.inputs
    variant, chips = inputs.text("variant") or variant_named(case), inputs.whole("gpus")
    config, layers = Shape(case).planned.config, Shape(case).layers
    name, _, size = variant.partition("_dh")
    kv_heads = config.heads if name == "multihead" else 1
    head = int(size) if size.isdigit() else inputs.whole("head_dim", default=config.head_size)
    try:
        spread = pope_divisor(name, config.heads, chips)
    except KeyError:
        raise CaseError(f"the variant {variant!r} isn't known; there are multihead_dh128, multiquery_headshard and "
                        "multiquery_batchshard") from None
    model = Shape(case).planned
    model = replace(model, config=replace(config, layers=layers, kv_heads=kv_heads, head_size=head))
    token = cached(model) * inputs.positive("bytes", default=2)
    room = inputs.share("kv_share", default=0.3) * hardware.memory(case) * spread
    return Planned(room / (token * inputs.whole("batch")), f"share · memory · {spread}/({FORMULA} · batch)", 0.02)


def variant_named(case: Case) -> str:
    """By the row's id."""
    for words, variant in ((("multihead",), "multihead_dh128"), (("headshard",), "multiquery_headshard"),
                           (("batchshard",), "multiquery_batchshard")):
        if case.says(*words):
            return variant
    raise ambiguous("which layout", "variant is multihead_dh128, multiquery_headshard or multiquery_batchshard")
