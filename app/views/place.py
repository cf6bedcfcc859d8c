"""Place the cuts: how each matrix is held is the user's choice; the page shows the syncs that it needs."""
import streamlit as st

from minitp.errors import ConfigError
from minitp.trace.wording import count, size
from minitp.view.cut_rows import TITLES, description, rows, table
from minitp.view.cut_words import NAMES, SPLITS
from minitp.view.cuts import (
    ITEM_BYTES,
    MATRICES,
    USUAL,
    Choice,
    CutPlan,
    comparison,
    place,
    share_rows,
    sync_rows,
    verdict,
)
from minitp.view.figures.cut_chain import chain_figure
from ui import models, page, state

HELP = {"qkv": "Query, key and value: hidden → heads. By columns each rank has whole heads.",
        "o": "The output matrix of attention: heads → hidden.",
        "gate_up": "The first matrices of the MLP: hidden → ffn.",
        "down": "The second matrix of the MLP: ffn → hidden.",
        "embedding": "The table, vocabulary × hidden. By rows each rank has its own words, by columns a part of each.",
        "head": "Hidden → vocabulary. By columns each rank has the logits of its own words."}
SIDE_BY_SIDE = 8                       # ranks up to which two chains stand beside each other


def choices() -> Choice:
    """Six matrices, three ways each."""
    for name in MATRICES:
        state.keep(f"cut {name}", state.query_choice(name, list(SPLITS), getattr(USUAL, name)))
    columns = st.columns(3)
    chosen = {}
    for at, name in enumerate(("qkv", "o", "embedding", "gate_up", "down", "head")):
        chosen[name] = columns[at % 3].selectbox(NAMES[name].capitalize() if name != "qkv" else NAMES[name],
                                                 list(SPLITS), key=f"cut {name}", format_func=SPLITS.get,
                                                 help=HELP[name])
    st.button("The usual choice", on_click=_usual, icon=":material/restart_alt:", disabled=Choice(**chosen) == USUAL)
    return Choice(**chosen)


def _usual() -> None:
    for name in MATRICES:
        st.session_state[f"cut {name}"] = getattr(USUAL, name)


def show(plan: CutPlan, usual: CutPlan) -> None:
    st.info(verdict(plan, usual), icon=":material/balance:")
    page.table(comparison(plan, usual), key="cut comparison")
    st.subheader("What is synced, and why", anchor=False)
    if not plan.syncs:
        st.markdown("**Nothing**: every rank does everything.")
    for sync in plan.syncs:
        st.markdown(f"**{sync.op.replace('_', '-')}** at `{sync.site}`, {size(sync.payload)}, "
                    f"{count(sync.times, 'time')} per pass: {sync.why}.")
    with st.expander("The syncs as a table"):
        page.table(sync_rows(plan), key="cut syncs")
    st.subheader("State by state", anchor=False)
    st.caption("A cell per rank, as wide as the array. Gray: every rank holds all of it. Filled in a rank's color: its "
               "own slice. Dashed: full size, but only one term of the sum. A bar across all ranks is a sync.")
    beside = plan.placement.ranks <= SIDE_BY_SIDE
    for pair in (("attention", "mlp"), ("embedding", "head")):
        for column, part in zip(st.columns(2, gap="large") if beside else (st.container(), st.container()), pair,
                                strict=True):
            with column:
                times = f", {plan.repeats(part)} times" if plan.repeats(part) > 1 else ""
                st.markdown(f"**{TITLES[part]}**{times}")
                drawn = rows(plan, part)
                page.chart(chain_figure(drawn, page.ink()), alt=description(drawn), key=f"cut chain {part}",
                           rows=[row for row in table(plan) if row["part"] == TITLES[part]])
    with st.expander("Rank by rank"):
        page.table(share_rows(plan), key="cut shares")


def main() -> None:
    page.begin("Place the cuts", "Choose how each matrix is held; the syncs follow from the states of the arrays. "
                                 "By columns and by rows are those of M in y = x · M.")
    with st.sidebar:
        config = models.config_of(models.choose("cut model"))
        config = config and models.edited(config, "cut size")
        state.keep("cut ranks", state.query_int("ranks", 1, 16, 4))
        ranks = st.slider("Ranks", 1, 16, key="cut ranks")
        state.keep("cut tokens", state.query_int("tokens", 1, 100_000, 1))
        tokens = st.number_input("Tokens per pass", 1, 100_000, key="cut tokens",
                                 help="1: decoding, a token at a time. More: reading a prompt.")
        state.keep("cut dtype", state.query_choice("dtype", list(ITEM_BYTES), "float32"))
        dtype = st.selectbox("Precision", list(ITEM_BYTES), key="cut dtype")
    choice = choices()
    if config is None:
        return
    try:
        plan, usual = (place(config, ranks, one, tokens, dtype) for one in (choice, USUAL))
    except ConfigError as error:
        page.problem("The cuts of this model can't be placed.", str(error))
        return
    state.in_address(model=st.session_state["cut model"], ranks=ranks, tokens=tokens, dtype=dtype,
                     **{name: getattr(choice, name) for name in MATRICES})
    show(plan, usual)


main()
