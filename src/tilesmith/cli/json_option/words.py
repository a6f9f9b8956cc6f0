"""``--json`` alone prints to standard output, ``--json FILE`` writes a file.

Typer knows no option whose value may be left out: the value is put there before it looks. What
follows is a file unless it is an option or names a kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tilesmith.cli.output import UsageError

OPTION = "--json"
STDOUT = Path("-")
HELP = "as JSON, instead of text; with a FILE beside the text"


def with_place(words: Sequence[str]) -> list[str]:
    """The words of a command, with what ``--json`` stands for where nothing is said.

    Example:
        >>> with_place(["--json", "--quiet"]), with_place(["--json", "a.json"])
        (['--json', '-', '--quiet'], ['--json', 'a.json'])
    """
    placed: list[str] = []
    for word, after in zip(words, [*words[1:], "--"]):
        placed.append(word)
        is_file = after == str(STDOUT) or not (after.startswith("-") or ":" in after)
        if word == OPTION and not is_file:
            placed.append(str(STDOUT))
    return placed


def write_json(text: str, place: Path | None) -> None:
    """Write the file that ``--json`` names, if it names one."""
    if place in (None, STDOUT):
        return
    try:
        place.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{place} cannot be written: {error.strerror}") from None
