"""The ``tilesmith`` command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilesmith.cli.accuracy import add_accuracy_command
from tilesmith.cli.bench import add_bench_command
from tilesmith.cli.cache import add_cache_commands
from tilesmith.cli.compare import add_compare_command
from tilesmith.cli.explain import add_explain_commands
from tilesmith.cli.run_script import run_script
from tilesmith.cli.tune import add_tune_command

app = typer.Typer(
    name="tilesmith",
    help="PyTorch with tiles: kernels for GPUs and CPUs.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # its columns cut words off at the width of an ordinary terminal
    pretty_exceptions_enable=False,
)


@app.callback()
def _commands() -> None:
    """PyTorch with tiles: kernels for GPUs and CPUs."""


@app.command(context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True})
def run(
    script: Annotated[Path, typer.Argument(help="a Python file", exists=True, dir_okay=False)],
    arguments: Annotated[list[str] | None, typer.Argument(help="what the script is given")] = None,
) -> None:
    """Run a script, also one written for Helion. Its `import helion` finds Tilesmith."""
    run_script(script, arguments or [])


add_tune_command(app)
add_cache_commands(app)
add_explain_commands(app)
add_accuracy_command(app)
add_bench_command(app)
add_compare_command(app)


def main() -> None:
    """What the console script calls."""
    app()
