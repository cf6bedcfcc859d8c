"""Memory and machines in a real browser: a clean console, and nothing wider than the window, in light and dark."""
from itertools import product

import pytest

WIDTHS = (400, 900, 1400)
NARROW = "document.documentElement.scrollWidth <= innerWidth && (main => main.scrollWidth <= main.clientWidth)(" \
         "document.querySelector('[data-testid=stMain]'))"


PROBES = ("/plan/_stcore/health", "/plan/_stcore/host-config")
"""Where Streamlit's script first looks for its server: beside a page's own address, and then above it."""


@pytest.fixture
def seen(chromium, served):
    """seen(query, width, scheme) → the page once its pictures are drawn; its console must stay clean, but for the two
    probes."""
    pages, said = [], []
    probes = {f"{served}{path}" for path in PROBES}

    def opened(query: str, width: int, scheme: str, charts: int = 1):
        page = chromium.new_page(viewport={"width": width, "height": 1000}, color_scheme=scheme)
        pages.append(page)
        page.on("console", lambda message: message.type in ("error", "warning")
                and not ("404" in message.text and message.location["url"] in probes)
                and said.append(f"{message.text} {message.location['url']}"))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(f"{served}/plan?{query}")
        page.wait_for_function(f"document.querySelectorAll('.js-plotly-plot .main-svg').length >= {charts}",
                               timeout=60_000)
        page.get_by_text("Link to this").wait_for()
        return page

    yield opened
    for page in pages:
        page.close()
    assert said == [], said


def test_it_fits_a_phone_and_a_slider_moves_it(seen):
    """In the section without pictures, whose script alone is 5 MB."""
    page = seen("show=layouts&model=llama-2-7b&keep=tp&tp=2", 400, "dark", charts=0)
    assert page.evaluate(NARROW)
    before = page.get_by_test_id("stAlert").inner_text()
    page.get_by_text("The layout").click()
    for degree in (3, 4):                                  # one after the other: a rerun takes the slider away
        page.get_by_role("slider", name="tp, tensor").press("ArrowRight")
        page.wait_for_url(lambda url, degree=degree: f"tp={degree}" in url, timeout=60_000)
    page.wait_for_function("before => document.querySelector('[data-testid=stAlert]').innerText !== before", arg=before)


@pytest.mark.slow
def test_a_slider_moves_the_picture(seen):
    page = seen("model=llama-2-7b&tp=2", 400, "dark")
    assert page.evaluate(NARROW)
    before = page.get_by_test_id("stAlert").inner_text()
    page.get_by_role("slider", name="tp, tensor").press("ArrowRight")
    page.wait_for_url(lambda url: "tp=3" in url, timeout=60_000)
    page.wait_for_function("before => document.querySelector('[data-testid=stAlert]').innerText !== before", arg=before)


@pytest.mark.slow
@pytest.mark.parametrize("query", ["", "task=train&model=llama-3.1-405b&machine=8xh100-80&pp=16&dp=8&zero=1&sp=1",
                                   "show=layouts&model=llama-2-70b", "show=network", "show=check", "show=ask"])
def test_nothing_is_wider_than_the_window(seen, query):
    charts = 0 if query.split("&")[0] in ("show=layouts", "show=check", "show=ask") else 2
    page = seen(query, 1400, "light", charts)
    for width, scheme in product(WIDTHS, ("light", "dark")):
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 1000})
        page.wait_for_function(NARROW, timeout=60_000)            # figures are drawn anew for their width


@pytest.mark.slow
def test_a_row_of_the_search_sets_the_sliders(seen):
    page = seen("show=layouts&model=llama-2-7b&machine=8xa100-80&tp=1", 1400, "light", charts=0)
    table = page.get_by_test_id("stDataFrame").first
    table.wait_for()
    box = table.bounding_box()
    page.mouse.click(box["x"] + 18, box["y"] + 52)                # the box of the first row
    page.wait_for_url(lambda url: "tp=1" not in url, timeout=60_000)
