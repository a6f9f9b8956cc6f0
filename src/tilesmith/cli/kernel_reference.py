"""The object that ``module:kernel`` or ``path/to/file.py:kernel`` names.

While a user's file is loaded, modules of Helion's names resolve to ours.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from tilesmith.cli.lost_references import listed, near, no_file, no_module
from tilesmith.cli.run_script import install_helion_names
from tilesmith.diagnostics.file_problems import file_problem
from tilesmith.diagnostics.wording import kind_of
from tilesmith.jit.kernel import Kernel

FORMS = "module:kernel or file.py:kernel"


class ReferenceNotFoundError(Exception):
    """A reference that leads nowhere, with what was perhaps meant."""


def find_kernel(reference: str) -> Kernel:
    """The kernel of a reference; the name may be left out where a module has only one."""
    place, name = _split(reference)
    kernels = kernels_of(place)
    module = _load(place)
    if not name and len(kernels) == 1:
        return next(iter(kernels.values()))
    if not name and not kernels:
        raise ReferenceNotFoundError(f"{place} has no kernel: no function under @tilesmith.kernel")
    if not name:
        raise ReferenceNotFoundError(f"which kernel of {place}? {listed('kernels', kernels)}")
    found = _find_attribute(module, place, name, kernels)
    if not isinstance(found, Kernel):
        raise ReferenceNotFoundError(
            f"{place}:{name} is no kernel but {kind_of(found)}; {listed('kernels', kernels)}"
        )
    return found


def kernels_of(place: str) -> dict[str, Kernel]:
    """All kernels that a module or file has, by name."""
    return {key: value for key, value in vars(_load(place)).items() if isinstance(value, Kernel)}


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


def _find_attribute(module: ModuleType, place: str, name: str, known: Iterable[str]) -> Any:
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise ReferenceNotFoundError(f"{place} has no {name}; {near(name, known)}")
        found = getattr(found, part)
    return found


def _load(place: str) -> ModuleType:
    """Import a module, or a file: as part of its package, else under the name of its stem."""
    install_helion_names()
    if "" not in sys.path:
        # As `python -m` does: modules of the working folder can be named.
        sys.path.insert(0, "")
    path = Path(place)
    try:
        return _load_file(path) if path.suffix == ".py" else _load_module(place)
    except SystemExit as error:
        # A script that reads its command line and has no `if __name__ == "__main__"`.
        raise ReferenceNotFoundError(f"{place} called sys.exit({error.code!r})") from error
    except SyntaxError as error:
        raise ReferenceNotFoundError(file_problem(error, error.filename or place)) from None


def _load_module(place: str) -> ModuleType:
    if not place.strip(".") or place.startswith("."):
        raise ReferenceNotFoundError(
            f"{place!r} is neither a module nor a .py file; expected {FORMS}"
        )
    if Path(place).exists() and not (place in sys.modules or _is_module(place)):
        kind = "folder" if Path(place).is_dir() else "file"
        raise ReferenceNotFoundError(f"{place} is a {kind}; expected {FORMS}")
    if Path(f"{place}.py").is_file() and not place.isidentifier():
        raise ReferenceNotFoundError(f"{place} is no name of a module; did you mean {place}.py?")
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        # A module that exists and fails to import another one is not a wrong reference.
        if not error.name or not f"{place}.".startswith(f"{error.name}."):
            raise
        raise ReferenceNotFoundError(no_module(place, error.name)) from None


def _is_module(place: str) -> bool:
    return place.isidentifier() and bool(getattr(importlib.util.find_spec(place), "origin", None))


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ReferenceNotFoundError(no_file(path))
    whole = path.resolve()
    # The folder to import the file from, and its name from there.
    root, name = whole.parent, whole.stem
    while (root / "__init__.py").is_file() and root.name.isidentifier():
        root, name = root.parent, f"{root.name}.{name}"
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    if "." in name:
        return importlib.import_module(name)
    known = sys.modules.get(name)
    if known is not None and Path(getattr(known, "__file__", None) or "").resolve() == whole:
        return known
    try:
        return _execute(path, name if known is None else f"{name}_of_command_line")
    except ModuleNotFoundError as error:
        # The folder around the file that the module is named after.
        top = (error.name or "").partition(".")[0]
        folder = next((folder for folder in whole.parents if top and folder.name == top), None)
        if folder is None:
            raise
        raise ReferenceNotFoundError(
            f"{path} imports {error.name}: run this in {folder.parent}, which has {folder.name}"
        ) from None


def _execute(path: Path, name: str) -> ModuleType:
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
