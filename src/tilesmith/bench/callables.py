"""From an implementation's description to a function of the arguments."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from tilesmith.bench.case import Operator
from tilesmith.bench.implementations import HELION, Implementation, Kind

Function = Callable[..., Any]
COMPILE_MODES = {
    Kind.COMPILED: "default",
    # Graphs are captured by the timer, for all implementations alike.
    Kind.COMPILED_MAX: "max-autotune-no-cudagraphs",
}
COMPILER = "tilesmith.bench.callables:import_compiler"
_OUR_IMPORTS = re.compile(
    r"^(\s*)(import|from) tilesmith(?=\.language|\.autotuner|\.runtime| as | import )", re.MULTILINE
)


class NotAvailableError(Exception):
    """The implementation is not there; no failure of anyone."""


def preloaded_for(implementation: Implementation) -> tuple[str, ...]:
    """What a process of its should have done before it begins, as a BuildPool takes it."""
    return (COMPILER,) if implementation.kind in COMPILE_MODES else ()


def import_compiler() -> None:
    """Import what torch.compile needs, which takes seconds; no device or thread is involved."""
    torch.compile(lambda: None, dynamic=False, mode=COMPILE_MODES[Kind.COMPILED])


def load_function(implementation: Implementation, operator: Operator) -> Function:
    """The function; what compiles does so at its first call."""
    if implementation.kind is Kind.EAGER:
        return operator.eager
    if implementation.kind in COMPILE_MODES:
        mode = COMPILE_MODES[implementation.kind]
        return torch.compile(operator.eager, dynamic=False, mode=mode)
    if implementation.kind is Kind.HELION:
        return _attribute(_helion_module(implementation.target), implementation.target)
    if implementation.kind is Kind.FUNCTION:
        return _load_foreign(implementation.target)
    module = importlib.import_module(_module_name(implementation.target))
    return _attribute(module, implementation.target)


def _load_foreign(target: str) -> Function:
    """A function of others; a library that it needs and that is not installed is no failure."""
    try:
        module = importlib.import_module(_module_name(target))
    except ModuleNotFoundError as error:
        raise NotAvailableError(str(error)) from error
    return _attribute(module, target)


def _module_name(target: str) -> str:
    return target.partition(":")[0]


def _attribute(module: ModuleType, target: str) -> Function:
    found: Any = module
    for part in target.partition(":")[2].split("."):
        found = getattr(found, part)
    if not callable(found):
        raise TypeError(f"{target} is no function but {type(found).__name__}")
    return found


def _helion_module(target: str) -> ModuleType:
    """The module of one of our kernels, its source importing Helion in our place."""
    name = _module_name(target)
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise NotAvailableError(f"{name} has no source")
    text, count = _OUR_IMPORTS.subn(rf"\1\2 {HELION}", Path(spec.origin).read_text())
    if count == 0:
        raise NotAvailableError(f"{name} imports no tilesmith to be replaced")
    # Helion reads a kernel's source from its file, so there must be one.
    path = Path(tempfile.mkdtemp()) / f"{name.replace('.', '_')}_under_{HELION}.py"
    path.write_text(text)
    renamed = importlib.util.spec_from_file_location(path.stem, path)
    if renamed is None or renamed.loader is None:
        raise NotAvailableError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(renamed)
    sys.modules[path.stem] = module
    renamed.loader.exec_module(module)
    return module
