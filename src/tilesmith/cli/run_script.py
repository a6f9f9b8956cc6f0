"""``tilesmith run``: a script as ``python`` would run it, with Helion's names resolving to ours."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from types import TracebackType
from typing import Annotated

import typer

from tilesmith.cli.helion_names import install_helion_names
from tilesmith.settings import adopt_variables

SETTINGS = {"allow_interspersed_args": False, "ignore_unknown_options": True}
"""Options after the script are the script's."""


def add_run_command(app: typer.Typer) -> None:
    """Make ``tilesmith run`` known."""
    app.command(context_settings=SETTINGS)(run)


def run(
    script: Annotated[Path, typer.Argument(help="a Python file", exists=True, dir_okay=False)],
    arguments: Annotated[list[str] | None, typer.Argument(help="what the script is given")] = None,
) -> None:
    """Run a script, also one written for Helion. Its `import helion` finds Tilesmith."""
    run_script(script, arguments or [])


def run_script(script: Path, arguments: list[str]) -> None:
    """Run it as ``__main__``; an exception ends the process as it would without us."""
    adopt_variables("HELION_")
    install_helion_names()
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.resolve().parent))
    # Command-line libraries bring a hook of their own; the script may still set another.
    sys.excepthook = sys.__excepthook__
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit:
        raise
    except BaseException as error:
        _report(error, str(script))
        raise SystemExit(130 if isinstance(error, KeyboardInterrupt) else 1) from None


def _report(error: BaseException, script: str) -> None:
    """The traceback from the script's own frames on."""
    shown = error.with_traceback(_from_script(error.__traceback__, script))
    sys.excepthook(type(shown), shown, shown.__traceback__)


def _from_script(found: TracebackType | None, script: str) -> TracebackType | None:
    place = found
    while place is not None and place.tb_frame.f_code.co_filename != script:
        place = place.tb_next
    # A script that does not compile has no frame.
    return place
