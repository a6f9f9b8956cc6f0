"""Writes the picture and the page of a search when it ends; a failure to do so is a warning."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from tilesmith.lab.report.canvas import PictureError
from tilesmith.lab.report.line_file import with_suffix
from tilesmith.store.search_log import LOGGER_NAME
from tilesmith.tune.report.history import History
from tilesmith.tune.report.html import make_page
from tilesmith.tune.report.picture import draw_predictions, draw_search
from tilesmith.tune.result import TuneResult


class ReportListener(History):
    """Remembers a search; writes ``<prefix>.html``, ``.png`` and ``.predicted.png``."""

    def __init__(self, prefix: Path) -> None:
        super().__init__()
        self.prefix = prefix

    def on_end(self, result: TuneResult) -> None:
        """Write the files."""
        super().on_end(result)
        if self.trials:
            write_report(self, self.prefix)


def write_report(history: History, prefix: Path) -> list[Path]:
    """Write what can be written; the paths of what was."""
    jobs: dict[str, Callable[[], bytes | None]] = {
        ".html": lambda: make_page(history).encode(),
        ".png": lambda: draw_search(history),
        ".predicted.png": lambda: draw_predictions(history),
    }
    written: list[Path] = []
    for suffix, make in jobs.items():
        path = with_suffix(prefix, suffix)
        try:
            content = make()
            if content is None:
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            written.append(path)
        except (OSError, PictureError) as error:
            logging.getLogger(LOGGER_NAME).warning("%s is not written: %s", path, error)
    return written
