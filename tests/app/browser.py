"""A real browser for the tests that need one: the system's Chromium, driven by playwright."""
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from shutil import which
from typing import Any

from tests.needs import missing


@contextmanager
def browser() -> Iterator[Any]:
    """A headless Chromium; it, or playwright, not being there skips the test."""
    path = which("chromium") or which("chromium-browser") or which("google-chrome")
    if path is None or find_spec("playwright") is None:
        missing("no Chromium, or no playwright: apt install chromium, pip install playwright")
    from playwright.sync_api import sync_playwright
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        try:
            yield chromium
        finally:
            chromium.close()
