"""`minitp watch`: the picture of a trace, as one HTML file that needs no server and no network."""
import sys
import tempfile
import webbrowser
from pathlib import Path

from minitp.errors import ConfigError
from minitp.files import replacing


def watch(file: Path, html: Path | None, first: int | None, count: int | None) -> None:
    """Write the page to `html`; without it to a temporary file that the browser opens.

    first   the first pass to show, from 1 on;  count   how many: as many as make about 1 MB, unless it is given
    """
    from minitp.trace.file import Trace
    from minitp.view.player.export import to_html
    from minitp.view.watch import play
    if html is not None:
        check_target(file, html)
    trace = Trace.read(file)
    made = play(trace, first=None if first is None else first - 1, count=count)
    page = to_html(made).encode()
    target = html if html is not None else _temporary()
    with replacing(target) as output:
        output.write(page)
    print(f"{target}: {_what(made)}", file=sys.stderr)
    if html is None and not webbrowser.open(target.as_uri()):
        print("No browser could be started here. Open that file yourself, or choose its name with --html.",
              file=sys.stderr)


def check_target(file: Path, html: Path) -> None:
    """Refuse what can't be written, or would destroy the trace, before anything is computed."""
    if html.is_dir():
        raise ConfigError(f"--html takes the name of a file, and {html} is a folder: {html / 'watch.html'} would do")
    if not html.resolve().parent.is_dir():
        raise ConfigError(f"--html {html}: there is no folder {html.resolve().parent}")
    if html.exists() and file.exists() and html.samefile(file):
        raise ConfigError(f"--html {html} is the trace itself: the page would overwrite it. Give it another name")


def _temporary() -> Path:
    """A file of its own that outlives this process: the browser reads it afterwards."""
    return Path(tempfile.mkdtemp(prefix="minitp-")) / "watch.html"


def _what(play: dict) -> str:
    from minitp.trace.wording import count
    window = play["run"]["window"]
    passes = f"{window['count']:,} of {count(window['of'], 'pass')}"
    return f"{play['run']['title']}, {passes}, {count(len(play['syncs']['pass']), 'sync point')}."
