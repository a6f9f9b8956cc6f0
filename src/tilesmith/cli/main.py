"""The ``tilesmith`` command; its subcommands are loaded when they are used: help needs no torch."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_group
from typing_extensions import override

from tilesmith.cli.json_option.words import OPTION, with_place
from tilesmith.diagnostics.file_problems import FILE_ERRORS, file_problem
from tilesmith.version import __version__

COMMANDS = {
    "run": ("run_script", "Run a script, also one written for Helion."),
    "tune": ("tune", "Find the fastest config of a kernel for given arguments."),
    "dispatch": ("dispatch.command", "Search a few configs for many shapes."),
    "record": ("recording", "Run a script, and write what its kernels are called with."),
    "facts": (
        "explain",
        "What a kernel multiplies, reduces and moves, in its own names.",
    ),
    "explain": ("explain", "Which config a kernel gets without a search, and why."),
    "explore": ("explore", "Write a page about a kernel, from source to machine code."),
    "accuracy": ("accuracy", "Which of several results is wrong, and why."),
    "bench": ("bench", "Run kernels against eager, torch.compile and others."),
    "compare": ("compare", "Say what got faster or slower beyond noise."),
    "export": ("export", "Write a package with compiled code, which needs torch alone."),
    "cache": ("team", "What tuning has left on disk."),
    "lint": ("lint", "Report what would fail when called, without running it."),
    "puzzles": ("puzzles", "Twelve small tasks that teach tiles."),
    "new": ("setup.new", "Write a kernel with a test and a benchmark to start from."),
    "doctor": ("setup.doctor", "Say what is installed and what works here."),
    "completion": ("setup.completion", "Print a script that completes commands and options."),
}
"""The module whose ``add_to`` adds the command to an application, and its first sentence."""

USAGE_ERROR = 2
SHIPPED = Path(__file__).parents[1] / "shipped"
"""Where a wheel has ``examples`` and ``benchmarks``; in a checkout they lie beside the source."""


class LazyCommands(TyperGroup):
    """A group whose own commands are names with a summary: the real one comes when it is used."""

    @override
    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise
        except FILE_ERRORS as error:
            # A file that a command names, and that is not there or is something else.
            typer.echo(f"error: {file_problem(error)}", err=True)
            raise typer.Exit(USAGE_ERROR) from None

    @override
    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, known, rest = super().resolve_command(ctx, args)
        command: Any = load_command(name) if name in COMMANDS else known
        takes_file = any(OPTION in p.opts and not p.is_flag for p in command.params)
        return name, command, with_place(rest) if takes_file else rest


def load_command(name: str) -> Any:
    """The command itself, from its module."""
    app = typer.Typer(rich_markup_mode=None)
    importlib.import_module(f"tilesmith.cli.{COMMANDS[name][0]}").add_to(app)
    return get_group(app).commands[name]


def _unloaded() -> None:
    """Stands for a command until it is used."""


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
    typer.echo(f"tilesmith {__version__}")
    raise typer.Exit


def _show_help(
    _has_version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="print the version"),
    ] = False,
) -> None:
    """PyTorch with tiles: kernels for GPUs and CPUs."""


app.callback()(_show_help)
for _name, (_, _summary) in COMMANDS.items():
    app.command(_name, help=_summary)(_unloaded)


def main() -> None:
    """What the console script calls."""
    if SHIPPED.is_dir():
        sys.path.append(str(SHIPPED))
    app()
