"""The next token: the same on every rank, from whole logits or from shards, and distributed as it should be."""
from math import exp

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minitp.cut import Cut
from minitp.errors import ConfigError, NumericsError
from minitp.layers import Logits
from minitp.sampling import Sampling, choose, noise
from tests.mpi_world import run_threads

SIZES = [(50, 3), (7, 4), (3, 4), (23, 2), (1, 3)]              # A17: V = 50 on 3, 7 on 4, 3 on 4 (one holds nothing)
SAMPLINGS = [Sampling(), Sampling(temperature=1.0, seed=5), Sampling(temperature=0.3, top_k=4, seed=6),
             Sampling(temperature=2.0, top_k=5, top_p=0.7, seed=7), Sampling(temperature=1.0, top_k=1, seed=8),
             Sampling(temperature=1.5, top_k=1000, seed=9)]


def chosen(comm, logits, sampling, steps=1):
    """Tokens and gaps of several draws, from whole logits and from this rank's shard; and the exchanges made."""
    cut = Cut(logits.shape[-1], comm.size)
    own = slice(cut.of(comm.rank).start, cut.of(comm.rank).stop)
    draws = [[choose(Logits(logits), sampling, step, comm), choose(Logits(logits[..., own], cut), sampling, step, comm)]
             for step in range(steps)]
    return ([[c.tokens.tolist() for c in pair] for pair in draws], [[c.gaps.tolist() for c in pair] for pair in draws],
            [(e.plane, e.op, e.shape) for e in comm.recorder.events])


def chosen_loudly(comm, **arguments):
    with np.errstate(all="raise", under="ignore"):                        # (each thread has its own)
        return chosen(comm, **arguments)


def logits_of(seed: int, batch: int, vocab: int, dtype=np.float32) -> np.ndarray:
    return (3 * np.random.default_rng(seed).standard_normal((batch, 1, vocab))).astype(dtype)


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
@pytest.mark.parametrize(("vocab", "n"), SIZES)
def test_shards_give_the_token_of_whole_logits(vocab, n, sampling):
    logits, steps = logits_of(1, 2, vocab), 8
    alone = run_threads(chosen, 1, logits=logits, sampling=sampling, steps=steps)[0]
    for tokens, gaps, events in run_threads(chosen, n, logits=logits, sampling=sampling, steps=steps):
        for step, (whole, sharded) in enumerate(tokens):
            assert whole == sharded == alone[0][step][0]
            assert gaps[step][0] == gaps[step][1]
        keep = min(max(2, sampling.top_k * (not sampling.greedy)), -(-vocab // n))
        assert events == [["sample", "all_gather", [2, keep * n, 2]]] * steps        # none for whole logits
        assert sampling.candidates(Cut(vocab, n)) == keep


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_shards_give_the_token_of_whole_logits_whatever_they_are(data):
    """Few distinct values, so that ties and near ties are the rule."""
    vocab, n = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 5))
    values = st.sampled_from([-1e30, -2.0, 0.0, 0.5, np.nextafter(np.float32(0.5), np.float32(1)), 3.0, 1e30])
    logits = np.array(data.draw(st.lists(values, min_size=vocab, max_size=vocab)), np.float32)[None, None]
    top_k = data.draw(st.integers(0, 14))
    sampling = Sampling(data.draw(st.sampled_from([0.0, 1e-300, 0.01, 1.0, 50.0])), top_k,
                        data.draw(st.sampled_from([0.1, 0.9, 1.0])) if top_k else 1.0,
                        data.draw(st.integers(0, 2**63 - 1)))
    ranks = run_threads(chosen, n, logits=logits, sampling=sampling, steps=2)
    for tokens, _, _ in ranks:
        assert tokens == ranks[0][0]
        assert all(whole == sharded and 0 <= whole[0] < vocab for whole, sharded in tokens)
        if sampling.greedy:
            assert tokens[0][0] == [int(logits.argmax())]


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_ties_go_to_the_lowest_id(n):
    """Also where the ranks that hold the best are not the first, and where one rank holds several of them."""
    logits = np.array([[[0, 1, 7, 7, 0, 7, 7, 0]], [[2, 2, 2, 2, 2, 2, 2, 2]], [[0, 0, 0, 0, 0, 0, 9, 9]]], np.float32)
    for tokens, gaps, _ in run_threads(chosen, n, logits=logits, sampling=Sampling()):
        assert tokens == [[[2, 0, 6]] * 2] and gaps == [[[0.0] * 3] * 2]
    for tokens, _, _ in run_threads(chosen, n, logits=logits, sampling=Sampling(temperature=1, top_k=1)):
        assert tokens == [[[2, 0, 6]] * 2]                                # top-k too keeps the lowest of equals


