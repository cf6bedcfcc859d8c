"""The puzzles: solutions within budget on several seeds, blanks, typical mistakes with their words, measuring."""
import runpy
import textwrap

import jupytext
import numpy as np
import pytest

import minitp
from minitp.comm.states import WHOLE, shard
from minitp.errors import ConfigError
from minitp.lesson import pictures, puzzle
from minitp.lesson.puzzles import judge, puzzle_named, puzzles
from minitp.lesson.puzzles.base import Budget, Mistake, Puzzle, World
from minitp.lesson.puzzles.judge import FULL, RIGHT, judged
from minitp.lesson.puzzles.spent import ALLOWANCE
from minitp.lesson.puzzles.values import same, wrong
from minitp.lesson.runs import run
from tests.lessons.notebooks import LESSONS

SOLUTIONS = runpy.run_path(str(LESSONS / "solutions" / "puzzles.py"))["SOLUTIONS"]
SCRIPT = LESSONS / "puzzles.py"
NAMES = list(puzzles())
SEEDS = (0, 1, 2)
QUICK_AND_SLOW = (SEEDS[0], *(pytest.param(seed, marks=pytest.mark.slow) for seed in SEEDS[1:]))


def squeezed(text: str) -> str:
    return " ".join(text.split())


# --- every puzzle --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", QUICK_AND_SLOW)
def test_solution_is_right_and_within_budget(name, seed):
    found = judged(puzzle_named(name), SOLUTIONS[name], seed)
    assert (found.status, found.points) == ("solved", FULL), found.words


@pytest.mark.parametrize("name", NAMES)
def test_blank_is_no_mistake_and_no_points(name):
    namespace = {}
    exec(puzzle_named(name).blank, namespace)
    found = judged(puzzle_named(name), namespace[puzzle_named(name).function])
    assert (found.status, found.points) == ("blank", 0)


@pytest.mark.parametrize("name", NAMES)
def test_worlds_follow_the_seed_and_divide_unevenly(name):
    asked = puzzle_named(name)
    worlds = [asked.drawn(seed) for seed in range(8)]
    again = asked.drawn(3)
    assert all(map(same, worlds[3].truth, again.truth)) and worlds[3].budget == again.budget
    assert len({world.budget for world in worlds}) > 1
    for world in worlds:
        assert len(world.inputs) == len(world.truth) > 1
        assert all(tuple(given) == asked.arguments for given in world.inputs)
        assert wrong(world, world.truth) == []


@pytest.mark.parametrize("name", NAMES)
def test_every_known_mistake_is_met_by_its_own_words(name):
    """In one of the worlds at least: where shares happen to be even, two mistakes may be the same."""
    met, wanted = set(), set()
    for seed in range(6):
        world = puzzle_named(name).drawn(seed)
        wanted.add(max(range(len(world.mistakes)), default=0))
        for number, mistake in enumerate(world.mistakes):
            if not all(map(same, mistake.results, world.truth)):
                words = wrong(world, mistake.results)
                assert words
                met.update([number] if words == [mistake.words] else [])
    assert met == set(range(max(wanted) + 1))


@pytest.mark.parametrize("name", NAMES)
def test_notebook_has_its_story_and_its_blank(name):
    book = jupytext.read(SCRIPT)
    prose = " ".join(squeezed(cell.source) for cell in book.cells if cell.cell_type == "markdown")
    asked = puzzle_named(name)
    assert f"## {NAMES.index(name) + 1} · {asked.title}" in prose
    assert squeezed(asked.story) in prose
    wanted = f'{asked.blank}\n\n\npuzzle("{name}", {asked.function})'
    assert wanted in [cell.source for cell in book.cells if cell.cell_type == "code"]


def test_there_is_a_solution_for_each_and_for_nothing_else():
    assert list(SOLUTIONS) == NAMES
    assert len({asked.function for asked in puzzles().values()}) == len(NAMES)


# --- typical mistakes ----------------------------------------------------------------------------------------------


def summed(tp, array):
    return tp.all_reduce(minitp.Partial(array, tp), site="here", reason="to see what happens")


def bias_in_every_term(tp, x_p, W_p, b):
    return summed(tp, x_p @ W_p.T + b)


def bias_never(tp, x_p, W_p, b):
    return summed(tp, x_p @ W_p.T)


