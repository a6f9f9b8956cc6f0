"""Runs functions as backends do: tiles of full block size, constants padded to powers of two.

Invalid lanes really exist here and hold what the ops leave in them, so a missing mask shows. Covers
what row and matmul kernels need, for functions whose grids and loops step over blocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import torch

from tilesmith.interpreter.scalar_functions import SCALAR_FUNCTIONS_TORCH
from tilesmith.interpreter.torch_dtypes import to_torch
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import Grid, Loop
from tilesmith.ir.types import Dim, Shape, TensorType, Value

_REDUCTIONS = {
    "sum": lambda x, axis: x.sum(axis),
    "prod": lambda x, axis: x.prod(axis),
    "max": lambda x, axis: x.amax(axis),
    "min": lambda x, axis: x.amin(axis),
    "argmax": lambda x, axis: x.argmax(axis),
    "argmin": lambda x, axis: x.argmin(axis),
    "any": lambda x, axis: x.any(axis),
    "all": lambda x, axis: x.all(axis),
}


_SCANS = {
    "sum": lambda x, axis: x.cumsum(axis),
    "prod": lambda x, axis: x.cumprod(axis),
    "max": lambda x, axis: x.cummax(axis).values,
    "min": lambda x, axis: x.cummin(axis).values,
}


class PaddedRun:
    """One run. ``valid`` says how many lanes of each bound block are in the present tile."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self._sizes = sizes
        self._valid: dict[str, int] = {}
        self._values: dict[Value, Any] = {}

    def run(self, function: Function, arguments: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        """All tensors after a run on copies."""
        found: dict[str, torch.Tensor] = {}
        for parameter in function.parameters:
            value, argument = parameter.value, arguments[parameter.value.name]
            if isinstance(value.type, TensorType):
                argument = found[value.name] = argument.clone()
            else:
                argument = torch.tensor(argument, dtype=to_torch(value.tile.dtype))
            self._values[value] = argument
        self._region(function.body)
        return found

    def _physical(self, shape: Shape) -> list[int]:
        return [self._length(dim) for dim in shape]

    def _length(self, dim: Dim) -> int:
        if dim.symbol is not None:
            return self._sizes[dim.symbol]
        assert dim.constant is not None
        return 1 << (dim.constant - 1).bit_length()

    def _valid_lanes(self, shape: Shape, axes: range | tuple[int, ...]) -> torch.Tensor:
        mask = torch.ones(self._physical(shape), dtype=torch.bool)
        for axis in axes:
            dim = shape[axis]
            limit = self._valid.get(dim.symbol, self._sizes[dim.symbol]) if dim.symbol else 0
            lanes = torch.arange(mask.shape[axis]) < (limit or dim.constant or 1)
            mask &= lanes.view([-1 if i == axis else 1 for i in range(mask.dim())])
        return mask

    def _region(self, region: Region) -> None:
        for op in region.ops:
            result = getattr(self, f"_{op.name}")(op)
            if result is not None:
                assert list(result.shape) == self._physical(op.result.tile.shape), op.name
                self._values[op.result] = result.to(to_torch(op.result.tile.dtype))

    def _tiles(self, op: Grid | Loop) -> Any:
        axes = [
            range(int(self._values[b]), int(self._values[e]), self._sizes[block])
            for b, e, block in zip(op.begins, op.ends, op.blocks)
        ]
        for begins in product(*axes):
            for begin, axis, arg, block in zip(begins, axes, op.body.args, op.blocks):
                self._values[arg] = torch.tensor(begin, dtype=to_torch(arg.tile.dtype))
                self._valid[block] = min(self._sizes[block], axis.stop - begin)
            yield begins
        for block in op.blocks:
            self._valid.pop(block, None)

    def _grid(self, op: Any) -> None:
        for _ in self._tiles(op):
            self._region(op.body)

    def _loop(self, op: Any) -> None:
        carried = [self._values[value] for value in op.init]
        for _ in self._tiles(op):
            self._values.update(zip(op.carried, carried))
            self._region(op.body)
            carried = [self._values[value] for value in op.body.yielded]
        self._values.update(zip(op.results, carried))

    def _yield(self, op: Operation) -> None:
        pass

    def _program_barrier(self, op: Operation) -> None:
        pass

    def _full(self, op: Any) -> torch.Tensor:
        shape, dtype = self._physical(op.result.tile.shape), to_torch(op.result.tile.dtype)
        return torch.full(shape, op.value, dtype=dtype)

    def _arange(self, op: Any) -> torch.Tensor:
        return torch.arange(self._physical(op.result.tile.shape)[0])

    def _tile_index(self, op: Any) -> torch.Tensor:
        return self._values[op.begin] + self._arange(op)

    def _elementwise(self, op: Any) -> torch.Tensor:
        return SCALAR_FUNCTIONS_TORCH[op.fn](*(self._values[arg] for arg in op.args))

    def _cast(self, op: Any) -> torch.Tensor:
        return self._values[op.x]

    def _expand_dims(self, op: Any) -> torch.Tensor:
        return self._values[op.x].reshape(self._physical(op.result.tile.shape))

    def _broadcast(self, op: Any) -> torch.Tensor:
        return self._values[op.x].expand(self._physical(op.result.tile.shape))

    def _permute(self, op: Any) -> torch.Tensor:
        return self._values[op.x].permute(op.order)

    def _mask(self, op: Any) -> torch.Tensor:
        x = self._values[op.x]
        valid = self._valid_lanes(op.x.tile.shape, op.axes)
        return torch.where(valid, x, torch.tensor(op.fill, dtype=x.dtype))

    def _reduce(self, op: Any) -> torch.Tensor:
        return _REDUCTIONS[op.kind](self._values[op.x], op.axis)

    def _scan(self, op: Any) -> torch.Tensor:
        x = self._values[op.x]
        if not op.reverse:
            return _SCANS[op.kind](x, op.axis)
        return _SCANS[op.kind](x.flip(op.axis), op.axis).flip(op.axis)

    def _dot(self, op: Any) -> torch.Tensor:
        dtype = to_torch(op.result.tile.dtype)
        product_ = self._values[op.lhs].to(dtype) @ self._values[op.rhs].to(dtype)
        return product_ if op.acc is None else self._values[op.acc] + product_

    def _places(self, op: Any, shape: Shape) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """The lanes that access memory, and the element each of them accesses."""
        valid = self._valid_lanes(shape, range(len(shape)))
        if op.mask is not None:
            valid = valid & self._values[op.mask]
        indices = [self._values[index].expand(valid.shape) for index in op.indices]
        return valid, tuple(index[valid].long() for index in indices)

    def _load(self, op: Any) -> torch.Tensor:
        tensor = self._values[op.tensor]
        valid, places = self._places(op, op.result.tile.shape)
        result = torch.zeros(valid.shape, dtype=tensor.dtype)
        result[valid] = tensor[places]
        return result

    def _store(self, op: Any) -> None:
        valid, places = self._places(op, op.value.tile.shape)
        self._values[op.tensor][places] = self._values[op.value].expand(valid.shape)[valid]
