"""Finished benchmark runs, read from their files."""

from __future__ import annotations

from pathlib import Path

from tilesmith.bench.journal import Results, read_journal
from tilesmith.cli.output import UsageError, tell
from tilesmith.diagnostics.wording import counted

_EXPECTED = "expected a file as tilesmith bench --out writes it"


def load_results(path: Path) -> Results:
    """A finished run from its file."""
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
