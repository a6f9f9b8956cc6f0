"""What the names that device code reads stand for: builtins, Python's ``math``, helper functions.

``range`` loops on the device, ``min``/``max`` and ``math`` take runtime numbers. Helper functions
run as they are, over globals and closure cells in which such names have their device forms too.
"""

from __future__ import annotations

import builtins
import functools
import math
from collections.abc import Callable
from dataclasses import replace
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any

from tilesmith.dtypes import F32, I32, DType
from tilesmith.frontend.containers import cell_contents, items_of, rebuilt
from tilesmith.frontend.language.debugging import breakpoint, print_builtin
from tilesmith.frontend.language.loops import LoopRange, grid
from tilesmith.frontend.refusals import invalid_kind, invalid_value
from tilesmith.frontend.source.functionalise import RUNTIME
from tilesmith.frontend.source.names import is_library, nested_codes
from tilesmith.frontend.source.rewriting.helper_functions import rewritten_helper
from tilesmith.frontend.tracing.emission import as_tile, cast
from tilesmith.frontend.tracing.values import Scalar, TileValue, dispatch


def device_range(*bounds: Any) -> LoopRange:
    """``range`` in device code is ``hl.grid``: a loop at run time."""
    begin, end, step = (0, *bounds, 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    if all(isinstance(bound, int) for bound in (begin, end)) and isinstance(step, int) and step:
        # As in Python, a range whose end lies behind its begin is empty.
        end = end if range(begin, end, step) else begin
    loop = grid(begin, end, step=step)
    return replace(loop, is_builtin_range=True)


def _extremum(builtin: Callable[..., Any], name: str) -> Callable[..., Any]:
    def combine(*values: Any, **kwargs: Any) -> Any:
        items = tuple(values[0]) if len(values) == 1 else values
        if not any(isinstance(item, TileValue) for item in items):
            return builtin(items, **kwargs)
        if any(isinstance(item, TileValue) and item.tile.rank for item in items):
            limit = "min" if name == "maximum" else "max"
            fix = f"use torch.{name}(a, b), or a.clamp({limit}=b) where b is a number"
            raise invalid_kind(builtin.__name__, "a tensor with several elements", fix)
        result = items[0]
        for item in items[1:]:
            result = dispatch(name, _of_one_type(result, item), {})
        return result

    return combine


def _of_one_type(first: Any, second: Any) -> tuple[Any, Any]:
    """A number beside a loaded scalar takes the scalar's type, as in ``min(lengths[i], 64)``."""
    for value, other in ((first, second), (second, first)):
        is_loaded = isinstance(value, TileValue) and not isinstance(value, Scalar)
        if is_loaded and isinstance(other, (int, float, Scalar)):
            number = TileValue(cast(as_tile(other), value.tile.dtype).value)
            return (value, number) if value is first else (number, value)
    return first, second


class _NumberType(type):
    """Python's ``int`` or ``float`` that converts runtime numbers too."""

    plain: type
    dtype: DType

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and isinstance(args[0], TileValue):
            return cast(as_tile(args[0]), cls.dtype)
        return cls.plain(*args, **kwargs)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.plain)

    def __getattr__(cls, name: str) -> Any:
        return getattr(cls.plain, name)


class _Int(metaclass=_NumberType):
    plain, dtype = builtins.int, I32


class _Float(metaclass=_NumberType):
    plain, dtype = builtins.float, F32


def _helper_range(*bounds: Any) -> Any:
    """``range`` in helper functions: Python's own where the bounds are known, else a loop."""
    is_known = all(isinstance(bound, int) for bound in bounds)
    return range(*bounds) if is_known else device_range(*bounds)


def _zip(*sequences: Any, strict: bool = True) -> list[tuple[Any, ...]]:
    """``zip`` of sequences of one length: ``strict`` changes nothing."""
    lists = [list(sequence) for sequence in sequences]
    lengths = sorted({len(items) for items in lists})
    if len(lengths) > 1:
        raise invalid_value("zip", f"the sequences have {' and '.join(map(str, lengths))} items")
    return list(zip(*lists))


