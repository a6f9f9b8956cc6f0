"""What to say of modules, files and names that are not there: where they were looked for."""

from __future__ import annotations

import pkgutil
import sys
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

MAX_FOLDERS = 3
"""So many places in which a module was looked for are named."""


def no_module(place: str, missing: str) -> str:
    """What was looked for, where, and what helps."""
    parent = missing.rpartition(".")[0]
    folders = _folders_of(parent)
    if not folders:
        return f"no module {place}; {parent} is no package"
    file = f"{place.replace('.', '/')}.py"
    names = {found.name for found in pkgutil.iter_modules(folders)}
    # Modules of Python itself hold no kernels.
    similar = near(missing.rpartition(".")[2], names - sys.stdlib_module_names)
    return "\n".join(
        [
            f"no module {place}; {similar}",
            f"{missing} was looked for in",
            *(f"  {folder}" for folder in folders[:MAX_FOLDERS]),
            *([f"  and {len(folders) - MAX_FOLDERS} more"] if len(folders) > MAX_FOLDERS else []),
            f"go to the folder that has {file}, or name the file: path/to/{file}:NAME",
        ]
    )


def _folders_of(package: str) -> list[str]:
    """Where the modules of a package are looked for; of no package, where Python begins."""
    if package:
        return list(getattr(sys.modules.get(package), "__path__", ()))
    # Commands look into the working folder, too.
    folders = dict.fromkeys([str(Path.cwd()), *(folder or str(Path.cwd()) for folder in sys.path)])
    return [folder for folder in folders if Path(folder).is_dir()]


def no_file(path: Path) -> str:
    """A file that is not there: what lies beside it."""
    folder = path.parent
    if not folder.is_dir():
        return f"no file {path}; there is no folder {folder.absolute()}"
    beside = near(path.name, (found.name for found in folder.glob("*.py")))
    return f"no file {path}; {beside}\n{path.name} was looked for in {folder.absolute()}"


def near(name: str, known: Iterable[str]) -> str:
    """Names like one that does not exist, or all if they are few."""
    names = sorted(set(known))
    similar = get_close_matches(name, names, n=3)
    if similar:
        return f"did you mean {' or '.join(similar)}?"
    return listed("there are", names) if len(names) <= 20 else "nothing has a similar name"


def listed(what: str, names: Iterable[str]) -> str:
    """Names after what they are."""
    return f"{what}: {', '.join(sorted(names)) or 'none'}"
