"""``bound.explore()``: an object that is a page, in a notebook and as a file.

The page has style, scripts and data in it and fetches nothing. The scripts in ``static`` are plain
JavaScript, one file for each part. What a kernel or its arguments contain stays data: it is written
as JSON that cannot end its element.
"""

from __future__ import annotations

import json
from functools import cached_property
from html import escape
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from typing_extensions import override

from tilesmith.explore.collect import Subject, collect
from tilesmith.explore.still import Moment, tiles_svg
from tilesmith.jit.bound_kernel import BoundKernel
from tilesmith.jit.compiled_kernel import ConfigLike
from tilesmith.lab.pages import STYLE
from tilesmith.schedule.config import Config
from tilesmith.store.config_text import config_text

FRAME_PIXELS = 820
STATIC = Path(__file__).parent / "static"
SCRIPTS = ("elements.js", "code.js", "tiles.js", "costs.js", "start.js")


class Launch(NamedTuple):
    """A bound kernel, and the configs to look at."""

    bound: BoundKernel
    subjects: tuple[Subject, ...]


class Explorer:
    """A page about a bound kernel under one config, or two side by side.

    A kernel of several launches has a part for each.

    Example:
        ``kernel.bind((x,)).explore().save("page.html")``
    """

    def __init__(self, *launches: Launch) -> None:
        self.launches = launches

    @cached_property
    def parts(self) -> list[dict[str, Any]]:
        """All that the page shows of each launch, as plain values."""
        return [collect(*launch) for launch in self.launches]

    @property
    def data(self) -> dict[str, Any]:
        """All that the page shows, as plain values; of several launches as ``launches``."""
        if len(self.parts) == 1:
            return self.parts[0]
        return {"kernel": self.parts[0]["kernel"], "launches": self.parts}

    @cached_property
    def html(self) -> str:
        """The page: it stands alone and fetches nothing."""
        return make_page(self.data)

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the page to a file."""
        place = Path(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(self.html, encoding="utf-8")
        return place

    def picture(self, *moments: tuple[int, int]) -> str:
        """The tiles as SVG, a row for each moment: a program as recorded, and one of its steps.

        By default the first step of the first program; -1 is the last.
        """
        rows = [Moment(*moment) for moment in moments] or [Moment()]
        views = [view for part in self.parts for view in part["views"]]
        titles = [view["config"] if len(views) > 1 else "" for view in views]
        return tiles_svg([(v["tiles"], title) for v, title in zip(views, titles)], rows)

    def _repr_html_(self) -> str:
        """The page in a frame of its own, so that it and a notebook leave each other alone."""
        style = f"width:100%;height:{FRAME_PIXELS}px;border:1px solid #8884;border-radius:8px"
        return f'<iframe srcdoc="{escape(self.html)}" style="{style}"></iframe>'

    @override
    def __repr__(self) -> str:
        subjects = [subject for _, subjects in self.launches for subject in subjects]
        configs = ", ".join(config_text(subject.config) for subject in subjects)
        bound = self.launches[0].bound
        return f"<explorer of {bound.definition.name} on {bound.target}: {configs}>"


def explore(
    bound: BoundKernel,
    config: ConfigLike = None,
    beside: ConfigLike = None,
    measured_ms: float | None = None,
) -> Explorer:
    """A page about a config, by default the one that calls use; ``beside`` is a second one."""
    first = bound.config_spec.normalize(bound.resolve(config))
    subjects = [Subject(first, _label(bound, first), measured_ms)]
    if beside is not None:
        second = bound.config_spec.normalize(bound.resolve(beside))
        subjects.append(Subject(second, _label(bound, second)))
    return Explorer(Launch(bound, tuple(subjects)))


def _label(bound: BoundKernel, config: Config) -> str:
    default = bound.config_spec.normalize(bound.default_config())
    return "default" if config == default else "given"


def make_page(data: dict[str, Any]) -> str:
    """The whole page."""
    first = data.get("launches", [data])[0]
    title = f"{first['kernel']} on {first['target']}"
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
