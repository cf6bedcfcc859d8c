"""Place the cuts: every choice has consistent states, and its syncs make the pieces add up to the whole computation."""
from dataclasses import replace
from itertools import product as every

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minitp.comm import Partial
from minitp.comm.states import SLICE, TRANSITIONS, WHOLE, admits, product
from minitp.config import TINY, ModelConfig
from minitp.cut import Cut
from minitp.errors import ConfigError
from minitp.layers.attention import softmax
from minitp.layers.mlp import activate
from minitp.placement import Placement
from minitp.trace.predict import GenerationPlan, forward_pass
from minitp.view.cut_rows import rows, table
from minitp.view.cuts import (
    ITEM_BYTES,
    MATRICES,
    PARTS,
    USUAL,
    Choice,
    chains,
    comparison,
    cut_by,
    place,
    share_rows,
    sync_rows,
    verdict,
)
from tests.layers import drawn
from tests.mpi_world import run_threads
from tests.test_placement import GPT2, LLAMA_405B, SMOLLM2_135M

SPLITS = ("columns", "rows", "whole")
ODD = ModelConfig(hidden=7, layers=2, heads=3, kv_heads=3, head_size=2, ffn=5, vocab=11, positions=8, rotary=None,
                  norm="layer", activation="gelu", gated=True)
COPIED = replace(ODD, heads=4, kv_heads=2)              # 4 heads on 3 ranks: kv head 0 on ranks 0 and 1


# --- every choice, by its states -------------------------------------------------------------------------------------

CHOICES = [Choice(*splits) for splits in every(SPLITS, repeat=len(MATRICES))]


@pytest.mark.parametrize("config", [TINY, COPIED, GPT2], ids=["tiny", "copied", "gpt2"])
def test_the_states_of_every_choice_are_consistent(config):
    """Rule by rule: a step gets what it admits, a change is one of the collectives, the end is whole."""
    placement = Placement(config, 3)
    for choice in CHOICES:
        for part, links in chains(placement, choice).items():
            state = WHOLE
            for link in links:
                assert link.before == state
                if link.change is None:
                    assert link.taken == state
                elif link.change == SLICE:
                    assert (state.kind, link.taken.kind) == ("whole", "shard")
                else:
                    assert TRANSITIONS[link.change] == (state.kind, link.taken.kind)
                if link.step.split is None:
                    assert admits(link.step.rule, link.taken)
                    state = link.taken
                else:
                    state = product(link.taken, link.step.split)
                assert link.after == state
            assert state == WHOLE, (choice, part)


@settings(max_examples=25)
@given(st.sampled_from(CHOICES), st.integers(1, 9), st.sampled_from([TINY, COPIED, GPT2, SMOLLM2_135M]))
def test_numbers_and_words_belong_together(choice, ranks, config):
    plan, usual = place(config, ranks, choice, tokens=3), place(config, ranks, tokens=3)
    assert plan.per_pass == config.layers * plan.per_layer + sum(s.part in ("embedding", "head") for s in plan.syncs)
    assert plan.payload == sum(s.payload * s.times for s in plan.syncs)
    assert all(sync.why and sync.site for sync in plan.syncs)
    assert len(sync_rows(plan)) == len(plan.syncs) and len(share_rows(plan)) == ranks
    gates = [row for part in PARTS for row in rows(plan, part) if row.kind == "sync"]
    assert [row.why for row in gates] == [sync.why for sync in plan.syncs]
    assert f"{plan.per_layer} sync" in verdict(plan, usual)
    assert comparison(plan, usual)[0]["yours"] == str(plan.per_layer)
    assert table(plan)


@pytest.mark.parametrize("config", [TINY, SMOLLM2_135M, GPT2, LLAMA_405B], ids=["tiny", "smollm2", "gpt2", "405b"])
@pytest.mark.parametrize("embedding", ["vocab", "hidden"])
def test_the_usual_choice_is_the_closed_form(config, embedding):
    """2L + 2: op, place, states, shape and bytes as minitp's own forward pass records them."""
    choice = USUAL if embedding == "vocab" else Choice(embedding="columns", head="rows" if config.tied else "columns")
    plan = place(config, 4, choice, tokens=5)
    generation = GenerationPlan(Placement(config, 4, embedding), "slice", "float32", 1, [], 0)
    found = []
    for parts, layers in ((("embedding",), 1), (("attention", "mlp"), config.layers), (("head",), 1)):
        found += [(s.op, s.site.replace("*", str(layer)), s.before, s.after, s.shape, s.payload)
                  for layer in range(layers) for s in plan.syncs if s.part in parts]
    expected = forward_pass(generation, "prefill", 0, 5)
    assert found == [(e.op, e.site, e.before, e.after, e.shape, e.payload) for e in expected]
    assert plan.per_pass == 2 * config.layers + 2


