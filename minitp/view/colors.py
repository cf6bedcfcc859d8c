"""One color, one meaning, on every page: a rank is a hue, a collective is ink, waiting is hatched."""

RANK_HUES = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C6D31", "#882255")
"""Okabe and Ito's order, told apart also by color-blind readers; further ranks begin again, so always say "rank r"."""

INK = {"light": "#31333F", "dark": "#FAFAFA"}
"""Collectives: the color of text in each theme."""

GREY = "#808495"
"""What is the same on every rank, and outlines: legible on both themes."""

RED = "#E5484D"
"""The outline of what never ended: legible on both themes."""


def rank_hue(rank: int) -> str:
    return RANK_HUES[rank % len(RANK_HUES)]


def text_on(hue: str) -> str:
    """Black or white, whichever is better to read on `hue` (#RRGGBB)."""
    return max(("#000000", "#FFFFFF"), key=lambda text: contrast(text, hue))


def contrast(first: str, second: str) -> float:
    """The contrast of two colors, 1 to 21 (WCAG 2.1, 1.4.3)."""
    low, high = sorted(map(_luminance, (first, second)))
    return (high + 0.05) / (low + 0.05)


def with_opacity(hue: str, opacity: float) -> str:
    """`hue` (#RRGGBB) as a color that lets through what lies below."""
    red, green, blue = _channels(hue)
    return f"rgba({red},{green},{blue},{opacity:.3g})"


def _channels(hue: str) -> tuple[int, ...]:
    return tuple(int(hue[i:i + 2], 16) for i in (1, 3, 5))


def _luminance(hue: str) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in _channels(hue))]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
