"""The commands in the order of the help; the module of one is loaded when it is used.

What a command needs (torch, the compiler) takes seconds to load, and asking for help needs none.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_group
from typing_extensions import override


@dataclass(frozen=True)
class Place:
    """Where a command is made, and its first sentence."""

    module: str
    function: str
    """Adds it, and perhaps others, to an application."""
    summary: str


COMMANDS = {
    "run": Place("run_script", "add_run_command", "Run a script, also one written for Helion."),
    "tune": Place(
        "tune", "add_tune_command", "Find the fastest config of a kernel for given arguments."
    ),
    "facts": Place(
        "explain",
        "add_explain_commands",
        "What a kernel multiplies, reduces and moves, in its own names.",
    ),
    "explain": Place(
        "explain",
        "add_explain_commands",
        "Which config a kernel gets without a search, and why.",
    ),
    "accuracy": Place(
        "accuracy", "add_accuracy_command", "Which of several results is wrong, and why."
    ),
    "bench": Place(
        "bench", "add_bench_command", "Run kernels against eager, torch.compile and others."
    ),
    "compare": Place(
        "compare", "add_compare_command", "Say what got faster or slower beyond noise."
    ),
    "cache": Place("cache", "add_cache_commands", "What tuning has left on disk."),
}


class LazyCommands(TyperGroup):
    """A group whose own commands are names with a summary: the real one comes when it is used."""

    @override
    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, known, rest = super().resolve_command(ctx, args)
        return name, load_command(name) if name in COMMANDS else known, rest


def add_names(app: typer.Typer) -> None:
    """Make the commands known by their names."""
    for name, place in COMMANDS.items():
        app.command(name, help=place.summary)(_unloaded)


def load_command(name: str) -> Any:
    """The command itself, from its module."""
    place = COMMANDS[name]
    app = typer.Typer(rich_markup_mode=None)
    getattr(importlib.import_module(f"tilesmith.cli.{place.module}"), place.function)(app)
    return get_group(app).commands[name]


def _unloaded() -> None:
    """Stands for a command until it is used."""