def bias_unsummed(tp, x_p, W_p, b):
    return x_p @ W_p.T + b


def bias_of_maxima(tp, x_p, W_p, b):
    return tp.all_reduce_max(x_p @ W_p.T, site="here", reason="to see what happens")


def qkv_as_one(tp, x, W_qkv, H):
    rows = minitp.Cut(H, tp.size).times(len(W_qkv) // H).of(tp.rank)
    return tuple(np.split(x @ W_qkv[rows.start:rows.stop].T, 3, axis=1))


def qkv_through_heads(tp, x, W_qkv, H):
    rows = minitp.Cut(len(W_qkv) // 3, tp.size).of(tp.rank)
    return tuple(x @ W[rows.start:rows.stop].T for W in np.split(W_qkv, 3))


def gate_up_as_one(tp, x, W_gu, W_down_p):
    rows = minitp.Cut(len(W_gu) // 2, tp.size).times(2).of(tp.rank)
    gate, up = np.split(x @ W_gu[rows.start:rows.stop].T, 2, axis=1)
    return summed(tp, gate / (1 + np.exp(-gate)) * up @ W_down_p.T)


def silu_on_up(tp, x, W_gu, W_down_p):
    rows, F = minitp.Cut(len(W_gu) // 2, tp.size).of(tp.rank), len(W_gu) // 2
    gate, up = x @ W_gu[rows.start:rows.stop].T, x @ W_gu[F + rows.start:F + rows.stop].T
    return summed(tp, up / (1 + np.exp(-up)) * gate @ W_down_p.T)


def f_and_g_swapped(tp, x, dy, W_up_p, W_down_p):
    h = np.maximum(summed(tp, x.copy()) @ W_up_p.T, 0)
    return h @ W_down_p.T, np.where(h > 0, summed(tp, dy.copy()) @ W_down_p, 0) @ W_up_p


def g_alone(tp, x, dy, W_up_p, W_down_p):
    h = np.maximum(x @ W_up_p.T, 0)
    return summed(tp, h @ W_down_p.T), np.where(h > 0, dy @ W_down_p, 0) @ W_up_p


def activation_forgotten(tp, x, dy, W_up_p, W_down_p):
    return summed(tp, np.maximum(x @ W_up_p.T, 0) @ W_down_p.T), summed(tp, dy @ W_down_p @ W_up_p)


@pytest.mark.parametrize("name, fn, words", [
    ("bias-once", bias_in_every_term, "times, once with each rank's term"),
    ("bias-once", bias_never, "b is missing"),
    ("bias-once", bias_unsummed, "the state is still partial"),
    ("bias-once", bias_of_maxima, "not all_reduce_max"),
    ("qkv-cut", qkv_as_one, "cut as one"),
    ("qkv-cut", qkv_through_heads, "splits a head over two ranks"),
    ("gate-up-cut", gate_up_as_one, "cut as one"),
    ("gate-up-cut", silu_on_up, "silu acts on up"),
    ("f-and-g", f_and_g_swapped, "at each other's place"),
    ("f-and-g", g_alone, "dx is each rank's own term"),
    ("f-and-g", activation_forgotten, "as if it were not there"),
], ids=lambda part: getattr(part, "__name__", ""))
def test_a_typical_mistake_has_its_words(name, fn, words):
    for seed in SEEDS:
        found = judged(puzzle_named(name), fn, seed)
        assert (found.status, found.points) == ("wrong", 0)
        assert [words in line for line in found.words] == [True], found.words


# --- a puzzle of this test's own: what the judge says ----------------------------------------------------------------

SIZE = 10_000                                    # numbers of y: 80 kB, many times what Python's own objects take


def tiny(rng):
    ranks = int(rng.integers(2, 4))
    parts = [rng.normal(size=SIZE) for _ in range(ranks)]
    y = sum(parts)
    return World(inputs=[{"x": part} for part in parts], truth=[y] * ranks,
                 budget=Budget(sync_points=1, payload=y.nbytes, memory=2 * y.nbytes),
                 mistakes=[Mistake([y] * ranks, "never said: it is the truth")])


SUM = Puzzle(name="sum-up", title="Sum up", story="", arguments=("x",), world=tiny)


def right(tp, x):
    return summed(tp, x.copy())


def said(fn, seed=0, deadline=5.0):
    found = judged(SUM, fn, seed, deadline)
    return found.status, found.points, "\n".join(found.words)


def test_right_within_budget_is_ten_and_says_why():
    status, points, words = said(right)
    assert (status, points) == ("solved", 10)
    assert "6 points" in words and "2 points" in words


def twice(tp, x):
    half = summed(tp, x / 2)
    return half + summed(tp, x / 2)


def by_all_gather(tp, x):
    whole = tp.all_gather(x, axis=0, cut=minitp.Cut(tp.size * SIZE, tp.size), site="all", reason="see all terms")
    return whole.reshape(tp.size, SIZE).sum(axis=0)


def hoarding(tp, x):
    kept = [x + number for number in range(4)]
    return right(tp, x) + 0 * kept[0]


def by_messages(tp, x):
    total = x.copy()
    for step in range(1, tp.size):
        total += tp.exchange(x, to=(tp.rank + step) % tp.size, shape=x.shape, dtype=x.dtype,
                             source=(tp.rank - step) % tp.size, site="ring", reason="see the others' terms")
    return total


def under_the_counter(tp, x):
    return tp.transport.all_reduce(x, in_place=False)


def unrecorded(tp, x):
    with tp.recorder.pause():
        return right(tp, x)


@pytest.mark.parametrize("fn, points, words", [
    (twice, RIGHT, ["sync points: 2, at most 1: over budget", "160 kB, at most 80 kB", "all_reduce at here"]),
    (by_all_gather, RIGHT + 2, ["bytes: ", "over budget", "all_gather at all"]),
    (hoarding, FULL - 1, ["memory: rank ", "over budget, 0 of 1 point"]),
    (by_messages, RIGHT + 1, ["message", "in messages"]),
    (under_the_counter, RIGHT + 1, ["aren't on record"]),
    (unrecorded, RIGHT + 1, ["aren't on record"]),
], ids=lambda part: getattr(part, "__name__", ""))
def test_over_budget_costs_its_points_and_says_what(fn, points, words):
    status, got, text = said(fn)
    assert (status, got) == ("over", points), text
    assert all(word in text for word in words), text


@pytest.mark.parametrize("fn, words", [
    (lambda tp, x: 2.5 * right(tp, x), "2.5 times what it should be"),
    (lambda tp, x: minitp.Partial(x, tp), "returned a Partial"),
    (lambda tp, x: right(tp, x)[:7], "has the shape 7; it should be"),
    (lambda tp, x: right(tp, x) if tp.rank else right(tp, x) + 1, "is right on rank"),
    (lambda tp, x: tp.reduce(minitp.Partial(x, tp), root=1, site="a", reason="b"), "returned nothing: None"),
    (lambda tp, x: "y", "returned a str"),
    (lambda tp, x: right(tp, x) * np.nan, "NaN"),
    (lambda tp, x: x * x, "right shape and wrong numbers"),
    (lambda tp, x: right(tp, x).astype(np.float32).astype(float), "wrong numbers"),
])
def test_a_wrong_value_is_described(fn, words):
    status, points, text = said(fn)
    assert (status, points) == ("wrong", 0)
    assert words in text and "Asked for is y in the state whole" in text


def late(tp, x):
    return None if tp.rank else right(tp, x)


def endless(tp, x):
    while tp.rank:
        pass
    return right(tp, x)


def leaving(how):
    def leave(tp, x):
        raise how
    return leave


@pytest.mark.parametrize("fn, words", [
    (lambda tp, x: 1 / 0, "ZeroDivisionError"),
    (lambda tp: 1, "TypeError"),
    (late, "has returned"),
    (endless, "longer than its 0.5 s"),
    (leaving(SystemExit("enough")), "enough"),
    (leaving(SystemExit(0)), "sys.exit() ends a rank without a result"),
    (leaving(KeyboardInterrupt()), "itself raised KeyboardInterrupt"),
], ids=["raises", "arguments", "late", "endless", "exits", "exits with 0", "interrupts"])
def test_an_attempt_that_does_not_end_well_says_why(fn, words):
    status, points, text = said(fn, deadline=0.5 if fn is endless else 5.0)
    assert (status, points) == ("failed", 0)
    assert words in text


@pytest.mark.parametrize("how", [AssertionError, KeyboardInterrupt])
def test_right_once_and_not_again_is_no_solution(how):
    calls = []

    def once(tp, x):
        calls.append(tp.rank)
        if len(calls) > tp.size:
            raise how
        return right(tp, x)

    status, points, text = said(once)
    assert (status, points) == ("failed", 0) and "a second time" in text


def test_arguments_may_have_other_names():
    assert said(lambda group, mine: right(group, mine))[1] == FULL


def test_inputs_are_a_rank_s_own():
    def spoiling(tp, x):
        total = right(tp, x)
        x[:] = 0
        return total

    assert said(spoiling)[1] == FULL
    assert said(spoiling)[1] == FULL


def test_several_results_are_told_apart_by_name():
    world = World(inputs=[{}, {}], truth=[(np.arange(3.0), np.arange(2.0)), (np.arange(3.0), np.arange(2.0, 4))],
                  budget=Budget(sync_points=0, payload=0, memory=0), state=(WHOLE, shard(0)), names=("y", "z_p"))
    assert wrong(world, world.truth) == []
    assert wrong(world, [world.truth[0], (np.arange(3.0), np.arange(2.0))])[0].startswith("z_p is right on rank 0")
    assert "shard(0)" in wrong(world, [world.truth[0], (np.arange(3.0), np.arange(2.0))])[0]
    assert "asked for are 2 things" in wrong(world, [np.arange(3.0)] * 2)[0]


def test_memory_is_the_same_every_time_and_that_of_the_hungriest_rank():
    def uneven(tp, x):
        kept = np.ones((1 + 3 * tp.rank, SIZE))
        return right(tp, x) + 0 * kept[0]

    found = [judged(SUM, uneven, 0).spent for _ in range(4)]
    assert {spent.hungriest for spent in found} == {SUM.drawn(0).ranks - 1}
    spread = max(spent.memory for spent in found) - min(spent.memory for spent in found)
    assert spread < ALLOWANCE / 4
    assert found[0].memory > (1 + 3 * found[0].hungriest) * SIZE * 8


# --- what a reader sees ----------------------------------------------------------------------------------------------


def test_blank_says_so_and_draws_nothing(capsys):
    puzzle("bias-once", lambda *_args, **_more: None)
    assert capsys.readouterr().out == "· A bias, once: still blank.\n"


def test_an_attempt_shows_points_and_timeline(capsys):
    puzzle("bias-once", SOLUTIONS["bias-once"], seed=2)
    out = capsys.readouterr().out
    assert out.startswith(f"✓ A bias, once: {FULL} of {FULL} points.")
    assert "Picture: A lane over time" in out and "all_reduce at y" in out
    puzzle("bias-once", bias_never)
    assert capsys.readouterr().out.startswith("✗ A bias, once: 0 of ")


def test_an_attempt_that_fails_shows_how_far_it_came(capsys):
    def stops(tp, x_p, W_p, b):
        summed(tp, x_p @ W_p.T)
        if tp.rank == 1:
            raise ValueError("a typo")
        summed(tp, x_p)

    puzzle("bias-once", stops)
    out = capsys.readouterr().out
    assert "a typo" in out and "Picture: A lane over time" in out and "never ended" in out


def test_unknown_puzzles_and_calls_are_refused():
    with pytest.raises(ConfigError, match="there are bias-once"):
        puzzle("bias-twice", right)
    with pytest.raises(ConfigError, match="without a call"):
        puzzle("bias-once", 3)


def test_a_timeline_has_a_lane_for_each_rank(monkeypatch, capsys):
    drawn = []
    monkeypatch.setattr(pictures.runs, "picture", lambda draw, alt: drawn.append((draw(), alt)))
    pictures.timeline(run(lambda tp: summed(tp, np.ones(3)), ranks=3, threads=True))
    figure, alt = drawn[0]
    assert {name for trace in figure.data for name in trace.y} == {"rank 0", "rank 1", "rank 2"}
    assert "3 ranks" in alt and "all_reduce at here" in alt
    pictures.timeline(run(lambda tp: tp.rank, ranks=2, threads=True))
    assert len(drawn) == 1 and "No timeline" in capsys.readouterr().out


def test_points_add_up():
    assert RIGHT + sum(judge.PARTS.values()) == FULL == 10
    assert set(judge.PARTS) == set(judged(SUM, right).spent.within(SUM.drawn(0).budget))
    assert textwrap.dedent(SUM.blank) == "def sum_up(tp, x):\n    ..."
