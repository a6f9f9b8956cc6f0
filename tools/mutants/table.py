"""The table of mutants in CONTRIBUTING.md: written from the list, between two marks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tools.mutants.mutant import ROOT, Mutant

PAGE = ROOT / "CONTRIBUTING.md"
BEGIN = "<!-- mutants: written by `python -m tools.mutants --write` -->"
END = "<!-- end of mutants -->"


def render(mutants: Sequence[Mutant]) -> str:
    """The rows, one per mutant."""
    lines = ["| part | mistake | noticed by |", "|---|---|---|"]
    for mutant in mutants:
        tests = ", ".join(f"`{test}`" for test in mutant.tests)
        lines.append(f"| {mutant.area} | {mutant.name.replace('|', chr(92) + '|')} | {tests} |")
    return "\n".join(lines)


def with_table(text: str, mutants: Sequence[Mutant]) -> str:
    """The page with the table of these mutants in it."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{render(mutants)}\n{END}{after}"


def write_table(mutants: Sequence[Mutant], page: Path = PAGE) -> None:
    """Bring the page up to date."""
    page.write_text(with_table(page.read_text(encoding="utf-8"), mutants), encoding="utf-8")
