"""How fast the Watch page is, on this machine: prints a table, asserts nothing. Run it with nothing else at work.

    python -m tests.app.measure            # about two minutes

What it measures against the goals: first paint of Watch, warm (1.5 s; the median of five); frames while playing (55 a
second, p95 20 ms) with 4 ranks × 62 sync points × 20 tokens and with 8 × 202 × 20; the opening of 200 tokens × 8 ranks
in a new page of the same browser, of a file that the server has not read yet (2 s); what the browser is sent for one
run with the page around it (1 MB); the server's memory after ten such runs were opened, one visitor after the other
(500 MB).
"""
import time
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.app.browser import launched
from tests.app.long_runs import write_long_run
from tests.app.server import serving

PLAYER = "[data-state]"
FRAMES = """seconds => new Promise(done => {
    const at = [];
    const tick = now => { at.push(now); now - at[0] < 1000 * seconds ? requestAnimationFrame(tick) : done(at); };
    requestAnimationFrame(tick);
})"""


def main() -> None:
    rows: list[tuple[str, str, str]] = []
    with TemporaryDirectory() as folder, serving(Path(folder)) as (address, pid), launched() as browser:
        write_long_run(Path(folder) / "four.json.gz", 4, 20)
        write_long_run(Path(folder) / "eight.json.gz", 8, 20, layers=100)
        first = write_long_run(Path(folder) / "long0.json.gz", 8, 200)
        for number in range(1, 10):
            (Path(folder) / f"long{number}.json.gz").write_bytes(first.read_bytes())
        page = browser.new_context(viewport={"width": 1400, "height": 1000}).new_page()
        received = count_bytes(page)
        rows.append(("first paint of the sample, cold", seconds(paint(page, f"{address}/watch")), ""))
        warm = sorted(paint(page, f"{address}/watch") for _ in range(5))
        rows.append(("first paint of the sample, warm", f"{seconds(warm[2])} (of five: {seconds(warm[0])} … "
                     f"{seconds(warm[4])})", "≤ 1.5 s"))
        for name, what in (("four", "4 ranks × 62 × 20"), ("eight", "8 ranks × 202 × 20")):
            before = received[0]
            took = paint(page, f"{address}/watch?run={name}.json.gz")
            sent = received[0] - before
            rate, slow, worst = frames(page)
            rows += [(f"{what}: opened", seconds(took), ""), (f"{what}: sent", f"{sent / 1e6:.2f} MB", "≤ 1 MB"),
                     (f"{what}: frames a second", f"{rate:.1f}", "≥ 55"),
                     (f"{what}: p95 of a frame", f"{slow:.1f} ms (worst {worst:.0f})", "≤ 20 ms")]
        played, page = page, page.context.new_page()
        played.close()                                    # what it played would go on drawing
        rows.append(("200 tokens × 8 ranks: opened", seconds(paint(page, f"{address}/watch?run=long0.json.gz")),
                     "≤ 2 s"))
        for number in range(1, 10):
            paint(page, f"{address}/watch?run=long{number}.json.gz")
        rows.append(("server memory after ten of them", f"{memory(pid):.0f} MB", "≤ 500 MB"))
    table = Table("what", "measured", "goal")
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def seconds(value: float) -> str:
    return f"{value:.2f} s"


def count_bytes(page: Any) -> list[int]:
    """What the page's websocket received so far, in a list of one."""
    received = [0]

    def frame(data: Any) -> None:
        received[0] += len(data)

    page.on("websocket", lambda socket: socket.on("framereceived", frame))
    return received


def paint(page: Any, address: str) -> float:
    """Seconds from asking for the page until the player has drawn."""
    began = time.perf_counter()
    page.goto(address)
    page.locator("[data-state*=token]").wait_for(timeout=60_000)
    return time.perf_counter() - began


def frames(page: Any, limit: float = 8) -> tuple[float, float, float]:
    """(frames a second, 95th percentile and longest of a frame in ms) while the player plays."""
    page.locator(PLAYER).focus()
    page.keyboard.press("Space")
    at = page.evaluate(FRAMES, limit)
    page.keyboard.press("Space")
    gaps = sorted(b - a for a, b in pairwise(at))
    return 1000 * len(gaps) / sum(gaps), gaps[int(0.95 * len(gaps))], gaps[-1]


def memory(pid: int) -> float:
    """MB that the server's process and its children hold."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    text = Path(f"/proc/{pid}/status").read_text()
    own = next(int(line.split()[1]) for line in text.splitlines() if line.startswith("VmRSS"))
    return own * 1024 / 1e6 + sum(memory(int(child)) for child in children)


if __name__ == "__main__":
    main()
