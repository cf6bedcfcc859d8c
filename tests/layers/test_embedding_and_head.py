"""The table cut both ways, looked up and multiplied with."""
import numpy as np
import pytest

from minitp.comm import Partial
from minitp.context import Context
from minitp.cut import Cut
from minitp.layers import HiddenParallelHead, ParallelEmbedding, VocabParallelEmbedding, VocabParallelHead
from tests.layers import RANKS, drawn, syncs
from tests.mpi_world import run_threads

CTX = Context(np.zeros((2, 4), int), 4, np.float64)
TABLES = [(50, 7), (7, 4), (3, 2)]                                       # A17: V = 50, 7, 3
SPLITS = [(n, v, d) for v, d in TABLES for n in (*RANKS, 4)]


def part(cut: Cut, rank: int) -> slice:
    return slice(cut.of(rank).start, cut.of(rank).stop)


def looked_up(comm, v, d):
    table, = drawn(7, (v, d))
    ids = np.array([[0, v - 1, v // 2, 0], [1, 2, 0, v - 1]])             # both ends, and a token twice
    vocab, hidden = Cut(v, comm.size), Cut(d, comm.size)
    by_rows = VocabParallelEmbedding("embedding", comm, vocab.of(comm.rank))
    by_columns = ParallelEmbedding("embedding", comm, hidden)
    own_rows = {"embedding.weight": table[part(vocab, comm.rank)]}
    term = by_rows.product(ids, own_rows, CTX)
    assert isinstance(term, Partial)
    mine = np.isin(ids, vocab.of(comm.rank))
    np.testing.assert_array_equal(term.consume(comm)[0], np.where(mine[..., None], table[ids], 0.0))
    rows = by_rows.forward(ids, own_rows, CTX)
    columns = by_columns.forward(ids, {"embedding.weight": table[:, part(hidden, comm.rank)]}, CTX)
    np.testing.assert_array_equal(rows, table[ids])                       # exactly: one term, and zeros
    np.testing.assert_array_equal(columns, table[ids])
    return syncs(comm)


@pytest.mark.parametrize(("n", "v", "d"), SPLITS)
def test_an_embedding_cut_either_way_is_the_table(n, v, d):
    for events in run_threads(looked_up, n, v=v, d=d):
        assert events == ["all_reduce embedding: partial → whole",
                          "all_gather embedding: shard(-1) → whole"]


def logits(comm, v, d):
    x, table = drawn(8, (2, 4, d), (v, d))
    vocab, hidden = Cut(v, comm.size), Cut(d, comm.size)
    by_rows = VocabParallelHead("head", "head.weight", comm, vocab)
    by_columns = HiddenParallelHead("head", "embedding.weight", comm, hidden, vocab)
    own_rows = {"head.weight": table[part(vocab, comm.rank)]}
    own_columns = {"embedding.weight": table[:, part(hidden, comm.rank)]}
    assert isinstance(by_columns.product(x, own_columns, CTX), Partial)
    made = [head.forward(x, own, CTX, gathered) for head, own in ((by_rows, own_rows), (by_columns, own_columns))
            for gathered in (True, False)]
    assert [m.cut for m in made] == [None, vocab, None, vocab]            # logits say which state they are in
    assert [m.array.shape[-1] for m in made] == [v, len(vocab.of(comm.rank))] * 2          # never padded
    return [m.array for m in made], syncs(comm)


@pytest.mark.parametrize(("n", "v", "d"), SPLITS)
def test_a_head_cut_either_way_gives_the_plain_logits(n, v, d):
    x, table = drawn(8, (2, 4, d), (v, d))
    truth = np.einsum("btd,vd->btv", x, table)
    ranks = run_threads(logits, n, v=v, d=d)
    for (by_rows, _, by_columns, _), events in ranks:
        np.testing.assert_allclose(by_rows, truth, rtol=0, atol=1e-14)
        np.testing.assert_allclose(by_columns, truth, rtol=0, atol=1e-14)
        assert events == ["all_gather head: shard(-1) → whole", "all_reduce head: partial → whole",
                          "reduce_scatter head: partial → shard(-1)"]
    for way in (1, 3):
        together = np.concatenate([arrays[way] for arrays, _ in ranks], axis=-1)
        np.testing.assert_allclose(together, truth, rtol=0, atol=1e-14)
