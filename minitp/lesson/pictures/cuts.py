"""Pictures of what is cut: a part of a model, a matrix, what each rank holds."""
from collections.abc import Sequence
from typing import TYPE_CHECKING

from minitp.config import ModelConfig
from minitp.lesson.pictures.shown import picture
from minitp.placement import Placement
from minitp.trace.file import Trace

if TYPE_CHECKING:
    import plotly.graph_objects as go


def chain(config: ModelConfig, ranks: int, part: str) -> None:
    """The arrays, products and syncs of one part of a model, top to bottom: embedding, attention, mlp or head."""
    from minitp.view.cut_rows import description, rows
    from minitp.view.cuts import place
    made = rows(place(config, ranks), part)

    def draw() -> "go.Figure":
        from minitp.view.figures.cut_chain import chain_figure
        return chain_figure(made)
    picture(draw, description(made))


def parameter(placement: Placement, name: str, trace: Trace | None = None) -> None:
    """One parameter of a model, every rank's piece of it in the rank's hue; of what several hold, each has a stripe.

    With a trace its numbers as that has kept them; without one the words also say how it is cut.
    """
    from minitp.view.shards import sentence
    from minitp.view.tensor import kept_pieces, tensor_words
    from minitp.view.tensor import picture as tensor
    wanted = placement.parameter(name)
    drawn = tensor(placement, wanted, kept_pieces(trace, placement, wanted) if trace is not None else None)

    def draw() -> "go.Figure":
        from minitp.view.figures.shards import tensor_figure
        return tensor_figure(drawn)
    picture(draw, tensor_words(drawn) if trace is not None else f"{tensor_words(drawn)} {sentence(placement, wanted)}")


def bytes_per_rank(placement: Placement, item_bytes: int = 4) -> None:
    """The weights of each rank in bytes, parted by kind."""
    from minitp.view.shards import totals
    sums = totals(placement, item_bytes)

    def draw() -> "go.Figure":
        from minitp.view.figures.shards import totals_figure
        return totals_figure(sums)
    picture(draw, f"Bytes of each rank, a bar each, parted by kind. {sums.sentence()}")


def held(arrays: Sequence[tuple[str, str, int, Sequence[range]]]) -> None:
    """What each rank holds of some arrays, a row for each: its name, what is cut, how many of these there are, and each
    rank's part of them. Where all have all it is whole."""
    from minitp.comm.states import WHOLE, shard
    from minitp.view.cut_rows import Row
    rows, words = [], []
    for name, unit, size, parts in arrays:
        whole = all(len(part) == size for part in parts)
        spans = tuple((part.start / size, part.stop / size) for part in parts)
        rows.append(Row("array", name, f"{size} {unit}", WHOLE if whole else shard(0), spans))
        told = ", ".join(f"rank {rank} has {len(part)}" + (f" from number {part.start} on" if part else "")
                         for rank, part in enumerate(parts))
        words.append(f"{name}: {'all on every rank' if whole else f'of {size} {unit} {told}'}")

    def draw() -> "go.Figure":
        from minitp.view.figures.cut_chain import chain_figure
        return chain_figure(rows)
    picture(draw, "; ".join(words) + ".")