@pytest.mark.parametrize("config", [TINY, COPIED, GPT2, SMOLLM2_135M], ids=["tiny", "copied", "gpt2", "smollm2"])
@pytest.mark.parametrize("ranks", [1, 3, 5])
def test_the_usual_choice_holds_what_the_placement_says(config, ranks):
    placement = Placement(config, ranks)
    plan = place(config, ranks)
    assert [share.weights for share in plan.shares] == [4 * placement.elements(rank) for rank in range(ranks)]
    assert [share.cache for share in plan.shares] == [
        2 * 4 * len(placement.kv_heads(rank)) * config.head_size * config.layers for rank in range(ranks)]


@pytest.mark.parametrize(("changed", "per_layer", "ops"), [
    ({"gate_up": "rows"}, 3, ["reduce_scatter"]),                          # before the activation, 2F wide
    ({"gate_up": "rows", "down": "columns"}, 3, ["all_reduce", "all_gather"]),
    ({"gate_up": "rows", "down": "whole"}, 2, ["all_reduce"]),
    ({"down": "columns"}, 3, ["all_gather", "all_gather"]),
    ({"gate_up": "whole"}, 2, ["all_reduce"]),
    ({"gate_up": "whole", "down": "whole"}, 1, []),
])
def test_what_other_choices_of_the_mlp_need(changed, per_layer, ops):
    plan = place(TINY, 4, replace(USUAL, **changed))
    assert plan.per_layer == per_layer
    assert [s.op for s in plan.syncs if s.part == "mlp"][:len(ops)] == ops
    if changed.get("gate_up") == "rows":
        sync = next(s for s in plan.syncs if s.site == "layers.*.mlp.gate_up")
        assert sync.shape[-1] == 2 * TINY.ffn and "act(a + b) ≠ act(a) + act(b)" in sync.why


def test_copied_kv_heads_are_not_scattered():
    """No reduce-scatter gives one piece to two ranks: q, k and v are added on all of them."""
    ops = {ranks: next(s.op for s in place(COPIED, ranks, replace(USUAL, qkv="rows")).syncs if s.part == "attention")
           for ranks in (2, 3)}
    assert ops == {2: "reduce_scatter", 3: "all_reduce"}


def test_whole_everywhere_syncs_nothing_and_holds_everything_on_every_rank():
    plan, alone = place(SMOLLM2_135M, 4, Choice(*["whole"] * 6)), place(SMOLLM2_135M, 1)
    assert plan.per_pass == 0 and {s.weights for s in plan.shares} == {alone.shares[0].weights}
    assert plan.shares[0].operations == alone.shares[0].operations
    assert "0 syncs per layer, 2 fewer than usual" in verdict(plan, place(SMOLLM2_135M, 4))


def test_a_tied_table_that_the_head_cuts_otherwise_is_held_in_two_pieces():
    v, d = SMOLLM2_135M.vocab, SMOLLM2_135M.hidden
    base = place(SMOLLM2_135M, 4).shares[0].weights
    two = place(SMOLLM2_135M, 4, replace(USUAL, head="rows")).shares[0].weights
    whole = place(SMOLLM2_135M, 4, replace(USUAL, head="whole")).shares[0].weights
    assert two - base == 4 * v * d // 4 and whole - base == 4 * (v * d - v * d // 4)


def test_what_cannot_be_placed_is_refused():
    with pytest.raises(ConfigError, match="side by side"):
        place(replace(TINY, parallel_block=True), 2)
    for wrong in ({"tokens": 0}, {"dtype": "int3"}):
        with pytest.raises(ConfigError, match="at least 1 token"):
            place(TINY, 2, **wrong)
    assert set(ITEM_BYTES) >= {"float32", "float64"}


# --- every choice, by its numbers ------------------------------------------------------------------------------------
# Each rank does what the plan says with the pieces that the placement gives it: real partial sums, real collectives.

WEIGHTS = ("q", "k", "v", "o", "gate", "up", "down", "embedding", "head")


def whole_weights(config):
    """name → the whole matrix as the mathematics has it, (in, out)."""
    placement = Placement(config, 1)
    names = [p.name for p in placement.parameters
             if p.name.split(".")[-2] in WEIGHTS and not p.name.startswith("layers.1")]
    arrays = drawn(3, *(placement.parameter(name).shape for name in names))
    return {name.split(".")[-2]: array for name, array in zip(names, arrays, strict=True)}