@pytest.mark.parametrize("n", [1, 3])
def test_the_gap_is_the_distance_to_the_second(n):
    logits = np.array([[[1.0, 5.5, 2.0, 5.25, 0.0]]])
    for _, gaps, _ in run_threads(chosen, n, logits=logits, sampling=Sampling()):
        assert gaps == [[[0.25]] * 2]
    noisy = logits[0, 0] + 0.5 * noise(3, 0, 0, 5)                        # of a draw: with the noise
    for tokens, gaps, _ in run_threads(chosen, n, logits=logits, sampling=Sampling(temperature=0.5, seed=3)):
        assert tokens == [[[int(noisy.argmax())]] * 2] and gaps == [[[np.diff(np.sort(noisy)[-2:])[0]]] * 2]
    for _, gaps, _ in run_threads(chosen, n, logits=logits[..., :1], sampling=Sampling()):
        assert gaps == [[[float("inf")]] * 2]                             # nothing to be mistaken for


@pytest.mark.parametrize("n", [1, 4])
def test_fifty_tokens_at_temperature_one(n):
    """A45: every step the same token on all ranks, and the same at any number of ranks."""
    logits = logits_of(2, 3, 40, np.float64)
    sampling = Sampling(temperature=1.0, seed=11)
    alone = run_threads(chosen, 1, logits=logits, sampling=sampling, steps=50)[0][0]
    for tokens, _, _ in run_threads(chosen, n, logits=logits, sampling=sampling, steps=50):
        assert tokens == alone
    rows = np.array([whole for whole, _ in alone]).T
    assert all(len(set(row)) > 5 for row in rows.tolist())                # it does draw
    same = run_threads(chosen, 1, logits=np.repeat(logits[:1], 3, 0), sampling=sampling, steps=50)[0][0]
    assert len({tuple(row) for row in np.array([whole for whole, _ in same]).T.tolist()}) == 3     # equal rows differ


# --- what can be asked for -------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("asked", "message"), [
    ({"temperature": -1.0}, "temperature must be 0"), ({"temperature": float("nan")}, "temperature must be 0"),
    ({"temperature": float("inf")}, "temperature must be 0"), ({"top_k": -1}, "top-k must be 0"),
    ({"top_p": 0.0}, "top-p must lie above 0"), ({"top_p": 1.1}, "top-p must lie above 0"),
    ({"top_p": float("nan")}, "top-p must lie above 0"), ({"seed": -1}, "the seed"), ({"seed": 2**63}, "the seed")])
def test_what_makes_no_distribution_is_refused(asked, message):
    """D10: by name, before any rank computes."""
    with pytest.raises(ConfigError, match=message):
        Sampling(**asked)


def test_top_p_alone_needs_whole_logits():
    with pytest.raises(ConfigError, match="--top-k 50, or gather"):
        Sampling(temperature=1.0, top_p=0.9).check_sharded()
    for fine in (Sampling(), Sampling(top_p=0.9), Sampling(1.0, 50, 0.9), Sampling(1.0)):
        fine.check_sharded()


@pytest.mark.parametrize("temperature", [1e-5, 1e-8, 1e-300, 5e-324, 1e300])
@pytest.mark.parametrize("n", [1, 3])
def test_any_temperature_is_finite(n, temperature):
    """D10, D11: a tiny one is greedy, a huge one is uniform, and neither gives inf or NaN; top-k above V keeps all."""
    logits = np.array([[[11.0, 11.5, -70, 3, 0, 11.25, 2]]], np.float32)
    for extra in ({}, {"top_k": 3}, {"top_k": 100, "top_p": 0.999}):
        sampling = Sampling(temperature, **extra)
        for tokens, gaps, _ in run_threads(chosen_loudly, n, logits=logits, sampling=sampling, steps=12):
            assert [whole for whole, _ in tokens] == [sharded for _, sharded in tokens]
            picked = {whole[0] for whole, _ in tokens}
            if temperature > 1:
                assert len(picked) >= 3 and not np.isnan(gaps).any()
            else:
                assert picked == {1} and ("top_p" in extra or np.abs(np.array(gaps) - 0.25).max() < 1e-3)


