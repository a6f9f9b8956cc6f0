"""Lets ``import helion`` mean this package, in the process that asks for it and nowhere else.

Modules are shared, not copied: ``helion.language`` *is* ``tilesmith.language``.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from typing_extensions import override

ALIAS, PACKAGE = "helion", "tilesmith"
MOVED = {
    "helion.autotuner.config_fragment": "tilesmith.schedule.space.fragments",
    "helion.runtime.config": "tilesmith.schedule.config",
    "helion.runtime.kernel": "tilesmith.jit.kernel",
    "helion.runtime.settings": "tilesmith.settings",
}
"""Modules that stand elsewhere here."""
WHOLE = "tilesmith.tune.autotune"
"""Loads every part that a kernel needs."""


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
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
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