def heads_of(config, qkv, query_heads, kv_heads):
    """softmax(q kᵀ) v of these heads; the columns of qkv are theirs: q, then k, then v."""
    h, k, e = len(query_heads), len(kv_heads), config.head_size
    q, key, value = np.split(qkv, [h * e, (h + k) * e], axis=-1)
    out = []
    for i, head in enumerate(query_heads):
        j = kv_heads.index(head // config.heads_per_kv)
        mine, kv = slice(i * e, (i + 1) * e), slice(j * e, (j + 1) * e)
        out.append(softmax(q[..., mine] @ key[..., kv].swapaxes(-1, -2), np) @ value[..., kv])
    return np.concatenate(out, -1) if out else np.zeros((*qkv.shape[:-1], 0))


def norm(x):
    return (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True)


def whole_answer(config, part, x, w):
    if part == "embedding":
        return x @ w["embedding"]
    if part == "head":
        return norm(x) @ w["head"].T
    n = norm(x)
    if part == "attention":
        qkv = np.concatenate([n @ w[name].T for name in "qkv"], -1)
        return x + heads_of(config, qkv, range(config.heads), range(config.kv_heads)) @ w["o"].T
    return x + (activate(n @ w["gate"].T, config.activation, np) * (n @ w["up"].T)) @ w["down"].T


class Walker:
    """One rank's walk along a chain; `array` is a NumPy array, or a Partial where the plan says partial sum."""

    def __init__(self, comm, plan, w):
        self.comm, self.plan, self.w, self.config = comm, plan, w, plan.placement.config
        self.placement, self.rank = plan.placement, comm.rank

    def columns(self, axis, step):
        """For each rank, which columns of the array before `step` are its own, by number."""
        held = [np.array(self.placement.held(axis, rank), int) for rank in range(self.comm.size)]
        if step == "heads":                        # q, k, v side by side
            c, kv = self.config, [np.array(self.placement.held("kv_head", r), int) for r in range(self.comm.size)]
            q, k = c.heads * c.head_size, c.kv_heads * c.head_size
            return [np.concatenate([h, q + i, q + k + i]) for h, i in zip(held, kv, strict=True)]
        if step == "activation":                   # gate and up side by side
            return [np.concatenate([h, self.config.ffn + h]) for h in held]
        return held

    def change(self, link, array):
        if link.change is None:
            return array
        own = self.columns(link.axis, link.step.name)
        if link.change == SLICE:
            return array[..., own[self.rank]]
        how = {"site": "a", "reason": "the plan says so"}
        if link.change == "all_reduce":
            return self.comm.all_reduce(array, **how)
        order = np.concatenate(own)
        cut = Cut(len(order), self.comm.size, ends=tuple(int(n) for n in np.cumsum([len(o) for o in own])))
        if link.change == "reduce_scatter":        # rank after rank, so that each rank's own lie side by side
            return self.comm.reduce_scatter(array @ np.eye(len(order))[:, order], axis=-1, cut=cut, **how)
        gathered = self.comm.all_gather(array, axis=-1, cut=cut, **how)
        return gathered[..., np.argsort(order)]

    def matrix(self, name, split):
        """This rank's piece of a matrix, (in, out)."""
        own = cut_by(replace(self.placement.parameter(self.full_name(name))), self.plan.choice)
        assert (own.cut_axis is None) == (split == "whole")
        piece = self.w[name][self.placement.slices(own, self.rank)]
        return piece if name == "embedding" else piece.T

    def full_name(self, name):
        return next(p.name for p in self.placement.parameters if p.name.split(".")[-2] == name)

    def step(self, link, array):
        step, name = link.step, link.step.name
        if step.split is not None:
            names = {"qkv": ("q", "k", "v"), "gate_up": ("gate", "up")}.get(name, (name,))
            y = np.concatenate([array @ self.matrix(one, step.split) for one in names], -1)
            return Partial(y, self.comm) if link.after.kind == "partial" else y
        if name == "norm":
            return norm(array)
        if name == "heads":
            mine = link.taken.kind == "shard"
            query = self.placement.heads.of(self.rank) if mine else range(self.config.heads)
            kv = self.placement.kv_heads(self.rank) if mine else range(self.config.kv_heads)
            return heads_of(self.config, array, query, kv)
        if name == "activation":
            gate, up = np.split(array, 2, axis=-1)
            return activate(gate, self.config.activation, np) * up
        return array

    def walk(self, part, x):
        array = x
        for link in self.plan.chains[part]:
            array = self.step(link, self.change(link, array))
            assert isinstance(array, Partial) == (link.after.kind == "partial")
        return x + array if part in ("attention", "mlp") else array


def walked(comm, config, choices, w, inputs):
    answers = []
    for choice in choices:
        walker = Walker(comm, place(config, comm.size, choice), w)
        before = len(comm.recorder.events)
        answers.append([walker.walk(part, inputs[part]) for part in PARTS])
        sent = [e.op for e in comm.recorder.events[before:] if e.plane == "data"]
        assert sent == [s.op for s in walker.plan.syncs]
    return answers


# both matrices of a part in every way; the parts are independent, as each begins and ends whole
NUMERIC = [Choice(a, b, a, b, b, a) for a in SPLITS for b in SPLITS]


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
@pytest.mark.parametrize("config", [ODD, COPIED], ids=["odd", "copied"])
def test_with_the_syncs_of_every_choice_the_pieces_are_the_whole(config, ranks):
    w = whole_weights(config)
    x, words = drawn(9, (2, 4, config.hidden))[0], np.eye(config.vocab)[[[1, 4, 10, 0], [3, 3, 7, 9]]]
    inputs = {"embedding": words, "attention": x, "mlp": x, "head": x}
    truth = [whole_answer(config, part, inputs[part], w) for part in PARTS]
    for answers in run_threads(walked, ranks, config=config, choices=NUMERIC, w=w, inputs=inputs):
        for choice, found in zip(NUMERIC, answers, strict=True):
            for part, mine, whole in zip(PARTS, found, truth, strict=True):
                np.testing.assert_allclose(mine, whole, rtol=0, atol=1e-12, err_msg=f"{part}: {choice}")