@pytest.mark.parametrize("sampling", SAMPLINGS[:3], ids=str)
def test_nan_is_told_and_never_a_token(sampling):
    logits = logits_of(1, 1, 7)
    logits[0, 0, 5] = np.nan                                              # on the last of three shards
    with pytest.raises(NumericsError, match="hold NaN"):
        run_threads(chosen, 3, logits=logits, sampling=sampling)


# --- the distribution ------------------------------------------------------------------------------------------------

def softmax(logits: np.ndarray, temperature: float) -> np.ndarray:
    e = np.exp((logits - logits.max()) / temperature)
    return e / e.sum()


def drawn(logits: np.ndarray, sampling: Sampling, draws: int) -> np.ndarray:
    """How often each token came in so many draws: rows of one batch, each with noise of its own."""
    def body(comm):
        batch = np.broadcast_to(logits, (draws, 1, len(logits)))
        return choose(Logits(batch), sampling, 3, comm).tokens
    return np.bincount(run_threads(body, 1)[0], minlength=len(logits))


def check_frequencies(counts: np.ndarray, expected: np.ndarray) -> None:
    """Pearson's chi-square, with a bound that a right sampler passes 9,999 times in 10,000 (the seeds are fixed)."""
    draws, free = counts.sum(), (expected > 0).sum() - 1
    assert counts[expected == 0].sum() == 0
    seen = expected > 0
    chi = ((counts[seen] - draws * expected[seen]) ** 2 / (draws * expected[seen])).sum()
    assert chi < free + 3.72 * (2 * free) ** 0.5 + 8, (chi, free)


LOGITS = np.array([2.0, 1.0, 0.5, 0.0, -0.5, 1.5, 0.25, -1.0])


def kept(names: list[int], temperature: float) -> np.ndarray:
    """The softmax of those tokens alone."""
    expected = np.zeros(len(LOGITS))
    expected[names] = softmax(LOGITS[names], temperature)
    return expected


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_draws_follow_the_softmax(temperature):
    counts = drawn(LOGITS, Sampling(temperature, seed=21), 3000)
    check_frequencies(counts, softmax(LOGITS, temperature))
    with pytest.raises(AssertionError):                                   # the bound tells temperatures apart
        check_frequencies(counts, softmax(LOGITS, temperature * 1.6))


def test_draws_follow_the_softmax_of_what_is_kept():
    check_frequencies(drawn(LOGITS, Sampling(1.0, top_k=3, seed=22), 2000), kept([0, 5, 1], 1.0))
    # probabilities 0.38, 0.23, 0.14, 0.085, …: 0.7 is reached with the third, 0.38 with the first alone
    assert softmax(LOGITS, 1.0)[[0, 5]].sum() < 0.7 < softmax(LOGITS, 1.0)[[0, 5, 1]].sum()
    check_frequencies(drawn(LOGITS, Sampling(1.0, top_p=0.7, seed=23), 2000), kept([0, 5, 1], 1.0))
    assert drawn(LOGITS, Sampling(1.0, top_p=1e-9, seed=24), 100).tolist() == [100, 0, 0, 0, 0, 0, 0, 0]
    # top-k first: of the best two, 0.62 and 0.38, a top-p of 0.6 keeps one; alone it keeps two of all
    assert drawn(LOGITS, Sampling(1.0, 2, 0.6, seed=25), 100)[0] == 100
    check_frequencies(drawn(LOGITS, Sampling(1.0, top_p=0.6, seed=26), 2000), kept([0, 5], 1.0))


def test_noise_is_a_function_of_its_counter():
    """The first numbers don't depend on how many are drawn: shards and whole vocabularies see the same."""
    assert np.array_equal(noise(1, 2, 3, 10), noise(1, 2, 3, 100)[:10])
    keys = ((1, 2, 3), (2, 2, 3), (1, 3, 3), (1, 2, 4), (1, 3, 2), (2**63 - 1, 0, 0))
    assert len({noise(*key, 4).tobytes() for key in keys}) == len(keys)
    values = np.concatenate([noise(7, row, 0, 1000) for row in range(20)])
    assert abs(values.mean() - 0.5772) < 0.03 and abs((values < 0).mean() - exp(-1)) < 0.01        # Gumbel's