HELPER_BUILTINS: dict[str, Any] = {
    "min": _extremum(builtins.min, "minimum"),
    "max": _extremum(builtins.max, "maximum"),
    "int": _Int,
    "float": _Float,
    "print": print_builtin,
    "breakpoint": breakpoint,
    "range": _helper_range,
}
"""In helper functions, whose loops are Python's where their bounds are known."""

DEVICE_BUILTINS: dict[str, Any] = {**HELPER_BUILTINS, "range": device_range, "zip": _zip}

_OTHER_NAMES = {"fabs": "abs"}
_BY_METHODS = frozenset({"floor", "ceil", "trunc"})
"""Python asks the value itself for these; they give integers."""


class DeviceMath:
    """Stands for the module; everything that is no runtime number is the module's own business."""

    def __getattr__(self, name: str) -> Any:
        plain = getattr(math, name)
        return self._lifted(name, plain) if callable(plain) and name not in _BY_METHODS else plain

    def _lifted(self, name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
        def function(*args: Any, **kwargs: Any) -> Any:
            if any(isinstance(arg, TileValue) for arg in args):
                return dispatch(_OTHER_NAMES.get(name, name), args, kwargs)
            return plain(*args, **kwargs)

        return function


_SEEN_THROUGH = ("torch", "torch._higher_order_ops")
"""Modules that hold, somewhere below, a function that proxies cannot intercept."""


_CONTAINERS = (list, tuple, dict)
MAX_ITEMS = 64
"""A container larger than this is data of the program, not a parameter of a helper."""


class DeviceForms:
    """Device forms for one trace: every function has one, however it is reached."""

    def __init__(self, runtime: Any) -> None:
        self._runtime = runtime
        self._math = DeviceMath()
        self._functions: dict[FunctionType, FunctionType] = {}
        self.cell_values: dict[int, Any] = {}
        """What cells hold in device code where it is not their content: runtime numbers; by id."""
        self.default_values: dict[tuple[FunctionType, str], Any] = {}
        """The same of ``__defaults__`` and ``__kwdefaults__`` of functions."""

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
        is_container = isinstance(value, _CONTAINERS)
        return self._container(value) if is_container else self._runtime.replaced(value)

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
        code = rewritten_helper(function.__code__) or function.__code__
        names = dict.fromkeys(name for part in nested_codes(code) for name in part.co_names)
        scope: dict[str, Any] = {
            "__name__": function.__globals__.get("__name__", ""),
            "__builtins__": {**vars(builtins), **HELPER_BUILTINS},
            RUNTIME: self._runtime,
        }
        captured = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))
        originals = [captured[name] for name in code.co_freevars]
        cells = tuple(map(self._cell, originals))
        made = FunctionType(code, scope, function.__name__, None, cells)
        made.__qualname__, made.__module__ = function.__qualname__, function.__module__
        # Known before what it calls is looked at: that may be the function itself.
        self._functions[function] = self._functions[made] = made
        for name in ("__defaults__", "__kwdefaults__"):
            held = self.default_values.get((function, name), getattr(function, name))
            setattr(made, name, self.of(held))
        module = function.__globals__
        scope.update({name: self.of(module[name]) for name in names if name in module})
        for cell, original in zip(cells, originals):
            self._fill(cell, original)
        return made

    def _cell(self, cell: CellType) -> CellType:
        """A cell for what needs another form; the same one for everything else."""
        held = cell_contents(cell)
        is_other = id(cell) in self.cell_values or isinstance(held, (FunctionType, ModuleType))
        return CellType() if is_other else cell

    def _fill(self, cell: CellType, original: CellType) -> None:
        if cell is not original:
            held = self.cell_values.get(id(original), original.cell_contents)
            cell.cell_contents = self.of(held)


class _ModuleView:
    """A module whose functions have their device forms."""

    def __init__(self, module: ModuleType, forms: DeviceForms) -> None:
        self._module, self._forms = module, forms

    def __getattr__(self, name: str) -> Any:
        return self._forms.of(getattr(self._module, name))
