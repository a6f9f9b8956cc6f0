"""New device values: ``hl.zeros``, ``hl.full``, ``hl.arange`` and torch's factory functions."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

import tilesmith.exc as errors
from tilesmith.diagnostics.wording import kind_of
from tilesmith.dtypes import F32, DType
from tilesmith.frontend.functions.shape import as_shape, new_shape
from tilesmith.frontend.refusals import invalid_kind, invalid_value, unsupported_argument
from tilesmith.frontend.tracing import emission
from tilesmith.frontend.tracing.host_session import HostSession
from tilesmith.frontend.tracing.known_sizes import config_length, length_between
from tilesmith.frontend.tracing.tile import Tile
from tilesmith.frontend.tracing.tracer import current_tracer, find_host_session
from tilesmith.frontend.tracing.values import Scalar, TileValue
from tilesmith.interpreter.torch_dtypes import from_torch
from tilesmith.ir.types import Dim, Shape

MOST_NUMBERS = 64
"""Of a list in device code: each costs a comparison in each lane."""


def shape_of(shape: Any, function: str) -> Shape:
    """The dimensions of a shape given as a list of sizes, or as one."""
    if isinstance(shape, (Tile, Scalar, int)) and not isinstance(shape, bool):
        shape = (shape,)
    if not isinstance(shape, (list, tuple)):
        raise invalid_kind(function, f"the shape is {kind_of(shape)}, expected a list of sizes")
    return new_shape(tuple(shape), function)


def full(
    shape: Any, value: Any, dtype: torch.dtype | None = torch.float32, device: Any = None
) -> TileValue:
    """A tensor filled with ``value`` (a number, a symbolic number or a 0-d value).

    In device code a device value; in host code a host tensor on the kernel's device.

    Example:
        ``m = hl.full([t], float("-inf"), dtype=torch.float32)``
    """
    session = find_host_session()
    if session is not None:
        return _on_host(session, torch.full, shape, value, dtype=dtype, device=device)
    current_tracer("hl.full")
    dims = shape_of(shape, "hl.full")
    natural = value.tile.dtype if isinstance(value, TileValue) else emission.number_dtype(value)
    return _filled(value, natural if dtype is None else from_torch(dtype), dims)


def zeros(shape: Any, dtype: torch.dtype = torch.float32, device: Any = None) -> TileValue:
    """A tensor of zeros; ``[]`` gives a 0-d one.

    In device code a device value; in host code a host tensor on the kernel's device.

    Example:
        ``acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)``
    """
    session = find_host_session()
    if session is not None:
        return _on_host(session, torch.zeros, shape, dtype=dtype, device=device)
    current_tracer("hl.zeros")
    return emission.full(0, from_torch(dtype), shape_of(shape, "hl.zeros"))


def _on_host(session: HostSession, make: Any, shape: Any, *value: Any, **options: Any) -> Any:
    """What a factory function of torch makes, on the kernel's device unless another is named."""
    session.is_used = True
    sizes = list(shape) if isinstance(shape, (list, tuple)) else [shape]
    device = session.device if options["device"] is None else options["device"]
    return make(sizes, *value, **{**options, "device": device})


def arange(
    *bounds: Any,
    start: Any = 0,
    end: Any = None,
    dtype: torch.dtype | None = None,
    device: Any = None,
    step: Any = 1,
) -> TileValue:
    """``[start, end)`` as an integer tensor; the length must be known or of whole blocks.

    Example:
        ``k = hl.arange(tile.block_size)``
    """
    tracer = current_tracer("hl.arange")
    if end is not None:
        bounds = (*(bounds or (start,)), end)
    if not 1 <= len(bounds) <= 3:
        raise invalid_kind("hl.arange", f"{len(bounds)} bounds are given")
    start, end = (0, bounds[0]) if len(bounds) == 1 else bounds[:2]
    step = bounds[2] if len(bounds) > 2 else step
    result = emission.spaced_range(start, _length(start, end, step), step, tracer.index_dtype)
    return result if dtype is None else emission.cast(result, from_torch(dtype))


def _length(start: Any, end: Any, step: Any) -> Dim:
    for name, bound in (("start", start), ("end", end), ("step", step)):
        is_number = isinstance(bound, int) or (name != "step" and isinstance(bound, Scalar))
        is_tile = name == "end" and isinstance(bound, Tile)
        if isinstance(bound, bool) or not (is_number or is_tile):
            raise invalid_kind("hl.arange", f"{name} is {kind_of(bound)}, expected an integer")
    if step == 0:
        raise invalid_value("hl.arange", "step is 0")
    end = end.block_size if isinstance(end, Tile) else end
    if isinstance(start, int) and isinstance(end, int):
        return Dim.of(len(range(start, end, step)))
    length = length_between(start, end, step) if step > 0 else None
    length = config_length(start, end, step) if length is None else length
    if length is None:
        raise errors.ShapeSpecializingCall(value="the length of hl.arange")
    return length


