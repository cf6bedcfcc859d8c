"""Shards: any model on any number of ranks: every parameter, its cut, who holds what; pick one and see it."""
import streamlit as st

from minitp.config import ModelConfig
from minitp.placement import Placement
from minitp.trace.file import Trace
from minitp.trace.wording import plain
from minitp.view.cuts import ITEM_BYTES
from minitp.view.figures.shards import tensor_figure, totals_figure
from minitp.view.header import placement_of
from minitp.view.shards import band_rows, parameter_rows, sentence, total_rows, totals, trained
from minitp.view.tensor import kept_pieces, picture, tensor_words
from ui import models, page, picker, state

RUN = "the open run's model"
MOST_RANKS = 64


def placed() -> tuple[Placement, Trace | None] | None:
    """What the sidebar asks for, and the trace whose numbers belong to it; None once the page says what is wrong."""
    with st.sidebar:
        source = models.choose("shard model", RUN)
    opened = picker.open_run() if source == RUN else None
    of_run = placement_of(opened.trace.run) if opened else None
    if source == RUN:
        if opened and of_run is None:
            page.problem("This trace doesn't say how its model was cut. Choose a model in the sidebar.")
        config = of_run.config if of_run else None
    else:
        config = models.config_of(source)
    if config is None:
        return None
    with st.sidebar:
        asked = _cut(config, of_run, opened.name if opened else source)
    return asked, opened.trace if opened and asked == of_run else None


def _cut(config: ModelConfig, of_run: Placement | None, name: str) -> Placement:
    """Ranks and ways to cut, kept for each run and model: usually the run's own, and the address names others."""
    usual = of_run if of_run and of_run.ranks <= MOST_RANKS else Placement(config, 4)
    keys = {what: f"shard {what} {name}" for what in ("ranks", "embedding", "cut")}
    state.keep(keys["ranks"], state.query_int("ranks", 1, MOST_RANKS, usual.ranks))
    ranks = int(st.number_input("Ranks", 1, MOST_RANKS, key=keys["ranks"]))
    state.keep(keys["embedding"], state.query_choice("embedding", ["vocab", "hidden"], usual.embedding))
    embedding = st.selectbox("Embedding cut along", ["vocab", "hidden"], key=keys["embedding"])
    state.keep(keys["cut"], state.query_choice("cut", ["even", "balanced"], usual.cut))
    cut = st.selectbox("Cut rule", ["even", "balanced"], key=keys["cut"])
    state.in_address(ranks=None if ranks == usual.ranks else ranks,
                     embedding=None if embedding == usual.embedding else embedding,
                     cut=None if cut == usual.cut else cut)
    return Placement(config, ranks, embedding, cut)


def one_tensor(placement: Placement, trace: Trace | None, item_bytes: int) -> None:
    names = [parameter.name for parameter in placement.parameters]
    first = next((name for name in names if name.endswith("gate.weight") or name.endswith("up.weight")), names[0])
    state.keep("shard tensor", state.query_choice("tensor", names, first))
    if st.session_state["shard tensor"] not in names:
        st.session_state["shard tensor"] = first
    name = st.selectbox("Parameter", names, key="shard tensor")
    parameter = placement.parameter(name)
    drawn = picture(placement, parameter, kept_pieces(trace, placement, parameter) if trace else None)
    st.text(sentence(placement, parameter))
    page.chart(tensor_figure(drawn), alt=tensor_words(drawn), rows=band_rows(placement, parameter, item_bytes),
               key="shard picture")
    if drawn.known:
        more = "a dash marks a negative one" if drawn.signed else "a cell is the largest of its block"
        st.caption("The deeper the color, the larger the number"
                   + (f"; {more}." if drawn.signed or drawn.blocks else "."))
    else:
        st.caption("No numbers of it are on record: a run that keeps values has them, on its own ranks "
                   "(`minitp generate` or `train`, with `--values --trace FILE`).")


def main() -> None:
    page.begin("Shards", "Which part of every matrix lies on which rank, how often it is held, and what each rank "
                         "carries.")
    found = placed()
    with st.sidebar:
        state.keep("shard dtype", "float32")
        item_bytes = ITEM_BYTES[st.selectbox("Precision", list(ITEM_BYTES), key="shard dtype")]
    if found is None:
        return
    placement, trace = found
    sums = totals(placement, item_bytes)
    st.text(f"{plain(placement.config.name or 'This model', 60)}: {sums.sentence()}")
    one_tensor(placement, trace, item_bytes)
    st.subheader("Bytes of each rank", anchor=False)
    page.chart(totals_figure(sums), alt=sums.sentence(), rows=total_rows(sums), key="shard totals")
    st.markdown("In training, also the gradients and what AdamW remembers (not what passes keep for their backward). "
                "A rank holds the gradient of what it holds, as a shard or whole; where the last column below says "
                "partial, the copies' gradients are terms of one sum, which is added up once a step.")
    page.table(trained(placement, item_bytes).rows(), key="shard training")
    st.subheader("Every parameter", anchor=False)
    state.keep("shard rank", state.query_int("rank", 0, placement.ranks - 1, 0))
    st.session_state["shard rank"] = min(st.session_state["shard rank"], placement.ranks - 1)
    left, right = st.columns(2)
    rank = int(left.number_input("Rank whose pieces are named", 0, placement.ranks - 1, key="shard rank"))
    state.keep("shard layers", False)
    every = right.toggle("Every layer", key="shard layers")
    state.in_address(model=st.session_state["shard model"], tensor=st.session_state["shard tensor"], rank=rank)
    page.table(parameter_rows(placement, item_bytes, rank, every), key="shard parameters")


main()
