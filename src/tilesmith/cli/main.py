"""The ``tilesmith`` command."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer

from tilesmith.cli.commands import LazyCommands, add_names

app = typer.Typer(
    name="tilesmith",
    cls=LazyCommands,
    help="PyTorch with tiles: kernels for GPUs and CPUs.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # its columns cut words off at the width of an ordinary terminal
    pretty_exceptions_enable=False,
)


def _show_version(is_wanted: bool) -> None:
    if not is_wanted:
        return
    try:
        number = version("tilesmith")
    except PackageNotFoundError:
        number = "that is not installed"
    typer.echo(f"tilesmith {number}")
    raise typer.Exit


@app.callback()
def _commands(
    has_version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="say which it is"),
    ] = False,
) -> None:
    """PyTorch with tiles: kernels for GPUs and CPUs."""


add_names(app)


def main() -> None:
    """What the console script calls."""
    app()
