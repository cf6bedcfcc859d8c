"""The inputs of the page Memory and machines: each a widget, kept over page switches, read from the address."""
from dataclasses import replace
from typing import Any

import streamlit as st

from minitp.plan.units import count
from minitp.trace.wording import plain
from minitp.view.plan import DEGREES, FIELDS, NUMBERS, Asked, choices, link_names, machine_names, model_names
from ui import page, state

_WRITTEN = "plan_address"
KEPT_WORDS = {"tp": "tp", "pp": "pp", "dp": "dp", "zero": "ZeRO", "recompute": "recompute", "micro": "micro-batch"}


def key(name: str) -> str:
    """Of a field's widget."""
    return f"plan_{name}"


def read_address() -> None:
    """What the address asks for, where it isn't what this page wrote itself; the usual for what was never asked."""
    address = {name: text for name, text in st.query_params.to_dict().items() if name in FIELDS}
    asked = Asked()
    if address and address != st.session_state.get(_WRITTEN):
        asked, told = Asked.from_address(address)
        for line in told:
            st.info(line)
        put(asked)
    for name in FIELDS:
        state.keep(key(name), _shown(getattr(asked, name)))
    there = choices()
    for name, among in there.items():                     # a model or a machine may be gone meanwhile
        if st.session_state[key(name)] not in among:
            st.session_state[key(name)] = getattr(Asked, name)


def put(asked: Asked) -> None:
    """Set all inputs. In a callback, or before the widgets are drawn."""
    for name in FIELDS:
        st.session_state[key(name)] = _shown(getattr(asked, name))


def _shown(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def asked_now() -> Asked:
    """What the widgets say."""
    now = {name: st.session_state[key(name)] for name in FIELDS}
    return Asked(**now | {"keep": tuple(name for name in DEGREES if name in now["keep"])})


def write_address(asked: Asked) -> None:
    """So that a copied link opens the same."""
    address = asked.to_address()
    st.session_state[_WRITTEN] = address
    state.in_address(**dict.fromkeys(FIELDS) | address)


# --- the widgets ---------------------------------------------------------------------------------------------------

def head() -> None:
    """What is planned, and for what."""
    first, second, third, fourth = page.columns((1, 1.3, 1.3, 1), least="11rem", key="plan_head")
    first.segmented_control("Task", ["infer", "train"], key=key("task"), required=True,
                            format_func={"infer": "Generate", "train": "Train"}.get)
    second.selectbox("Model", model_names(), key=key("model"), format_func=lambda name: plain(name, 60))
    third.selectbox("Machine", machine_names(), key=key("machine"), format_func=lambda name: plain(name, 60))
    with fourth:
        number("devices", "Devices in all", "Boxes are filled and joined.",
               words=lambda n: f"{n:,}" if n else "as it has")


def what_ifs() -> None:
    """Other devices and links than the machine's."""
    with st.expander("What if", icon=":material/science:"):
        st.select_slider("Memory of a device", choices()["memory"], key=key("memory"),
                         format_func=lambda text: text or "as it is")
        for name, label in (("link", "Link inside a box"), ("between", "Link between boxes")):
            st.selectbox(label, link_names(), key=key(name), format_func=lambda text: text or "as it is")
        number("reserve", "Kept free, %", "For what isn't modeled: see the list below the table.")
        st.toggle("Capacity by its name", key=key("nominal"), help="80e9 bytes of an 80 GB card, whatever it reports.")


def wide() -> bool:
    """Whether inputs stand beside a picture, and open; above a table they would push it down."""
    return st.session_state[key("show")] not in ("layouts", "ask")


def job(task: str) -> None:
    """What is run."""
    with st.expander("The job", icon=":material/work:", expanded=wide()):
        if task == "infer":
            number("batch", "sequences", "At once, over all replicas.")
        left, right = page.columns(2, least="6rem", key="plan_job")
        if task == "infer":
            with left:
                number("prompt", "prompt", "Tokens of each sequence's prompt.")
                st.selectbox("weights", choices()["weights"], key=key("weights"))
            with right:
                number("new", "new tokens", "After the prompt: the cache holds both.")
                st.selectbox("KV cache", choices()["cache"], key=key("cache"))
            return
        with left:
            number("step", "sequences", "Of a step, over all replicas.")
            number("seq", "tokens", "Of a sequence.")
            st.selectbox("precision", choices()["precision"], key=key("precision"),
                         help="Bytes a parameter of weights, gradients and optimizer: 16, 18, 16, 8.")
        with right:
            number("micro", "micro-batch", "Sequences that a replica works on at once.")
            st.select_slider("recompute", choices()["recompute"], key=key("recompute"),
                             help="Activations that the backward pass computes again instead of having kept them.")
            number("tokens", "whole training", "Tokens of all steps: for days.", words=lambda n: count(n) if n else "–")
        st.toggle("Fused attention", key=key("fused"), help="Scores aren't stored for the backward pass.")


def layout(task: str) -> None:
    """The degrees of the mesh."""
    with st.expander("The layout", icon=":material/grid_on:", expanded=wide()):
        left, right = page.columns(2, least="6rem", key="plan_mesh")
        with left:
            number("tp", "tp, tensor", "Tensor parallel: matrices are cut, with 2 syncs a layer.")
            number("dp", "dp, replicas", "Data parallel: sequences are dealt out.")
            number("cp", "cp, context", "Context parallel: each sequence is cut.")
        with right:
            number("pp", "pp, stages", "Pipeline: layers are dealt out.")
            if task == "train":
                number("zero", "ZeRO stage", "1: optimizer state, 2: and gradients, 3: and weights are cut over dp.")
            number("ep", "ep, experts", "Expert parallel: experts are spread over the replicas.")
        if task == "train":
            with left:
                number("chunks", "chunks", "Of a stage. More than 1: the interleaved schedule.")
            st.toggle("Sequence parallel", key=key("sp"), help="Norms and the residual stream are cut over tp as well.")


def number(name: str, label: str, help: str | None = None, words: Any = None) -> None:
    """A slider over a field's stops, and over the value that an address or a search put there."""
    stops = NUMBERS[name].stops(st.session_state[key(name)])
    st.select_slider(label, stops, key=key(name), help=help, format_func=words or (lambda n: f"{n:,}"))


def for_search(asked: Asked) -> Asked:
    """What a search depends on: sliders that it doesn't keep are the usual ones, so that moving them finds it again."""
    free = {name: getattr(Asked, name) for name in DEGREES if name not in asked.keep}
    return replace(asked, show="layouts", wider=1, more=3, op="all_reduce", group="tp", **free)
