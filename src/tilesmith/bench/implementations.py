"""The implementations of an operator by name, and how a worker makes a function of one."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from importlib.machinery import PathFinder
from importlib.metadata import PackageNotFoundError, version
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from tilesmith.bench.case import Operator
from tilesmith.bench.row import Owner

OURS, EAGER, HELION = "tilesmith", "eager", "helion"
Function = Callable[..., Any]
_OUR_IMPORTS = re.compile(
    r"^(\s*)(import|from) tilesmith(?=\.language|\.autotuner|\.runtime| as | import )", re.MULTILINE
)


class ImplementationKind(str, Enum):
    """How an implementation is made."""

    DEFAULT = "our kernel as a first call takes it, without any search"
    TUNED = "our kernel after a search"
    EAGER = "PyTorch"
    COMPILED = "torch.compile"
    COMPILED_MAX = "torch.compile, max-autotune"
    FUNCTION = "a function from any module"
    HELION = "our kernel's source under Helion"


@dataclass(frozen=True)
class Implementation:
    """One way to compute an operator."""

    name: str
    kind: ImplementationKind
    target: str = ""
    """As ``module:function``; empty where the operator has it."""
    is_installed: bool = True

    def answers_to(self, pattern: str) -> bool:
        """Whether a name or pattern means it: its own name, or that of its kind for any kernel."""
        general = {
            ImplementationKind.DEFAULT: OURS,
            ImplementationKind.TUNED: f"{OURS}_tuned",
            ImplementationKind.HELION: HELION,
        }
        return pattern == general.get(self.kind) or fnmatchcase(self.name, pattern)

    @property
    def owner(self) -> Owner:
        """Whether it is ours; failures of others are no failures of a run."""
        is_ours = self.kind in (ImplementationKind.DEFAULT, ImplementationKind.TUNED)
        return Owner.OURS if is_ours else Owner.THEIRS


def implementations_of(operator: Operator, plugins: Iterable[str] = ()) -> list[Implementation]:
    """Ours first, then PyTorch, then others; plug-ins are ``[operator=]module:function``.

    A name that comes twice means the last.
    """
    # What is added to names of kernels is nothing where there is one only.
    names = [f"_{name}" for name in operator.kernels] if len(operator.kernels) > 1 else [""]
    kernels = list(zip(names, operator.kernels.values()))
    found: list[Implementation] = []
    for suffix, target in kernels:
        found.append(Implementation(f"{OURS}{suffix}", ImplementationKind.DEFAULT, target))
        found.append(Implementation(f"{OURS}{suffix}_tuned", ImplementationKind.TUNED, target))
    found.append(Implementation(EAGER, ImplementationKind.EAGER))
    found.append(Implementation("torch_compile", ImplementationKind.COMPILED))
    found.append(Implementation("torch_compile_max", ImplementationKind.COMPILED_MAX))
    for name, target in operator.others.items():
        found.append(Implementation(name, ImplementationKind.FUNCTION, target))
    for suffix, target in kernels:
        name, is_there = f"{HELION}{suffix}", is_helion_installed()
        found.append(Implementation(name, ImplementationKind.HELION, target, is_there))
    for text in plugins:
        owner, _, target = text.rpartition("=")
        if owner in ("", operator.name):
            found.append(Implementation(plugin_name(target), ImplementationKind.FUNCTION, target))
    return list({implementation.name: implementation for implementation in found}.values())


def is_helion_installed() -> bool:
    """Whether there is a package of that name; our own names under that alias are none."""
    try:
        return bool(version(HELION))
    except PackageNotFoundError:
        return PathFinder.find_spec(HELION) is not None


def plugin_name(target: str) -> str:
    """What a plug-in is called: ``fast.products:matmul`` is ``products.matmul``."""
    module, _, function = target.partition(":")
    return f"{module.rpartition('.')[2]}.{function}"


COMPILE_MODES = {
    ImplementationKind.COMPILED: "default",
    # Graphs are captured by the timer, for all implementations alike.
    ImplementationKind.COMPILED_MAX: "max-autotune-no-cudagraphs",
}


class NotAvailableError(Exception):
    """The implementation is not there; no failure of anyone."""


def preloaded_for(implementation: Implementation) -> tuple[str, ...]:
    """What a process of its should have done before it begins, as a BuildPool takes it."""
    must_compile = implementation.kind in COMPILE_MODES
    return (f"{__name__}:{import_compiler.__name__}",) if must_compile else ()


def import_compiler() -> None:
    """Import what torch.compile needs, which takes seconds; no device or thread is involved."""
    torch.compile(lambda: None, dynamic=False, mode=COMPILE_MODES[ImplementationKind.COMPILED])


def load_function(implementation: Implementation, operator: Operator) -> Function:
    """The function; what compiles does so at its first call."""
    if implementation.kind is ImplementationKind.EAGER:
        return operator.eager
    if implementation.kind in COMPILE_MODES:
        mode = COMPILE_MODES[implementation.kind]
        return torch.compile(operator.eager, dynamic=False, mode=mode)
    name, _, function = implementation.target.partition(":")
    try:
        is_helion = implementation.kind is ImplementationKind.HELION
        module = _helion_module(name) if is_helion else importlib.import_module(name)
    except ModuleNotFoundError as error:
        if implementation.kind is not ImplementationKind.FUNCTION:
            raise
        # A library that a function of others needs and that is not installed is no failure.
        raise NotAvailableError(str(error)) from error
    found = attrgetter(function)(module)
    if not callable(found):
        raise TypeError(f"{implementation.target} is no function but {type(found).__name__}")
    return found


def _helion_module(name: str) -> ModuleType:
    """The module of one of our kernels, its source importing Helion in our place."""
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
