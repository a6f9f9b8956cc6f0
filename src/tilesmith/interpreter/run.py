"""Runs a device function on real tensors: what a launch does, defined op by op."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from tilesmith.diagnostics.catalogue import InternalError
from tilesmith.interpreter import control_flow, foreign, memory, reduction, tile_ops
from tilesmith.interpreter.frame import Evaluators, Frame
from tilesmith.interpreter.prepare import PreparedFunction, prepare_function
from tilesmith.interpreter.races import RaceDetector
from tilesmith.interpreter.sampling import Sampling
from tilesmith.interpreter.scalar_functions import wrap_integer
from tilesmith.interpreter.torch_dtypes import to_torch
from tilesmith.ir.function import Function
from tilesmith.ir.types import TensorType, Value

EVALUATORS: Evaluators = {
    **tile_ops.EVALUATORS,
    **memory.EVALUATORS,
    **reduction.EVALUATORS,
    **control_flow.EVALUATORS,
    **foreign.EVALUATORS,
}

Argument = torch.Tensor | int | float | bool


def run_function(
    function: Function,
    arguments: Mapping[str, Argument],
    sizes: Mapping[str, int],
    *,
    checked: bool = True,
    races: bool = False,
) -> None:
    """Run every grid of a function, changing the tensors among ``arguments`` (by parameter name).

    ``sizes`` gives every block and runtime size; fixed blocks may be left out. ``checked`` looks
    for out-of-bounds indices, ``races`` for programs that depend on each other.
    """
    run_prepared(prepare_function(function), arguments, sizes, checked=checked, races=races)


def run_prepared(
    prepared: PreparedFunction,
    arguments: Mapping[str, Argument],
    sizes: Mapping[str, int],
    *,
    checked: bool = True,
    races: bool = False,
    sampling: Sampling | None = None,
) -> None:
    """As ``run_function``, for a function analysed before by ``prepare_function``.

    ``sampling`` runs some of the programs only, and notes what they write.
    """
    function = prepared.function
    evaluators = {**EVALUATORS, **prepared.evaluators}
    fixed = {block.name: block.fixed for block in function.blocks if block.fixed is not None}
    complete = {**fixed, **sizes}
    for symbol in (*function.blocks, *function.sizes):
        if symbol.name not in complete:
            raise InternalError(problem=f"no size was given for {symbol.name!r}")
    frame = Frame(prepared, evaluators, complete, checked=checked)
    frame.sampling = sampling
    frame.races = RaceDetector() if races else None
    frame.device = _device_of(function, arguments)
    for parameter in function.parameters:
        _bind(parameter.value, arguments, frame)
    # All tensor parameters that share storage with one the function stores to.
    storages = {_storage(frame.values[value]) for value in prepared.stored}
    tensors = [value for value in frame.values if isinstance(value.type, TensorType)]
    frame.written = {value for value in tensors if _storage(frame.values[value]) in storages}
    frame.run(function.body)


def _device_of(function: Function, arguments: Mapping[str, Argument]) -> torch.device:
    tensors = [p.value.name for p in function.parameters if isinstance(p.value.type, TensorType)]
    found = (arguments[name] for name in tensors if name in arguments)
    return next((x.device for x in found if isinstance(x, torch.Tensor)), torch.device("cpu"))


def _bind(parameter: Value, arguments: Mapping[str, Argument], frame: Frame) -> None:
    if parameter.name not in arguments:
        raise InternalError(problem=f"no argument was given for {parameter.name!r}")
    argument = arguments[parameter.name]
    if isinstance(parameter.type, TensorType):
        frame.values[parameter] = _bind_tensor(parameter.type, argument)
        return
    plain = argument.item() if isinstance(argument, torch.Tensor) else argument
    dtype = parameter.type.dtype
    if dtype.is_float:
        held = torch.full((), plain, dtype=to_torch(dtype), device=frame.device)
    else:
        held = wrap_integer(int(plain), dtype)
    frame.values[parameter] = held


def _bind_tensor(expected: TensorType, argument: Argument) -> torch.Tensor:
    if not isinstance(argument, torch.Tensor):
        raise InternalError(problem=f"expected {expected}, found {argument!r}")
    if argument.dtype is not to_torch(expected.dtype) or argument.dim() != expected.rank:
        found = f"{argument.dtype} of rank {argument.dim()}"
        raise InternalError(problem=f"expected {expected}, found a tensor of {found}")
    # Kernels write in place and record no gradients: a plain tensor over the same storage will do.
    is_plain = type(argument) is torch.Tensor and not argument.requires_grad
    return argument if is_plain else argument.detach()


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
