"""Collectives lab: a collective by one of its algorithms, on one's own numbers, round by round; a model of its cost."""
from typing import Any

import streamlit as st

from minitp.comm.algorithms import ALGORITHMS
from minitp.comm.states import TRANSITIONS
from minitp.plan.links import LINKS
from minitp.trace.wording import count, size
from minitp.view import lab, lab_cost
from minitp.view.figures import lab as figures
from ui import page
from ui.state import keep, query_choice, query_int

ADDRESS = ("op", "algorithm", "ranks", "round")


@st.cache_data(max_entries=64, show_spinner="Running it …")
def played(op: str, algorithm: str, numbers: tuple[tuple[float, ...], ...], ranks: int, root: int) -> lab.Play:
    """A real run on thread ranks; the arguments are the key."""
    return lab.run(op, algorithm, numbers, ranks, root)


def named(op: str) -> str:
    return op.replace("_", "-")


def read_address() -> None:
    """What the address asks for, where it is not what this page wrote there itself."""
    asked = {key: st.query_params[key] for key in ADDRESS if key in st.query_params}
    if not asked or asked == st.session_state.get("lab_address"):
        return
    op = st.session_state["lab_op"] = query_choice("op", list(ALGORITHMS), "all_reduce")
    st.session_state["lab_algorithm"] = query_choice("algorithm", ALGORITHMS[op], "ring")
    st.session_state["lab_ranks"] = query_int("ranks", 2, lab.RANKS[1], 4)
    st.session_state["lab_round"] = query_int("round", 1, 99, 1)


def write_address() -> None:
    now = {key: str(st.session_state[f"lab_{key}"]) for key in ADDRESS}
    st.session_state["lab_address"] = now
    if now != {key: st.query_params.get(key) for key in ADDRESS}:
        st.query_params.update(now)


def fit(key: str, lo: int, hi: int) -> None:
    """A widget's value may have been set when its range was another one."""
    st.session_state[key] = max(lo, min(hi, st.session_state[key]))


def settings() -> tuple[str, str, int, int, int]:
    """(collective, algorithm, ranks, root, numbers that a rank brings)."""
    for key, default in (("lab_op", "all_reduce"), ("lab_algorithm", "ring"), ("lab_ranks", 4), ("lab_round", 1),
                         ("lab_root", 0), ("lab_elements", 4)):
        keep(key, default)
    left, middle, right, last = st.columns(4)
    op = left.selectbox("Collective", list(ALGORITHMS), key="lab_op", format_func=named)
    if st.session_state["lab_algorithm"] not in ALGORITHMS[op]:
        st.session_state["lab_algorithm"] = ALGORITHMS[op][0]
    algorithm = middle.selectbox("Algorithm", ALGORITHMS[op], key="lab_algorithm")
    ranks = right.slider("Ranks", 2, lab.RANKS[1], key="lab_ranks")
    most = lab.most_elements(op, ranks)
    fit("lab_elements", 1, most)
    elements = last.slider("Numbers", 1, most, key="lab_elements",
                           help="of the root" if op in lab.FROM_ROOT else "of each rank")
    root = 0
    if op in lab.ROOTED:
        fit("lab_root", 0, ranks - 1)
        root = left.slider("Root", 0, ranks - 1, key="lab_root")
    return op, algorithm, ranks, root, elements


def own_numbers(op: str, ranks: int, root: int, elements: int) -> tuple[tuple[float, ...], ...]:
    """The table of numbers; what was typed stays while the page is left."""
    key = f"lab_numbers_{op in lab.FROM_ROOT}_{ranks}_{elements}"
    base, latest = f"{key}_base", f"{key}_latest"
    if key not in st.session_state:                     # drawn anew: it begins with what was there last
        st.session_state[base] = st.session_state.get(latest, lab.example(op, ranks, elements, 0))
    who = lab.bringers(op, ranks, root)
    rows = [{"rank": f"rank {rank}"} | {f"x[{i}]": x for i, x in enumerate(row)}
            for rank, row in zip(who, st.session_state[base], strict=True)]
    with st.expander("Your numbers", icon=":material/edit:"):
        columns: dict[str, Any] = {"rank": st.column_config.TextColumn("", disabled=True, pinned=True)}
        columns |= {f"x[{i}]": st.column_config.NumberColumn(min_value=-lab.LIMIT, max_value=lab.LIMIT, required=True)
                    for i in range(elements)}
        edited = st.data_editor(rows, key=key, hide_index=True, width="stretch", column_config=columns)
        numbers, changed = lab.cleaned([[row.get(f"x[{i}]") for i in range(elements)] for row in edited])
        if changed:
            st.info(f"Numbers go from −{lab.LIMIT:,.0f} to {lab.LIMIT:,.0f}; an empty cell counts as 0.")
    st.session_state[latest] = [list(row) for row in numbers]
    return numbers


