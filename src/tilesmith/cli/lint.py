"""``tilesmith lint file.py``: what would fail when called, found without running the file."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import typer

from tilesmith.cli.output import show, tell
from tilesmith.diagnostics.wording import counted
from tilesmith.lab.reports import json_line
from tilesmith.lint.file_checks import check_file, count_kernels
from tilesmith.lint.kernel_checks import Mistake

FOUND, USAGE_ERROR = 1, 2


def lint(
    files: Annotated[list[Path], typer.Argument(help="Python files, or folders of them")],
    is_json: Annotated[bool, typer.Option("--json", help="one JSON object a line")] = False,
    is_short: Annotated[
        bool, typer.Option("--short", help="one line for each, as editors read them")
    ] = False,
) -> None:
    """Report what would fail when called, without running it.

    Only the text is read: nothing of the file is imported or called. What depends on arguments
    (shapes, element types) is left to the call.
    """
    paths = [path for given in files for path in _files(given)]
    found = [mistake for path in paths for mistake in check_file(path)]
    for mistake in found:
        show(_json(mistake) if is_json else line_of(mistake) if is_short else text_of(mistake))
    if not is_json:
        kernels = sum(map(count_kernels, paths))
        tell(f"{counted(len(found), 'mistake')} in {counted(kernels, 'kernel')}")
    raise typer.Exit(FOUND if found else 0)


def _files(given: Path) -> list[Path]:
    if given.is_dir():
        return sorted(given.rglob("*.py"))
    if not given.is_file():
        near = get_close_matches(given.name, [path.name for path in given.parent.glob("*.py")], n=1)
        tell(f"error: no file {given}" + (f"; did you mean {near[0]}?" if near else ""))
        raise typer.Exit(USAGE_ERROR)
    return [given]


def _column(mistake: Mistake) -> int:
    return (mistake.loc.columns or (0, None))[0] + 1


def line_of(mistake: Mistake) -> str:
    """``file:line:column: kind: message``, which editors and terminals make a link."""
    message = mistake.text.partition("\n")[0]
    place = f"{mistake.loc.file}:{mistake.loc.line}:{_column(mistake)}"
    return f"{place}: {mistake.kind}: {message}"


def text_of(mistake: Mistake) -> str:
    """The same, then the lines of the source and what to do."""
    _, newline, rest = mistake.text.partition("\n")
    return line_of(mistake) + (f"{newline}{rest}\n" if rest else "\n")


def _json(mistake: Mistake) -> str:
    return json_line(
        {
            "file": mistake.loc.file,
            "line": mistake.loc.line,
            "column": _column(mistake),
            "kind": mistake.kind,
            "message": mistake.text,
        }
    )


def add_to(app: typer.Typer) -> None:
    """Make ``tilesmith lint`` known."""
    app.command()(lint)
