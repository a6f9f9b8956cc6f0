"""``tilesmith run``: a script as ``python`` would run it, with Helion's names resolving to ours.

Modules are shared, not copied: ``helion.language`` *is* ``tilesmith.language``.
"""

from __future__ import annotations

import importlib
import runpy
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer
from typing_extensions import override

from tilesmith.settings import adopt_variables

ALIAS, PACKAGE = "helion", "tilesmith"
SETTINGS = {"allow_interspersed_args": False, "ignore_unknown_options": True}
"""Options after the script are the script's."""
MOVED = {
    "helion.autotuner.config_fragment": "tilesmith.schedule.space.fragments",
    "helion.autotuner.external": "tilesmith.autotuner",
    "helion.runtime.config": "tilesmith.schedule.config",
    "helion.runtime.kernel": "tilesmith.jit.kernel",
    "helion.runtime.settings": "tilesmith.settings",
}
"""Modules that stand elsewhere here."""
WHOLE = "tilesmith.tune.autotune"
"""Loads every part that a kernel needs."""


def add_to(app: typer.Typer) -> None:
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
    """The traceback from the script's own frames on; one that does not compile has none."""
    place = error.__traceback__
    while place is not None and place.tb_frame.f_code.co_filename != script:
        place = place.tb_next
    sys.excepthook(type(error), error.with_traceback(place), place)


def install_helion_names() -> None:
    """From now on, modules of that name resolve to ours."""
    if not any(isinstance(finder, _AliasFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AliasFinder())
    for name in MOVED:
        # Scripts write `helion.runtime.config` after `import helion` alone.
        importlib.import_module(name)
    # Now, before files next to a script can hide the libraries that we need.
    importlib.import_module(WHOLE)


class _AliasFinder(MetaPathFinder):
    @override
    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] != ALIAS:
            return None
        own = MOVED.get(fullname, PACKAGE + fullname.removeprefix(ALIAS))
        try:
            module = importlib.import_module(own)
        except ModuleNotFoundError as error:
            if error.name != own:
                raise
            raise ModuleNotFoundError(
                f"No module named {fullname!r}: {PACKAGE} has no counterpart", name=fullname
            ) from None
        is_package = hasattr(module, "__path__") or any(n.startswith(f"{fullname}.") for n in MOVED)
        return ModuleSpec(fullname, _AliasLoader(module), is_package=is_package)


class _AliasLoader(Loader):
    """Hands out a module that is loaded already."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module
        self._spec = module.__spec__

    @override
    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._module

    @override
    def exec_module(self, module: ModuleType) -> None:
        # The import system has just written the alias's spec over the module's own.
        module.__spec__ = self._spec