def step(by: int, rounds: int) -> None:
    st.session_state["lab_round"] = max(1, min(rounds, st.session_state["lab_round"] + by))


def rounds(play: lab.Play) -> None:
    """One round at a time: back, next, the picture."""
    number = len(play.rounds)
    fit("lab_round", 1, number)
    now = st.session_state["lab_round"]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.button("Back", icon=":material/chevron_left:", on_click=step, args=(-1, number), disabled=now == 1,
                  key="lab_back")
        st.button("Next", icon=":material/chevron_right:", on_click=step, args=(1, number), disabled=now == number,
                  key="lab_next")
        if number > 1:
            now = st.slider("Round", 1, number, key="lab_round")
    messages = len(play.rounds[now - 1].messages)
    st.markdown(f"**Round {now} of {number}:** {count(messages, 'message')}{' at the same time' * (messages > 1)}.")
    page.chart(figures.round_figure(play, now - 1, ink=page.ink()), alt=lab.round_alt(play, now - 1),
               rows=lab.round_rows(play, now - 1), key="lab_picture")
    st.caption(figures.legend(play))


def totals(play: lab.Play) -> None:
    busiest = max(range(play.ranks), key=lambda rank: play.sent[rank])
    st.markdown(f"Recorded: **{count(len(play.messages), 'message')}** in **{count(len(play.rounds), 'round')}**, "
                f"**{size(sum(play.sent))}** on the wire for a payload of {size(play.payload)}. Rank {busiest} sends "
                f"the most, {size(play.sent[busiest])}.")
    with st.expander("All messages", icon=":material/list:"):
        page.table([{"round": number, "from": m.source, "to": m.target, "pieces": lab.pieces_text(play, m.pieces),
                     "numbers": ", ".join(map(lab.number_text, m.numbers)), "bytes": m.bytes}
                    for number, round in enumerate(play.rounds, start=1) for m in round.messages], key="lab_messages")
    st.info("These hops are recorded from real sends in minitp, between ranks that are threads of this process. What "
            "MPI does inside its own collectives is not known: it may do one of these, or something better.",
            icon=":material/info:")


def costs(play: lab.Play) -> None:
    """By links and payloads; nothing of it is measured."""
    op, algorithm, ranks = play.op, play.algorithm, play.ranks
    st.subheader("What it would cost (model)", anchor=False)
    st.markdown(f"**{algorithm}:** {lab_cost.WHY[algorithm]}")
    left, right = st.columns(2)
    keep("lab_payload", 16 * 1024)
    payload = left.select_slider("Payload", lab_cost.PAYLOADS, key="lab_payload", format_func=lab_cost.binary)
    names = [link.name for link in LINKS]
    keep("lab_link", names[2])
    link = LINKS[names.index(right.select_slider("Link of the curves", names, key="lab_link"))]
    page.table(lab_cost.cost_rows(op, ranks, payload), key="lab_costs")
    st.markdown(lab_cost.verdict(op, ranks, link))
    page.chart(figures.cost_figure(op, ranks, link, algorithm, payload, ink=page.ink()), key="lab_curves",
               rows=lab_cost.curve_rows(op, ranks, link),
               alt=f"Model of the time of {named(op)} on {ranks} ranks over {link.name}, by payload, a line each for "
                   f"{', '.join(ALGORITHMS[op])}. {lab_cost.verdict(op, ranks, link)}")
    st.caption(f"{link.name}: {link.latency_s * 1e6:.3g} µs per message, {link.bytes_per_s / 1e9:.3g} GB/s. "
               f"{link.source}.")
    with st.expander("Formulas and where they are from", icon=":material/functions:"):
        st.markdown("p ranks, n bytes of payload, α seconds per message, β seconds per byte; q = 2^⌊lg p⌋, r = p − q. "
                    "The additions are taken as free.")
        page.table(lab_cost.formula_rows(op, ranks), key="lab_formulas")


page.begin("Collectives lab", "The same collective by different algorithms, built from sends and receives and run for "
                              "real on your numbers: see who sends what to whom, round by round.")
read_address()
op, algorithm, ranks, root, elements = settings()
before, after = TRANSITIONS[op]
st.caption(f"{named(op)}: {before} → {after}")
play = played(op, algorithm, own_numbers(op, ranks, root, elements), ranks, root)
rounds(play)
totals(play)
costs(play)
write_address()
