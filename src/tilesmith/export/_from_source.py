"""Compiles code of a package from its source, on a GPU that no binary was made for.

Every exported package has a copy of this file. It is imported only there, and needs Triton.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any


def find_problem() -> str:
    """Why nothing can be compiled here; empty if it can."""
    is_there = importlib.util.find_spec("triton") is not None
    return "" if is_there else "triton, which could compile its source, is not installed"


@lru_cache(maxsize=256)
def launch_function(path: Path) -> Callable[..., None]:
    """The function ``launch`` of a source; Triton compiles at its first call on a device."""
    spec = importlib.util.spec_from_file_location(f"tilesmith_source_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.launch


def run(path: Path, values: tuple[Any, ...]) -> str:
    """Launch a source; says why not. What Triton has against it on this GPU is part of that."""
    problem = find_problem()
    if problem:
        return problem
    try:
        launch_function(path)(*values)
    except Exception as error:  # compilers raise what they like
        return f"compiling its source failed: {type(error).__name__}: {str(error)[:500]}"
    return ""
