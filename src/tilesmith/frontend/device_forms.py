"""What the names that device code reads stand for: Python's ``math``, ``print`` and their like.

Helper functions run as they are, over globals and closure cells in which such names have their
device forms too.
"""

from __future__ import annotations

import builtins
import functools
import math
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any

from tilesmith.frontend.combine import language_form
from tilesmith.frontend.containers import cell_contents, items_of, rebuilt
from tilesmith.frontend.device_builtins import HELPER_BUILTINS
from tilesmith.frontend.device_math import DeviceMath
from tilesmith.frontend.helper_globals import is_library, nested_codes

_SEEN_THROUGH = ("torch", "torch._higher_order_ops")
"""Modules that hold, somewhere below, a function that proxies cannot intercept."""


_CONTAINERS = (list, tuple, dict)
MAX_ITEMS = 64
"""A container larger than this is data of the program, not a parameter of a helper."""


class DeviceForms:
    """Device forms for one trace: every function has one, however it is reached."""

    def __init__(self) -> None:
        self._math = DeviceMath()
        self._functions: dict[FunctionType, FunctionType] = {}

    def of(self, value: Any) -> Any:
        """The device form of a value; most are their own."""
        if isinstance(value, FunctionType) and not is_library(value):
            return self._functions.get(value) or self._function(value)
        if isinstance(value, ModuleType):
            return self._module(value)
        if isinstance(value, MethodType):
            return MethodType(self.of(value.__func__), value.__self__)
        if isinstance(value, functools.partial):
            return functools.partial(self.of(value.func), *value.args, **value.keywords)  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType, reportUnknownVariableType]
        if getattr(value, "__module__", None) == "math" and callable(value):
            return getattr(self._math, value.__name__)
        return self._container(value) if isinstance(value, _CONTAINERS) else language_form(value)

    def _container(self, container: Any) -> Any:
        items = [item.value for item in items_of(container) or ()][: MAX_ITEMS + 1]
        forms = [self.of(item) for item in items]
        is_same = len(items) > MAX_ITEMS or all(a is b for a, b in zip(items, forms))
        return container if is_same else rebuilt(container, forms)

    def _module(self, module: ModuleType) -> Any:
        if module is math:
            return self._math
        is_plain = is_library(module) and module.__name__ not in _SEEN_THROUGH
        return module if is_plain else _ModuleView(module, self)

    def _function(self, function: FunctionType) -> FunctionType:
        names = dict.fromkeys(
            name for code in nested_codes(function.__code__) for name in code.co_names
        )
        scope: dict[str, Any] = {
            "__name__": function.__globals__.get("__name__", ""),
            "__builtins__": {**vars(builtins), **HELPER_BUILTINS},
        }
        cells = tuple(map(self._cell, function.__closure__ or ()))
        made = FunctionType(function.__code__, scope, function.__name__, None, cells)
        made.__qualname__, made.__module__ = function.__qualname__, function.__module__
        # Known before what it calls is looked at: that may be the function itself.
        self._functions[function] = self._functions[made] = made
        made.__defaults__ = self.of(function.__defaults__)
        made.__kwdefaults__ = self.of(function.__kwdefaults__)
        module = function.__globals__
        scope.update({name: self.of(module[name]) for name in names if name in module})
        for cell, original in zip(cells, function.__closure__ or ()):
            self._fill(cell, original)
        return made

    def _cell(self, cell: CellType) -> CellType:
        """A cell for what needs another form; the same one for everything else."""
        return CellType() if isinstance(cell_contents(cell), (FunctionType, ModuleType)) else cell

    def _fill(self, cell: CellType, original: CellType) -> None:
        if cell is not original:
            cell.cell_contents = self.of(original.cell_contents)


class _ModuleView:
    """A module whose functions have their device forms."""

    def __init__(self, module: ModuleType, forms: DeviceForms) -> None:
        self._module, self._forms = module, forms

    def __getattr__(self, name: str) -> Any:
        return self._forms.of(getattr(self._module, name))
