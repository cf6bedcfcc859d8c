"""Decoding and prefill against their limit: the same matrix products, in the order of the layers, and nothing else.

Decoding reads every weight of the rank once per token, so the limit is the memory's speed as a matrix · vector product
reaches it. What lies between the two is norms, attention, Python, collectives and waiting.
"""
from collections.abc import Mapping
from typing import Any

import numpy as np

from minitp.bench.measure import alternate, check_rounds, every_rank, facts, median, own_recorder, thread_ranks
from minitp.bench.messages import recording_cost
from minitp.comm import Communicator
from minitp.context import KVCache, plan_pass
from minitp.errors import ConfigError
from minitp.generate import Generation, Request
from minitp.model import Transformer
from minitp.trace.merge import collect, run_info
from minitp.trace.recorder import Recorder
from minitp.trace.summary import total
from minitp.trace.timeline import Timeline


def decode(model: Transformer, weights: Mapping[str, Any], *, prompt: int = 16, tokens: int = 10, rounds: int = 7,
           dtype: Any = np.float32) -> list[dict[str, Any]]:
    """One row: `rounds` rounds of `tokens` decoded tokens, each followed by the same products alone, `tokens` times."""
    check_rounds(rounds)
    needed = prompt + tokens * (rounds + 1) + 1
    _check_context(model, needed, f"a prompt of {prompt} and {rounds + 1} rounds of --tokens {tokens}")
    request = Request((tuple(_ids(model, prompt)),), max_tokens=needed - prompt)
    generation = Generation(model, dict(weights), request, dtype=dtype)
    steps = iter(generation)
    products = Products(model, weights, 1, dtype)
    with own_recorder(model.group) as recorder:
        next(steps)                                                              # the prompt's own pass
        work, limit = alternate(model.group, lambda: [next(steps) for _ in range(tokens)],
                                lambda: products.run(tokens), rounds)
    row = facts(model.group, "decode") | {"prompt": prompt} | _model_facts(model, products, dtype)
    row |= _compared(model.group, row, work / tokens, limit / tokens, 1, products)
    row |= {"rounds": rounds, "tokens_per_round": tokens}
    row["kv_cache_bytes"] = int(every_rank(model.group, [generation.cache.nbytes]).max())
    row |= _meetings(model.group, recorder, "decode", tokens * (rounds + 1), row["ms_per_token"])
    return [row]


def prefill(model: Transformer, weights: Mapping[str, Any], *, tokens: int = 128, rounds: int = 5,
            dtype: Any = np.float32) -> list[dict[str, Any]]:
    """One row: `rounds` passes over a prompt of `tokens` tokens, each followed by the same products alone."""
    check_rounds(rounds)
    _check_context(model, tokens, f"--tokens {tokens}")
    group, ids = model.group, np.array([_ids(model, tokens)])
    positions, last = np.arange(tokens)[None], np.array([tokens - 1])
    products = Products(model, weights, tokens, dtype)

    def one_pass() -> None:
        cache = KVCache(1, tokens, dtype, group.arrays)
        ctx = plan_pass(model.config, positions, dtype=dtype, arrays=group.arrays, last=last, cache=cache)
        with group.recorder.mark("prefill", 0):
            model.forward(ids, weights, ctx)

    with own_recorder(group) as recorder:
        work, limit = alternate(group, one_pass, products.run, rounds)
    row = facts(group, "prefill") | {"prompt": tokens} | _model_facts(model, products, dtype)
    row |= _compared(group, row, work, limit, tokens, products)
    row |= {"rounds": rounds, "tokens_per_round": tokens}
    row |= _meetings(group, recorder, "prefill", rounds + 1, row["ms_per_pass"])
    return [row]


class Products:
    """Every product of a pass over `tokens` tokens on this rank, in the order of the layers; inputs are made before."""

    def __init__(self, model: Transformer, weights: Mapping[str, Any], tokens: int, dtype: Any):
        names = [site + ".weight" for block in model.blocks for site in (
            block.attention.qkv.site, block.attention.o.site, block.mlp.up.site, block.mlp.down.site)]
        matrices = [(weights[name], tokens) for name in names] + [(weights[model.head.weight], 1)]
        draw, arrays = np.random.default_rng(0), model.group.arrays
        made = {(rows, w.shape[1]): arrays.from_host(draw.standard_normal((rows, w.shape[1])).astype(dtype))
                for w, rows in matrices}
        self.pairs = [(made[rows, w.shape[1]], w) for w, rows in matrices]
        self.nbytes = sum(w.nbytes for w, _ in matrices)
        self.operations = sum(2 * rows * w.size for w, rows in matrices)

    def run(self, times: int = 1) -> None:
        for _ in range(times):
            for x, w in self.pairs:
                x @ w.T


def _ids(model: Transformer, count: int) -> list[int]:
    """Some prompt: what is read costs the same whatever it says."""
    return [7 * i % model.config.vocab for i in range(count)]


def _check_context(model: Transformer, needed: int, what: str) -> None:
    if needed > model.config.positions:
        raise ConfigError(f"{what} need {needed} positions, and the context of {model.config.name or 'this model'} "
                          f"holds {model.config.positions}")


def _model_facts(model: Transformer, products: Products, dtype: Any) -> dict[str, Any]:
    """`weight_bytes`: what a pass reads on the rank that reads most."""
    most = int(every_rank(model.group, [products.nbytes]).max())
    return {"model": model.config.name, "dtype": str(np.dtype(dtype)), "weight_bytes": most}


def _compared(group: Communicator, row: dict[str, Any], work: np.ndarray, limit: np.ndarray, tokens: int,
              products: Products) -> dict[str, Any]:
    """Medians and spread of seconds per pass, each of the slowest rank. Thread ranks give times, no speed."""
    unit = "token" if tokens == 1 else "pass"
    speed = not thread_ranks(group)
    found = {f"ms_per_{unit}": median(work) * 1e3, f"ms_per_{unit}_min": float(work.min()) * 1e3,
             f"ms_per_{unit}_max": float(work.max()) * 1e3, f"limit_ms_per_{unit}": median(limit) * 1e3,
             "tokens_per_second": tokens / median(work) if speed else None,
             "share_of_limit": median(limit) / median(work) if speed else None}
    if tokens == 1:
        return found | {"gigabytes_per_second": row["weight_bytes"] / median(work) / 1e9 if speed else None,
                        "limit_gigabytes_per_second": row["weight_bytes"] / median(limit) / 1e9 if speed else None}
    operations = float(every_rank(group, [products.operations]).max())
    return found | {"gigaflops": operations / median(work) / 1e9 if speed else None,
                    "limit_gigaflops": operations / median(limit) / 1e9 if speed else None}


def _meetings(group: Communicator, recorder: Recorder, phase: str, passes: int, milliseconds: float) -> dict[str, Any]:
    """How often the ranks met per pass, how much of their time they waited, and what recording it cost."""
    trace = collect(group, recorder, run_info(group))
    summed = None
    if trace is not None:
        whole = total(Timeline.of(trace), phases=[phase])
        summed = [whole.sync_points / passes, whole.waiting / whole.time, whole.moving / whole.time]
    points, waiting, moving = group.share(summed, site="bench", reason="tell every rank how long ranks waited")
    cost = float(every_rank(group, [recording_cost()]).max())
    return {"sync_points": points, "waiting_share": waiting if group.size > 1 else None,
            "moving_share": moving if group.size > 1 else None, "recording_us": cost,
            "recording_share": points * cost / 1e3 / milliseconds}
