"""The reports that a search gets by its options, and tables: CSV, and JSON lines with all details.

Lines of tables are written at once, so that a killed search loses none. A disk that is full is one
warning: the search goes on without the table.
"""

from __future__ import annotations

import csv
import io
import logging
import time
from collections.abc import Mapping
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import Any

from tilesmith.lab.reports import LineFile, json_line, with_suffix
from tilesmith.schedule.spec import ConfigSpec
from tilesmith.settings import Settings
from tilesmith.store.config_text import canonical_json, config_id
from tilesmith.store.key import digest_text
from tilesmith.store.outcome import Outcome
from tilesmith.tune.listener import Generation, Listener, Progress, SearchStart, space_size
from tilesmith.tune.options import TuneOptions
from tilesmith.tune.report.log import LogListener, make_progress
from tilesmith.tune.report.page import ReportListener
from tilesmith.tune.result import Final, TuneResult

LOG = logging.getLogger("tilesmith.autotune")
_COLUMNS = "run_id timestamp_s config_id generation status perf_ms compile_time_s config"
CSV_COLUMNS = tuple(_COLUMNS.split())


class TableListener:
    """Writes ``<prefix>.csv`` and ``<prefix>.jsonl``."""

    def __init__(self, prefix: Path, *, run_id: str = "") -> None:
        self._csv = LineFile(with_suffix(prefix, ".csv"), _csv_line(CSV_COLUMNS))
        self._jsonl = LineFile(with_suffix(prefix, ".jsonl"))
        self._run_id = run_id

    def on_start(self, start: SearchStart) -> None:
        """The header record of a run."""
        parts = (start.kernel, start.arguments, start.device, str(start.seed), str(time.time_ns()))
        self._run_id = self._run_id or digest_text(*parts, length=12)
        seeds = [
            {"config": seed.config.config, "origin": seed.origin, "predicted_ms": seed.predicted_ms}
            for seed in start.seeds
        ]
        plain = {name: value for name, value in vars(start).items() if name != "code_of"}
        self._record("start", {**plain, "seeds": seeds, "unix_time": time.time()})

    def on_outcome(self, outcome: Outcome, progress: Progress) -> None:
        """One line in each file."""
        row = (
            self._run_id,
            f"{progress.elapsed_s:.3f}",
            config_id(outcome.config),
            progress.generation,
            outcome.verdict.value,
            f"{outcome.time_ms:.6g}" if isfinite(outcome.time_ms) else "",
            f"{outcome.build_s:.3f}",
            canonical_json(outcome.config),
        )
        self._csv.append(_csv_line(row))
        self._record("outcome", outcome_record(outcome, progress))

    def on_generation(self, generation: Generation) -> None:
        """Write a record that sums up a generation."""
        values = {name: value for name, value in vars(generation).items() if name != "counts"}
        best = generation.best.config.config if generation.best else None
        found = {**values, "num_failed": generation.num_failed, "best": best}
        self._record("generation", found)

    def on_finals(self, final: Final) -> None:
        """The finalists side by side."""
        standings = [{**vars(s), "config": s.config.config} for s in final.standings]
        self._record("finals", {"standings": standings, "noise": final.noise})

    def on_end(self, result: TuneResult) -> None:
        """Write the record of the result."""
        self._record("end", result_record(result))

    def _record(self, event: str, values: Mapping[str, Any]) -> None:
        self._jsonl.append(json_line({"event": event, "run_id": self._run_id, **values}))


class SpaceListener(Listener):
    """Says at the end what a search chose from and how much of it was tried, if that is set."""

    def __init__(self, name: str, spec: ConfigSpec, settings: Settings) -> None:
        self._name, self._settings, self._dimensions = name, settings, spec.dimensions()
        self._num_possible = space_size(spec)
        self._tried: dict[str, Outcome] = {}

    def on_outcome(self, outcome: Outcome, progress: Progress) -> None:
        """Count it."""
        self._tried[config_id(outcome.config)] = outcome

    def on_end(self, result: TuneResult) -> None:
        """Log it, and write it."""
        num_tried, folder = len(self._tried), self._settings.autotune_log_search_space_path
        num_valid = sum(isfinite(outcome.time_ms) for outcome in self._tried.values())
        choices = {str(item): item.fragment.expects for item in self._dimensions}
        if self._settings.autotune_log_search_space:
            said = f"{num_tried} of {self._num_possible:.3g} configs tried, {num_valid} of them ran"
            lines = [f"{item}: {item.fragment.cardinality} choices" for item in self._dimensions]
            if self._settings.autotune_log_search_space_verbose:
                lines = [f"{name}: {expected}" for name, expected in choices.items()]
            LOG.warning("%s", "\n  ".join([f"search space of {self._name}: {said}", *lines]))
        if folder is not None:
            found = {"possible": self._num_possible, "tried": num_tried, "valid": num_valid}
            text = json_line({"kernel": self._name, **found, "dimensions": choices})
            path = Path(folder) / f"{self._name}.{digest_text(text, length=8)}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")


def outcome_record(outcome: Outcome, progress: Progress) -> dict[str, Any]:
    """All there is to know of one trial, as plain values."""
    return {
        "timestamp_s": progress.elapsed_s,
        "generation": progress.generation,
        "config_id": config_id(outcome.config),
        "config": outcome.config.config,
        "origin": outcome.candidate.origin,
        "predicted_ms": outcome.candidate.predicted_ms,
        "status": outcome.verdict.value,
        "reason": outcome.reason,
        "perf_ms": outcome.time_ms,
        "low_ms": outcome.low_ms,
        "high_ms": outcome.high_ms,
        "samples_ms": list(outcome.samples_ms),
        "compile_time_s": outcome.build_s,
        "resources": asdict(outcome.resources),
        "is_recalled": outcome.is_recalled,
        "is_disturbed": outcome.is_disturbed,
    }


def result_record(result: TuneResult) -> dict[str, Any]:
    """The end of a search, as plain values."""
    plain = {name: value for name, value in vars(result).items() if name != "failures"}
    return {
        **plain,
        "config": result.config.config,
        "stop": result.stop.value,
        "counts": {verdict.value: count for verdict, count in result.counts.items()},
        "timeline": result.timeline.seconds,
        "num_failures": len(result.failures),
        "paste": result.paste_line,
    }


def _csv_line(values: tuple[object, ...]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(values)
    return text.getvalue()


def choose_listeners(options: TuneOptions) -> tuple[Listener, ...]:
    """Log, progress bar, tables, and the picture and page that are made at the end."""
    is_quiet = options.log_level > logging.INFO
    settings = options.settings
    bar = make_progress(is_enabled=settings.autotune_progress_bar and not is_quiet)
    # The bar is gone before the log says how it ended.
    found: list[Listener] = [] if bar is None else [bar]
    tells_failures = not settings.autotune_ignore_errors
    found.append(LogListener(options.log_level, tells_failures=tells_failures))
    if settings.autotune_log_details and settings.autotune_log is None:
        LOG.warning("no file gets the details of the search: autotune_log=PATH names one")
    if settings.autotune_log is not None:
        prefix = Path(settings.autotune_log)
        found += [TableListener(prefix), ReportListener(prefix)]
    return tuple(found)
