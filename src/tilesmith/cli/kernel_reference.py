"""``module:kernel`` or ``path/to/file.py:kernel`` to the object it names."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

from tilesmith.cli.helion_names import install_helion_names
from tilesmith.diagnostics.wording import kind_of
from tilesmith.jit.kernel import Kernel


class ReferenceNotFoundError(Exception):
    """A reference that leads nowhere, with what was perhaps meant."""


def find_kernel(reference: str) -> Kernel:
    """The kernel of a reference; the name may be left out where a module has only one."""
    place, name = _split(reference)
    module = _load(place)
    kernels = {key: value for key, value in vars(module).items() if isinstance(value, Kernel)}
    if not name:
        return _only_kernel(place, kernels)
    found = _find_attribute(module, place, name, kernels)
    if not isinstance(found, Kernel):
        raise ReferenceNotFoundError(
            f"{place}:{name} is no kernel but {kind_of(found)}; {_listed('kernels', kernels)}"
        )
    return found


def find_function(reference: str) -> Callable[..., Any]:
    """The function of a reference, e.g. one that returns arguments."""
    place, name = _split(reference)
    if not name:
        raise ReferenceNotFoundError(f"{reference}: name the function, as in module:function")
    module = _load(place)
    functions = {key: value for key, value in vars(module).items() if callable(value)}
    found = _find_attribute(module, place, name, functions)
    if not callable(found):
        raise ReferenceNotFoundError(f"{place}:{name} is no function but {kind_of(found)}")
    return found


def _split(reference: str) -> tuple[str, str]:
    place, colon, name = reference.rpartition(":")
    return (place, name) if colon else (reference, "")


def _only_kernel(place: str, kernels: dict[str, Kernel]) -> Kernel:
    if len(kernels) == 1:
        return next(iter(kernels.values()))
    raise ReferenceNotFoundError(f"which kernel of {place}? {_listed('kernels', kernels)}")


def _find_attribute(module: ModuleType, place: str, name: str, known: Iterable[str]) -> Any:
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise ReferenceNotFoundError(f"{place} has no {name}; {_near(name, known)}")
        found = getattr(found, part)
    return found


def _load(place: str) -> ModuleType:
    """Import a module, or a file under the name of its stem."""
    install_helion_names()
    path = Path(place)
    try:
        return _load_file(path) if path.suffix == ".py" else _load_module(place)
    except SystemExit as error:
        # A script that reads its command line and has no `if __name__ == "__main__"`.
        raise ReferenceNotFoundError(f"{place} called sys.exit({error.code!r})") from error


def _load_module(place: str) -> ModuleType:
    if "" not in sys.path:
        # As `python -m` does: modules of the working directory can be named.
        sys.path.insert(0, "")
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        # A module that exists and fails to import another one is not a wrong reference.
        if not error.name or not f"{place}.".startswith(f"{error.name}."):
            raise
        raise ReferenceNotFoundError(f"no module {place}; {_near_modules(place)}") from None
    except (TypeError, ValueError):
        raise ReferenceNotFoundError(f"{place!r} is neither a module nor a .py file") from None


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        beside = path.parent.glob("*.py") if path.parent.is_dir() else ()
        raise ReferenceNotFoundError(f"no file {path}; {_near(str(path), map(str, beside))}")
    known = sys.modules.get(path.stem)
    if (
        known is not None
        and Path(getattr(known, "__file__", None) or "").resolve() == path.resolve()
    ):
        return known
    sys.path.insert(0, str(path.resolve().parent))
    name = path.stem if path.stem not in sys.modules else f"{path.stem}_of_command_line"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ReferenceNotFoundError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses and pickles look a module up by its name.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _near_modules(place: str) -> str:
    parent, _, _ = place.rpartition(".")
    try:
        paths = list(importlib.import_module(parent).__path__) if parent else None
    except (ImportError, AttributeError):
        return f"{parent} is no package either"
    prefix = f"{parent}." if parent else ""
    return _near(place, (prefix + found.name for found in pkgutil.iter_modules(paths)))


def _near(name: str, known: Iterable[str]) -> str:
    names = sorted(set(known))
    near = get_close_matches(name, names, n=3)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return _listed("there are", names) if len(names) <= 20 else "nothing has a similar name"


def _listed(what: str, names: Iterable[str]) -> str:
    return f"{what}: {', '.join(sorted(names)) or 'none'}"
