"""``tilesmith puzzles``: lists and shows twelve tasks, writes files to start from, checks them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilesmith.cli.kernel_reference import ReferenceNotFoundError, kernels_of
from tilesmith.cli.output import show, tell
from tilesmith.lab.reports import json_line
from tilesmith.puzzles.checking import Outcome
from tilesmith.puzzles.puzzle import Puzzle
from tilesmith.puzzles.table import puzzle, puzzle_notebook, puzzles

UNSOLVED, USAGE_ERROR = 1, 2
puzzles_app = typer.Typer(help="Twelve small tasks that teach tiles.", no_args_is_help=True)
Number = Annotated[str, typer.Argument(help="its number, 1 to 12, or the name of its kernel")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="the file to write")]
Force = Annotated[bool, typer.Option("--force", help="also over a file that is there")]


def _find(number: str) -> Puzzle:
    try:
        return puzzle(number)
    except LookupError as error:
        raise _usage_error(str(error.args[0])) from None


def _usage_error(text: str) -> typer.Exit:
    tell(f"error: {text}")
    return typer.Exit(USAGE_ERROR)


def _write(path: Path, text: str, *, is_forced: bool) -> None:
    if path.exists() and not is_forced:
        raise _usage_error(f"{path} exists; --force writes over it")
    path.write_text(text, encoding="utf-8")


@puzzles_app.command("list")
def list_puzzles(
    is_json: Annotated[bool, typer.Option("--json", help="as JSON")] = False,
) -> None:
    """Name all of them."""
    if is_json:
        made = {item.name: {"number": item.number, "title": item.title} for item in puzzles()}
        show(json_line(made))
        return
    show("\n".join(f"{item.number:>2}  {item.name:<13} {item.title}" for item in puzzles()))


@puzzles_app.command("show")
def show_puzzle(number: Number) -> None:
    """Show a task and the kernel to complete."""
    show(_find(number).text)


@puzzles_app.command()
def start(number: Number, output: Output = None, is_forced: Force = False) -> None:
    """Write a file with the kernel to complete."""
    item = _find(number)
    path = output or Path(f"puzzle_{item.number}.py")
    _write(path, item.file, is_forced=is_forced)
    show(f"wrote {path}; complete it, then: tilesmith puzzles check {path}")


@puzzles_app.command()
def hint(number: Number) -> None:
    """Help a little."""
    show(_find(number).hint)


@puzzles_app.command()
def check(
    file: Annotated[Path, typer.Argument(help="a Python file with one or more kernels")],
    is_json: Annotated[bool, typer.Option("--json", help="one JSON object a line")] = False,
) -> None:
    """Check the kernels of a file that have names of puzzles."""
    names = {item.name: item for item in puzzles()}
    try:
        found = {name: kernel for name, kernel in kernels_of(str(file)).items() if name in names}
    except ReferenceNotFoundError as error:
        raise _usage_error(str(error)) from None
    if not found:
        raise _usage_error(f"{file} has no kernel with the name of a puzzle: {', '.join(names)}")
    outcomes = {name: names[name].check(kernel) for name, kernel in found.items()}
    for name, outcome in outcomes.items():
        show(_json(name, outcome) if is_json else f"{outcome}\n")
    raise typer.Exit(0 if all(one.is_solved for one in outcomes.values()) else UNSOLVED)


def _json(name: str, outcome: Outcome) -> str:
    return json_line(
        {
            "name": name,
            "is_solved": outcome.is_solved,
            "problem": outcome.problem,
            "picture": outcome.picture,
        }
    )


@puzzles_app.command("notebook")
def write_notebook(output: Output = None, is_forced: Force = False) -> None:
    """Write all of them as a notebook."""
    path = output or Path("puzzles.ipynb")
    _write(path, puzzle_notebook(), is_forced=is_forced)
    show(f"wrote {path}")


def add_to(app: typer.Typer) -> None:
    """Make ``tilesmith puzzles`` known."""
    app.add_typer(puzzles_app, name="puzzles")