def _filled(value: Any, dtype: DType, shape: Shape) -> TileValue:
    if isinstance(value, TileValue):
        return emission.broadcast_to(emission.strong(value, dtype), shape)
    return emission.full(value, dtype, shape)


def full_like(x: Any, fill_value: Any, *, dtype: torch.dtype | None = None, **_: Any) -> TileValue:
    """``torch.full_like``: shape and type of a device value or a host tensor."""
    element = from_torch(dtype or x.dtype)
    return _filled(fill_value, element, as_shape(tuple(x.shape), "full_like"))


def new_full(
    x: Any, size: Any, fill_value: Any, *, dtype: torch.dtype | None = None, **_: Any
) -> TileValue:
    """``x.new_full``: the type of ``x`` unless another is given."""
    element = from_torch(dtype or x.dtype)
    return _filled(fill_value, element, new_shape((size,), "new_full"))


def _new(x: Any, *sizes: Any, fill_value: int, size: Any = None, **options: Any) -> TileValue:
    given = emission.one_by_one(sizes) if size is None else size
    return new_full(x, given, fill_value, **options)


def _factory(
    *sizes: Any, fill_value: int, dtype: torch.dtype | None = None, size: Any = None, **_: Any
) -> TileValue:
    element = F32 if dtype is None else from_torch(dtype)
    given = sizes if size is None else (size,)
    return emission.full(fill_value, element, new_shape(given, "torch factory"))


def scalar_tensor(value: Any, *, dtype: torch.dtype | None = None, **_: Any) -> TileValue:
    """``torch.tensor`` of a number or of short lists of numbers."""
    if isinstance(value, TileValue):
        return value if dtype is None else emission.cast(value, from_torch(dtype))
    shape, numbers = _flat(value)
    if not all(isinstance(number, (int, float)) for number in numbers):
        raise unsupported_argument("torch.tensor", kind_of(value))
    if len(numbers) > MOST_NUMBERS:
        raise unsupported_argument("torch.tensor", f"a list of {len(numbers)} numbers")
    kinds = [emission.number_dtype(number) for number in numbers] or [F32]
    natural = max(kinds, key=lambda kind: (kind.is_float, kind.bits))
    return emission.reshape(_listed(numbers, from_torch(dtype) if dtype else natural), shape)


def _flat(value: Any) -> tuple[Shape, list[Any]]:
    """The sizes of nested lists and what they hold; a ragged list holds lists."""
    if not isinstance(value, (list, tuple)):
        return (), [value]
    parts = [_flat(item) for item in value]
    inner = parts[0][0] if parts else ()
    if any(shape != inner for shape, _ in parts):
        return (), [value]
    return (Dim.of(len(parts)), *inner), [number for _, numbers in parts for number in numbers]


def _listed(numbers: list[Any], dtype: DType) -> TileValue:
    """Constants along one axis; there is no memory behind them."""
    if len(numbers) == 1:
        return emission.full(numbers[0], dtype)
    dim = Dim.of(len(numbers))
    position, result = emission.spaced_range(0, dim, 1), emission.full(numbers[0], dtype, (dim,))
    for place, number in enumerate(numbers[1:], 1):
        result = emission.select(emission.apply("eq", position, place), number, result)
    return result


def eye(n: Any, m: Any = None, *, dtype: torch.dtype | None = None, **_: Any) -> TileValue:
    """``torch.eye``: ones where both positions within the value are equal."""
    element = F32 if dtype is None else from_torch(dtype)
    shape = new_shape((n, n if m is None else m), "torch.eye")
    rows, columns = (emission.positions_in(shape, axis) for axis in (0, 1))
    return emission.cast(emission.apply("eq", rows, columns), element)


_FILLS = {"zeros": 0, "ones": 1, "empty": 0}
"""Torch leaves `empty` unset: zeros are as good, and the same in every run."""
FACTORIES: dict[str, emission.Rule] = {
    **{name: partial(_factory, fill_value=fill) for name, fill in _FILLS.items()},
    "full": lambda size, fill_value, **kw: full(size, fill_value, kw.get("dtype")),
    "arange": arange, "tensor": scalar_tensor, "eye": eye,
}  # fmt: skip
CREATION: dict[str, emission.Rule] = {
    **FACTORIES,
    **{f"{name}_like": partial(full_like, fill_value=fill) for name, fill in _FILLS.items()},
    **{f"new_{name}": partial(_new, fill_value=fill) for name, fill in _FILLS.items()},
    "full_like": full_like, "new_full": new_full,
}  # fmt: skip
