"""Numbers in device code that only the Config decides, known once block sizes are given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from tilesmith.diagnostics import errors
from tilesmith.frontend.sessions import current_tracer
from tilesmith.frontend.tracer import Tracer, locate
from tilesmith.frontend.values import TileValue
from tilesmith.interpreter.scalar_functions import SCALAR_FUNCTIONS_TORCH
from tilesmith.interpreter.torch_dtypes import to_torch
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import BlockSize, Full
from tilesmith.ir.values import Value


def known_number(value: TileValue, *, specializes: bool = False) -> Any:
    """The value of an expression of block sizes and constants; the trace then holds for it only.

    With ``specializes``, integer arguments become constants of the trace too.
    """
    tracer = current_tracer("hl.constexpr")
    with tracer.eager():
        if specializes:
            for argument in _arguments(tracer, value.value):
                tracer.arguments[argument] = tracer.host.specialize(tracer.arguments[argument])
        return _evaluate(tracer, value.value).item()


def _arguments(tracer: Tracer, value: Value) -> Iterator[Value]:
    """The integer arguments in an expression."""
    op = tracer.builder.definition_of(value)
    if value in tracer.arguments:
        yield value
    elif op is not None:
        for operand in op.operand_values():
            yield from _arguments(tracer, operand)


def _evaluate(tracer: Tracer, value: Value) -> torch.Tensor:
    op = tracer.builder.definition_of(value)
    dtype = to_torch(value.tile.dtype)
    number = tracer.arguments.get(value)
    if type(number) is int:
        return torch.tensor(number, dtype=dtype)
    if isinstance(op, Full):
        return torch.tensor(op.value, dtype=dtype)
    if isinstance(op, BlockSize):
        return torch.tensor(_block_size(tracer, op.block), dtype=dtype)
    if isinstance(op, Cast) and not op.bitcast:
        return _evaluate(tracer, op.x).to(dtype)
    if isinstance(op, Elementwise):
        return SCALAR_FUNCTIONS_TORCH[op.fn](*(_evaluate(tracer, arg) for arg in op.args))
    raise errors.ShapeSpecializingCall(value="the argument of hl.constexpr", loc=locate())


def _block_size(tracer: Tracer, name: str) -> int:
    block = next(block for block in tracer.blocks if block.name == name)
    if block.fixed is not None:
        return block.fixed
    assert block.slot is not None
    tracer.host.observed_slots.add(block.slot)
    return tracer.host.block_size(block.slot)
