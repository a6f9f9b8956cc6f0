"""Imports an exported module from its text."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType


def import_text(source: str, folder: str) -> ModuleType:
    """The module; Triton reads the source of functions from their file, kept in ``folder``."""
    path = Path(folder) / "exported.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location("exported", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
