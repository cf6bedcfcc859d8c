"""One self-contained HTML file: the player and a play, for slides, lessons and issue threads; no server, no network."""
import base64
import hashlib
import html
import json
from typing import Any

from minitp.view.player import assets

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
{css}
</style>
</head>
<body>
<main id="watch" data-at="{at}">
<noscript><p>This page plays a recorded run: it needs JavaScript. Nothing is sent anywhere.</p></noscript>
{markup}
</main>
<script type="application/json" id="play">{play}</script>
<script type="module">{script}</script>
</body>
</html>
"""
_START = """
startStandalone(document.getElementById("watch"), JSON.parse(document.getElementById("play").textContent));
"""


def to_html(play: dict[str, Any], at: str = "") -> str:
    """The page as text. A play's words can't break out of it: the data is JSON without <, > and &, read as data.

    `at` is where it starts, as in an address (token=3&sync=0&phase=3), unless its own says so. The page's own policy
    lets only the player's script run, and nothing be fetched.
    """
    script = "\n" + assets.javascript("standalone") + _START
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    policy = (f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data: blob:; "
              "base-uri 'none'; form-action 'none'")
    return _PAGE.format(policy=policy, at=html.escape(at), title=html.escape(f"{play['run']['title']} · minitp"),
                        css=assets.css("standalone"), markup=assets.html(), play=as_json(play), script=script)


def as_json(data: Any) -> str:
    """JSON that may stand inside a script element: <, > and & by number, and ASCII only."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
