"""The data of the explorer as one HTML file: style, scripts and data in it, nothing fetched.

The scripts in ``static`` are plain JavaScript, one file for each part of the page. Whatever a
kernel or its arguments contain stays data: it is written as JSON that cannot end its element.
"""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any

from tilesmith.lab.pages import STYLE

STATIC = Path(__file__).parent / "static"
SCRIPTS = ("elements.js", "code.js", "tiles.js", "costs.js", "start.js")


def make_page(data: dict[str, Any]) -> str:
    """The whole page."""
    title = f"{data['kernel']} on {data['target']}"
    style = STYLE.read_text() + (STATIC / "explorer.css").read_text()
    scripts = "\n".join((STATIC / name).read_text() for name in SCRIPTS)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n"
        '<body class="explorer">\n<noscript>This page needs JavaScript.</noscript>\n'
        f'<script type="application/json" id="data">{json_text(data)}</script>\n'
        f"<script>\n{scripts}</script>\n</body>\n</html>\n"
    )


def json_text(data: Any) -> str:
    """JSON that an HTML parser takes for text to the end."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=str)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
