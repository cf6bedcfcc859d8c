"""The app without a browser: pages run in this process, on a runs folder of the test's own."""
import sys
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from minitp.trace import Trace
from tests.app.browser import (  # noqa: F401  (a fixture is found by its name)
    _tabs,
    chromium,
    scatter_trace,
    served,
    tiny_play,
    tiny_run_file,
    watch,
)
from tests.app.real_runs import tiny_run
from tests.needs import missing

ROOT = Path(__file__).parents[2]
PATIENCE = 120                                     # seconds that a run of a page may take, where the machine is busy
APP = ROOT / "app"
sys.path.insert(0, str(APP))                       # as Streamlit does for the folder of main.py


@pytest.fixture
def runs(tmp_path, monkeypatch) -> Path:
    """An empty runs folder, which is the app's for this test."""
    folder = tmp_path / "runs"
    folder.mkdir()
    monkeypatch.setenv("MINITP_RUNS", str(folder))
    return folder


@pytest.fixture(scope="session")
def _components_found_once() -> Iterator[None]:
    """An AppTest looks through every installed package for Streamlit components, which takes longer than most pages."""
    if find_spec("streamlit") is None:
        missing("Streamlit: pip install 'minitp[app]'")
    from streamlit.components.v2 import manifest_scanner
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifest_scanner, "scan_component_manifests", cache(manifest_scanner.scan_component_manifests))
        yield


@pytest.fixture
def page(runs, _components_found_once) -> Callable[..., Any]:
    """page(what, **query) → an AppTest that has run `what`: a function with its imports inside, a script, the app."""
    from streamlit.testing.v1 import AppTest

    def opened(what: Callable[[], None] | Path = APP / "main.py", **query: str) -> AppTest:
        opening = AppTest.from_file if isinstance(what, Path) else AppTest.from_function
        test = opening(str(what) if isinstance(what, Path) else what, default_timeout=PATIENCE)
        for key, value in query.items():
            test.query_params[key] = value
        return test.run()

    return opened


@pytest.fixture(scope="session")
def _tiny_trace() -> Trace:
    return tiny_run()


@pytest.fixture
def tiny_trace(_tiny_trace) -> Trace:
    """A real run of the tiny model on 2 thread ranks, with values; a copy of this test's own."""
    return deepcopy(_tiny_trace)
