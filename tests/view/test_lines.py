"""Lines of bytes: what is refused, what the words say, and that the figure shows the same."""
from math import log10

import pytest

from minitp.errors import ConfigError
from minitp.view.figures.lines import lines_figure
from minitp.view.lines import Lines


def test_words_tell_ends_and_peak():
    found = Lines({"borrowed": [(0, 100), (1, 30_000), (2, 200)], "kept": [(0, 5), (1, 6)]}, "steps", steps=True)
    assert found.words == "Bytes by steps. borrowed: 100 B at 0, 200 B at 2, at most 30 kB. kept: 5 B at 0, 6 B at 1."


def test_words_tell_what_is_marked():
    found = Lines({"a": [(1, 2), (10_000, 4)]}, "tokens", mark=(1234.4, "both send the same"))
    assert "both logarithmic" in found.words
    assert found.words.endswith("4 B at 10,000. Marked: both send the same, at 1,234.")


def test_places_are_written_in_full():
    told = Lines({"a": [(0.25, 2), (1_000_000, 4)], "b": [(1, 2), (12_000_000, 4)]}, "tokens", mark=(0.5, "half")).words
    assert "2 B at 0.25, 4 B at 1,000,000." in told and "4 B at 1.2e+07." in told and told.endswith("half, at 0.5.")


def test_a_picture_without_a_line_and_a_mark_without_a_place_are_refused():
    with pytest.raises(ConfigError, match="one at least"):
        Lines({}, "tokens")
    for steps, place in ((False, 0), (False, -1), (True, float("inf")), (False, float("nan"))):
        with pytest.raises(ConfigError, match="no place on"):
            Lines({"a": [(1, 2)]}, "tokens", steps, (place, "here"))
    assert Lines({"a": [(1, 2)]}, "tokens", True, (0, "here")).words.endswith("at 0.")


@pytest.mark.parametrize("points", [
    [], [(2, 1), (1, 1)], [(0, 1), (1, 1)], [(1, 0), (2, 1)], [(float("nan"), 1), (2, 1)], [(1, float("inf"))]])
def test_what_logarithmic_axes_cannot_show_is_refused(points):
    with pytest.raises(ConfigError, match="'a'"):
        Lines({"a": points}, "tokens")


def test_figure_has_every_line_and_the_mark_where_it_belongs():
    found = Lines({"<b>a</b>": [(1, 10), (1000, 10_000)], "b": [(1, 5), (1000, 5)]}, "tokens", mark=(100, "here"))
    figure = lines_figure(found)
    assert [(line.name, list(line.x), list(line.y)) for line in figure.data] == [
        ("&lt;b&gt;a&lt;/b&gt;", [1, 1000], [10, 10_000]), ("b", [1, 1000], [5, 5])]
    assert len({line.line.dash for line in figure.data}) == 2
    assert figure.layout.xaxis.type == figure.layout.yaxis.type == "log"
    assert figure.layout.shapes[0].x0 == 100
    assert figure.layout.annotations[0].x == log10(100)            # annotations count decades, shapes don't


def test_steps_are_drawn_on_plain_axes_and_the_last_one_lasts():
    figure = lines_figure(Lines({"a": [(0, 1), (1, 3)]}, "steps", steps=True))
    assert figure.data[0].line.shape == "hv"
    assert list(figure.data[0].x) == [0, 1, 2] and list(figure.data[0].y) == [1, 3, 3]
    assert figure.layout.yaxis.type is None
