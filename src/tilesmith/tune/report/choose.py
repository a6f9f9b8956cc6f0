"""Which reports a search gets, by its options: the listeners that the tuner calls."""

from __future__ import annotations

import logging

from tilesmith.tune.listener import Listener
from tilesmith.tune.options import TuneOptions
from tilesmith.tune.report.files import ReportListener
from tilesmith.tune.report.log import LogListener
from tilesmith.tune.report.progress import make_progress
from tilesmith.tune.report.tables import TableListener


def choose_listeners(options: TuneOptions) -> tuple[Listener, ...]:
    """Log, progress bar, tables, and the picture and page that are made at the end."""
    is_quiet = options.log_level > logging.INFO
    bar = make_progress(is_enabled=options.has_progress_bar and not is_quiet)
    # The bar is gone before the log says how it ended.
    found: list[Listener] = [] if bar is None else [bar]
    found.append(LogListener(options.log_level))
    if options.log_path is not None:
        found += [TableListener(options.log_path), ReportListener(options.log_path)]
    return tuple(found)
