"""The guided tour: cards that each show one idea at one place of this very run, with its own ranks, numbers and times.

A card that the run can't support is left out: no waiting on one rank, no numbers where none were kept.
"""
from collections.abc import Callable
from typing import Any

from minitp.view.cards import Card, Guide
from minitp.view.reading import PlayReader
from minitp.view.tour_mlp import by_columns, by_rows, gate_and_up, loading, the_sum, too_late, who_is_last, whole_matrix
from minitp.view.tour_parts import beads, break_it, embedding, heads, logits, where_time_went


def tour(play: dict[str, Any]) -> list[Card]:
    """The cards for a play, in order."""
    reader = PlayReader(play)
    if not reader.n:
        return []
    guide = Guide(reader)
    made: list[Callable[[Guide], Card | None]] = [
        loading, whole_matrix, by_columns, gate_and_up, by_rows, the_sum, too_late, heads, who_is_last, embedding,
        logits, beads, where_time_went, break_it]
    return [card for make in made if (card := make(guide)) is not None]
