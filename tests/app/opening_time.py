"""How long pages take to open a long run: 200 tokens × 8 ranks × 62 sync points. Seconds of the server's own time, and
beside them what it takes to read the file alone: a measure of how fast this machine is today.

    PYTHONPATH=. python tests/app/opening_time.py
"""
import os
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from long_runs import write_long_run
from streamlit.testing.v1 import AppTest

from minitp.trace import Trace

APP = Path(__file__).parents[2] / "app"


def opened(page: str, run: str) -> float:
    """Seconds of this process, reading the file included; what is imported and set up once is not."""
    app = AppTest.from_file(str(APP / "main.py"), default_timeout=60)
    app.run()
    app.switch_page(f"views/{page}.py")
    app.query_params["run"] = run
    start = time.process_time()
    app.run()
    if app.exception:
        raise RuntimeError(app.exception[0].value)
    return time.process_time() - start


def read(file: Path) -> float:
    start = time.process_time()
    Trace.read(file)
    return time.process_time() - start


def main() -> None:
    sys.path.insert(0, str(APP))
    with TemporaryDirectory() as folder:
        os.environ["MINITP_RUNS"] = folder
        write_long_run(Path(folder) / "short.json.gz", 2, 2)
        for page in ("timeline", "ledger"):
            opened(page, "short.json.gz")
            write_long_run(Path(folder) / f"{page}.json.gz", 8, 200)
            os.utime(Path(folder) / f"{page}.json.gz", (0, 0))         # not the newest: else it would be read before
            print(f"{page}: {opened(page, f'{page}.json.gz'):.2f} s of server time")
        print(f"reading: {min(read(Path(folder) / 'ledger.json.gz') for _ in range(3)):.2f} s")


if __name__ == "__main__":
    main()
