"""The ``tilesmith`` command."""

from __future__ import annotations

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


@app.callback()
def _commands() -> None:
    """PyTorch with tiles: kernels for GPUs and CPUs."""


add_names(app)


def main() -> None:
    """What the console script calls."""
    app()
