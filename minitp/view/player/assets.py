"""The player's own files, read once: markup, styles and scripts. No build step: scripts are joined as they are.

A script is plain functions that share one scope, so their order does not matter to them; it is fixed (by name, the
host last) so that two runs of one version give the same bytes.
"""
from functools import cache
from pathlib import Path
from typing import Literal

FOLDER = Path(__file__).parent
HOSTS = ("streamlit", "standalone")
Host = Literal["streamlit", "standalone"]


@cache
def html() -> str:
    """The markup that stands inside the player's root in both hosts."""
    return (FOLDER / "html" / "player.html").read_text("utf-8")


@cache
def css(host: Host = "streamlit") -> str:
    """The player's styles. The standalone page adds the theme that Streamlit's page brings along (--st-*)."""
    shared = [path for path in sorted((FOLDER / "css").rglob("*.css")) if path.stem not in HOSTS]
    return _joined([*shared, *_of_host("css", host)])


@cache
def javascript(host: Host) -> str:
    """One module. streamlit: its default export is the component; standalone: defines startStandalone(root, play)."""
    shared = [path for path in sorted((FOLDER / "js").rglob("*.js")) if path.stem not in HOSTS]
    return _joined([*shared, *_of_host("js", host)])


def _of_host(kind: str, host: Host) -> list[Path]:
    return [path for path in (FOLDER / kind / f"{host}.{kind}",) if path.exists()]


def _joined(paths: list[Path]) -> str:
    return "\n".join(path.read_text("utf-8") for path in paths)
