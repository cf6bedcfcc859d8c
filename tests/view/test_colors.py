"""Words on a rank's hue can be read, and hues can be told from both backgrounds."""
import pytest

from minitp.view.colors import GREY, INK, RANK_HUES, contrast, rank_hue, text_on, with_opacity


def test_contrast_is_the_published_measure():
    assert contrast("#000000", "#FFFFFF") == pytest.approx(21)
    assert contrast("#777777", "#FFFFFF") == pytest.approx(4.48, abs=0.005)
    assert contrast(GREY, GREY) == 1


@pytest.mark.parametrize("hue", RANK_HUES)
def test_the_text_on_a_hue_is_legible(hue):
    assert contrast(text_on(hue), hue) >= 4.5


def test_ink_is_legible_in_both_themes():
    assert contrast(INK["light"], "#FFFFFF") >= 4.5 and contrast(INK["dark"], "#0E1117") >= 4.5


def test_hues_begin_again():
    assert rank_hue(8) == rank_hue(0) and len(set(RANK_HUES)) == 8
    assert with_opacity("#0072B2", 0.35) == "rgba(0,114,178,0.35)"
