"""Finished benchmark runs, read from their files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tilesmith.bench.journal import Results, read_journal
from tilesmith.cli.output import UsageError, tell
from tilesmith.diagnostics.wording import counted

_EXPECTED = "expected a file as tilesmith bench --out writes it"


def load_results(*paths: Path) -> Results:
    """A finished run from its file, or from several: of a row that is in more, the last counts."""
    parts = [_load_file(path) for path in paths]
    first = parts[0]
    for path, part in zip(paths, parts):
        if part.environment.get("device") != first.environment.get("device"):
            raise UsageError(f"{path}: its device is not that of {paths[0]}")
        if part.run.get("software") != first.run.get("software"):
            raise UsageError(f"{path}: its versions are not those of {paths[0]}")
    rows = {row.key: row for part in parts for row in part.rows}
    return replace(first, rows=list(rows.values()))


def _load_file(path: Path) -> Results:
    try:
        results = read_journal(path)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; {_EXPECTED}") from None
    if not results.rows:
        raise UsageError(f"{path} has no rows of a benchmark; {_EXPECTED}")
    if results.num_unreadable:
        lines = counted(results.num_unreadable, "line")
        tell(f"warning: {lines} of {path} cannot be read")
    return results
