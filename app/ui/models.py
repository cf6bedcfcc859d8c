"""Choosing a model for pages that need its sizes alone: one that this machine knows, or sizes by hand."""
from dataclasses import replace
from typing import Literal

import streamlit as st

from minitp.commands.breaks import broken_sites
from minitp.config import ModelConfig
from minitp.errors import ConfigError, MinitpError
from minitp.placement import Placement
from minitp.trace.wording import plain
from minitp.view.known_models import known_config, known_models
from ui import page, state

_LIMITS = {"hidden": 65_536, "layers": 500, "heads": 1024, "kv_heads": 1024, "head_size": 1024, "ffn": 262_144,
           "vocab": 2_000_000}


def choose(key: str, *more: str) -> str:
    """The name of a model from the list of known ones, with `more` entries before them; the address may ask for it."""
    names = [*more, *known_models()]
    usual = more[0] if more else "smollm2-135m" if "smollm2-135m" in names else names[0]
    state.keep(key, state.query_choice("model", names, usual))
    if st.session_state[key] not in names:                # it was deleted meanwhile
        st.session_state[key] = usual
    return st.selectbox("Model", names, key=key, format_func=lambda name: plain(name, 60))


def config_of(name: str) -> ModelConfig | None:
    """Its sizes; None once the page says why they can't be had."""
    try:
        return _config(name)
    except (MinitpError, OSError) as error:
        page.problem("The sizes of this model can't be read.", str(error))
        return None


@st.cache_data(max_entries=20, ttl=60, show_spinner=False)
def _config(name: str) -> ModelConfig:
    return known_config(name)


def wrong_break(pattern: str, name: str, ranks: int, embedding: Literal["vocab", "hidden"]) -> str:
    """Why a run of this model can't be broken there; "" where it can, or where only the run itself can tell."""
    try:
        placement = Placement(_config(name), ranks, embedding)
    except (MinitpError, OSError):                        # it isn't fetched yet, or not so cut: the run says so
        return ""
    try:
        broken_sites([pattern], placement, gathered=True)
    except ConfigError as error:
        return str(error)
    return ""


def edited(config: ModelConfig, key: str) -> ModelConfig | None:
    """The sizes as fields to change; None once the page says which of them can't be."""
    with st.expander("Sizes"):
        columns = st.columns(2)
        given = {name: columns[at % 2].number_input(name.replace("_", " "), 1, max(most, getattr(config, name)),
                                                   getattr(config, name), key=f"{key} {config.name} {name}")
                 for at, (name, most) in enumerate(_LIMITS.items())}
    try:
        return replace(config, **given)
    except MinitpError as error:
        page.problem("These sizes are no model.", str(error))
        return None
