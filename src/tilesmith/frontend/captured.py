"""Values that cross from host to device code.

Tensors become references, runtime numbers parameters.

Everything else (ints, strings, dtypes, None, functions) is a constant of the trace; numbers among
them are guarded, so a later call whose host code computes another value is traced anew.
"""

from __future__ import annotations

import dataclasses
from types import FunctionType
from typing import Any

import torch

from tilesmith.diagnostics import errors
from tilesmith.dtypes import F32, F64
from tilesmith.frontend.check_helpers import check_helper
from tilesmith.frontend.host_functions import constexpr
from tilesmith.frontend.host_numbers import BlockSizeInt, RuntimeFloat, RuntimeInt
from tilesmith.frontend.tensors import reference, size_dim
from tilesmith.frontend.tracer import INT32_LIMIT, WIDE_LIMIT, Tracer
from tilesmith.frontend.values import Scalar, TileValue, size_of_dim
from tilesmith.ir.types import Dim, scalar

Guard = tuple[str, Any]


class CaptureBorder:
    """Wraps captured values for one trace and collects the guards of those baked in."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self.guards: list[Guard] = []

    def wrap(self, value: Any, source: str) -> Any:
        """The device-side form of a host value that the launcher finds at ``source``."""
        if isinstance(value, torch.Tensor):
            return reference(self._tracer, value, source)
        if isinstance(value, constexpr):
            return self.wrap(value.value, f"{source}.value")
        if isinstance(value, (bool, int, float)):
            return self._wrap_number(value, source)
        if isinstance(value, FunctionType):
            check_helper(value)
            self._note_closure(value, source)
            return value
        return self._wrap_container(value, source)

    def _wrap_number(self, value: Any, source: str) -> Any:
        if isinstance(value, BlockSizeInt):
            return size_of_dim(Dim.of(self._block(value, source)))
        if isinstance(value, RuntimeInt):
            return self._runtime_int(value, source)
        if isinstance(value, RuntimeFloat):
            return self._runtime_float(source)
        self.guards.append((source, value))
        return value

    def _block(self, value: BlockSizeInt, source: str) -> str:
        known = self._tracer.block_of_slot(value.slot)
        if known is not None:
            return known.name
        registered = self._tracer.host.registered[value.slot]
        hint = source if source.isidentifier() else "block"
        block = self._tracer.new_block(
            hint, slot=value.slot, extent=registered.high, low=registered.low, high=registered.high
        )
        return block.name

    def _runtime_int(self, value: RuntimeInt, source: str) -> Scalar:
        dtype = self._tracer.integer_dtype(int(value))
        fits = f"-{INT32_LIMIT} <= {source} <= {WIDE_LIMIT}"
        self.guards.append((fits, -INT32_LIMIT <= value <= WIDE_LIMIT))
        name = source if source.isidentifier() else "n"
        parameter = self._tracer.parameter(name, source, scalar(dtype))
        result = Scalar(parameter)
        if not self._tracer.options.static_shapes:
            result.as_dim = size_dim(parameter.name, int(value))
        return result

    def _runtime_float(self, source: str) -> Scalar:
        name = source if source.isidentifier() else "alpha"
        tracer = self._tracer
        result = Scalar(lambda: tracer.parameter(name, source, scalar(F32)), tile_type=scalar(F32))
        result.double = lambda: TileValue(
            tracer.parameter(f"{name}_f64", f"float({source})", scalar(F64))
        )
        return result

    def _wrap_container(self, value: Any, source: str) -> Any:
        if hasattr(value, "_fields"):
            items = {
                name: self.wrap(getattr(value, name), f"{source}.{name}") for name in value._fields
            }
            return type(value)(**items)
        if isinstance(value, (list, tuple)):
            wrapped = [self.wrap(item, f"{source}[{i}]") for i, item in enumerate(value)]
            return CapturedList(wrapped, source) if isinstance(value, list) else tuple(wrapped)
        if isinstance(value, dict):
            return {key: self.wrap(item, f"{source}[{key!r}]") for key, item in value.items()}
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            changes = {
                item.name: self.wrap(getattr(value, item.name), f"{source}.{item.name}")
                for item in dataclasses.fields(value)
            }
            return dataclasses.replace(value, **changes)
        return value

    def _note_closure(self, function: FunctionType, source: str) -> None:
        """Tensors in closure cells become inputs when the function uses them."""
        for position, cell in enumerate(function.__closure__ or ()):
            content = _cell_contents(cell)
            where = f"{source}.__closure__[{position}].cell_contents"
            if isinstance(content, torch.Tensor):
                self._tracer.closure_sources[id(content)] = (content, where)
            elif isinstance(content, FunctionType) and content is not function:
                self._note_closure(content, where)


def _cell_contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


class CapturedList(list[Any]):
    """A list of the host in device code: it may be read, not changed."""

    def __init__(self, items: list[Any], source: str) -> None:
        super().__init__(items)
        self._source = source

    def _reject(self, *_: Any, **__: Any) -> Any:
        raise errors.CapturedListMutation(name=self._source)

    append = extend = insert = pop = remove = clear = reverse = _reject
    sort = _reject  # type: ignore[assignment]
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _reject
