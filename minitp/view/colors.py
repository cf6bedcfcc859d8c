"""One color, one meaning, on every page: a rank is a hue, a collective is ink, waiting is hatched."""

RANK_HUES = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C6D31", "#882255")
"""Okabe and Ito's order, told apart also by color-blind readers; further ranks begin again, so always say "rank r"."""

INK = {"light": "#31333F", "dark": "#FAFAFA"}
"""Collectives: the color of text in each theme."""

GREY = "#808495"
"""What is the same on every rank, and outlines: legible on both themes."""


def rank_hue(rank: int) -> str:
    return RANK_HUES[rank % len(RANK_HUES)]
