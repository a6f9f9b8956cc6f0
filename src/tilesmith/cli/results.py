"""Finished benchmark runs, read from their files."""

from __future__ import annotations

from pathlib import Path

from tilesmith.bench.journal import read_journal
from tilesmith.bench.report.html import Results
from tilesmith.cli.output import UsageError, tell
from tilesmith.diagnostics.wording import counted

_EXPECTED = "expected a file as tilesmith bench --out writes it"


def load_results(path: Path) -> Results:
    """A finished run from its file."""
    try:
        journal = read_journal(path)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; {_EXPECTED}") from None
    if not journal.rows:
        raise UsageError(f"{path} has no rows of a benchmark; {_EXPECTED}")
    if journal.num_unreadable:
        lines = counted(journal.num_unreadable, "line")
        tell(f"warning: {lines} of {path} cannot be read")
    return Results(journal.rows, journal.run)
