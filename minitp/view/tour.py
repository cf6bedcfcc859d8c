"""The guided tour: cards that each show one idea at one place of this very run, with its own ranks, numbers and times.

A card that the run can't support is left out: no waiting on one rank, no numbers where none were kept.
"""
from collections.abc import Callable, Iterable
from typing import Any

from minitp.view import tour_training as training
from minitp.view.cards import Card, Guide
from minitp.view.reading import PlayReader
from minitp.view.tour_mlp import by_columns, by_rows, gate_and_up, loading, the_sum, too_late, who_is_last, whole_matrix
from minitp.view.tour_parts import beads, break_it, embedding, heads, logits, where_time_went
from minitp.view.tour_training import TrainingGuide

OF_STEP: list[Callable[[TrainingGuide], Card | None]] = [
    training.three_parts, training.three_numbers, training.whose_target, training.where_it_begins,
    training.free_behind_rows, training.sum_before_columns, training.cannot_wait, training.two_not_five,
    training.weights_stay, who_is_last, training.copies, training.one_number, training.all_beads, where_time_went]
"""The cards of a training run, in order."""


def tour(play: dict[str, Any]) -> list[Card]:
    """The cards for a play, in order."""
    reader = PlayReader(play)
    if not reader.n:
        return []
    phases = {reader.pass_words(i)[0] for i in range(len(reader.play["passes"]["first"]))}
    if "backward" in phases:
        trained = TrainingGuide(reader)
        return _of_what_ended(play, [of_step(trained) for of_step in OF_STEP])
    guide = Guide(reader)
    made: list[Callable[[Guide], Card | None]] = [
        loading, whole_matrix, by_columns, gate_and_up, by_rows, the_sum, too_late, heads, who_is_last, embedding,
        logits, beads, where_time_went, break_it]
    return _of_what_ended(play, [make(guide) for make in made])


def _of_what_ended(play: dict[str, Any], cards: Iterable[Card | None]) -> list[Card]:
    """The cards that there are, but for those at a place where the run failed: it shows nothing else any more."""
    return [card for card in cards if card is not None and str(card["sync"]) not in play.get("never", {})]
