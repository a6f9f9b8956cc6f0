"""Running host code only to trace it: nothing of the user's changes, and what it does is watched.

Tensors that host code may change in place are copied, sizes it reads are marked as runtime values,
and torch calls that compute there are remarked on: they are not fused.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CodeType, FrameType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from typing_extensions import override

from tilesmith.diagnostics.kernel_warnings import (
    TensorOperationInWrapper,
    TensorOperationsInHostCall,
    WarningLog,
    WrongDevice,
)
from tilesmith.diagnostics.location import SourceLocation
from tilesmith.frontend.containers import map_tensors, rebuilt, tensors_in
from tilesmith.frontend.source.kernel_source import KernelSource
from tilesmith.frontend.tracing.host_session import ConstantSizes, RuntimeInt, note_use, place_of
from tilesmith.frontend.tracing.tracer import find_tracer, locate

QUIET_NAMES = (
    "broadcast", "contiguous", "expand", "fill", "full", "like", "new", "permute", "promote",
    "rand", "reshape", "squeeze", "strided", "transpose", "unsqueeze", "view", "zero",
)  # fmt: skip
"""Calls whose name contains one of these set the stage and compute nothing worth fusing."""


class _HostMode(TorchFunctionMode):
    """Sees every torch call of host code."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return self.call(func, args, kwargs or {})

    def call(self, func: Any, args: Any, kwargs: Any) -> Any:
        """What becomes of a call."""
        raise NotImplementedError


class HostWatch(_HostMode):
    """Active while host code runs; tells ``log`` what computes, once for each place."""

    def __init__(self, log: WarningLog, host: CodeType, device: torch.device | None) -> None:
        super().__init__()
        self._log, self._host, self._device = log, host, device
        self._is_asking = False

    @override
    def call(self, func: Any, args: Any, kwargs: Any) -> Any:
        result = func(*args, **kwargs)
        if find_tracer() is None and not self._is_asking:
            # Asking tensors questions calls torch again.
            self._is_asking = True
            try:
                self._look_at(func, (args, kwargs), result)
            finally:
                self._is_asking = False
        return result

    def _look_at(self, func: Any, given: Any, result: Any) -> None:
        name = getattr(func, "__name__", "")
        made = list(tensors_in(result))
        if not made or name == "__get__":
            return
        loc = locate()
        if not is_user_call(__name__) or all(p.code is not self._host for p in _with_callers(loc)):
            return
        for tensor in made:
            if self._device is not None and tensor.device != self._device:
                devices = {"device": tensor.device, "kernel_device": self._device}
                self._log.warn(WrongDevice, loc=loc, operation=_spelling(func), **devices)
        if _computes(name, list(tensors_in(given)), made):
            self._warn_of_operation(_spelling(func), loc)

    def _warn_of_operation(self, operation: str, loc: SourceLocation) -> None:
        if loc.code is self._host:
            self._log.warn(TensorOperationInWrapper, loc=loc, operation=operation)
            return
        chain = list(_with_callers(loc))
        position = next(n for n, place in enumerate(chain) if place.code is self._host)
        called = chain[position - 1].function
        self._log.warn(TensorOperationsInHostCall, loc=chain[position], operation=called)


def may_compute(statements: Sequence[ast.stmt]) -> bool:
    """Whether statements have anything that could be a torch operation."""
    nodes = (node for statement in statements for node in ast.walk(statement))
    return any(
        isinstance(node, (ast.Call, ast.BinOp, ast.UnaryOp, ast.Subscript)) for node in nodes
    )


def is_user_call(watch: str) -> bool:
    """Whether nothing but torch stands between the user's code and the module that asks."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _module_of(frame).startswith(("torch", watch)):
        frame = frame.f_back
    name = "" if frame is None else _module_of(frame)
    return not name.startswith("tilesmith.") or name.startswith("tilesmith.kernels.")


def _module_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _with_callers(loc: SourceLocation | None) -> Iterator[SourceLocation]:
    while loc is not None:
        yield loc
        loc = loc.caller


def _spelling(func: Any) -> str:
    name = getattr(func, "__name__", str(func))
    return f"torch.{name}" if hasattr(torch, name) else f"Tensor.{name}"


def _computes(name: str, given: list[torch.Tensor], made: list[torch.Tensor]) -> bool:
    if not given or any(part in name for part in QUIET_NAMES):
        return False
    if name.endswith("_") and not name.endswith("__"):
        return True
    return not {*map(_memory, made)} <= {*map(_memory, given)}


def _memory(tensor: torch.Tensor) -> int:
    """Which memory a tensor lies in; a view of another lies in the same."""
    is_real = tensor.layout is torch.strided and tensor.device.type != "meta"
    return tensor.untyped_storage().data_ptr() if is_real else 0


_SHAPED_BY_NUMBERS = frozenset({
    "empty", "zeros", "ones", "full", "rand", "randn", "view", "reshape", "expand",
    "new_empty", "new_zeros", "new_ones", "new_full",
})  # fmt: skip


class BlockSizeMode(_HostMode):
    """Active while host code runs for tracing: torch reads sizes without a Python method."""

    @override
    def call(self, func: Any, args: Any, kwargs: Any) -> Any:
        note_use((*args, *kwargs.values()))
        return func(*args, **kwargs)


class RuntimeSizeMode(_HostMode):
    """Active while host code of a dynamic-shape kernel runs for tracing.

    ``origins`` tells, for argument tensors by identity, how to get them from the kernel's
    arguments. ``constant_sizes`` hears of sizes that host code gives as plain numbers: those are
    constants, as ``torch.empty([n, 3])`` has exactly three columns.
    """

    def __init__(
        self, origins: dict[int, Callable[..., torch.Tensor]], constant_sizes: ConstantSizes
    ) -> None:
        super().__init__()
        self._origins = origins
        self._constant_sizes = constant_sizes

    @override
    def call(self, func: Any, args: Any, kwargs: Any) -> Any:
        result = func(*args, **kwargs)
        if find_tracer() is not None:
            return result
        name = getattr(func, "__name__", "")
        if name in _SHAPED_BY_NUMBERS:
            self._constant_sizes.note_made(result, _sizes_given(name, args, kwargs))
        elif name.endswith("_like"):
            self._constant_sizes.note_like(result, args[0])
        if not args or not isinstance(args[0], torch.Tensor):
            return result
        if name in ("size", "stride"):
            return self._mark_all(result, args[0], name, (*args[1:], *kwargs.values()))
        if isinstance(result, torch.Size):
            return self._mark_all(result, args[0], "size", ())
        if name == "numel":
            found = self._origins.get(id(args[0]))
            origin = None if found is None else lambda *arguments: found(*arguments).numel()
            return RuntimeInt.make(result, origin)
        return result

    def _mark_all(self, result: Any, tensor: torch.Tensor, kind: str, axis: tuple[Any, ...]) -> Any:
        if isinstance(result, int):
            return self._mark(result, tensor, kind, axis[0])
        return tuple(self._mark(value, tensor, kind, axis) for axis, value in enumerate(result))

    def _mark(self, value: int, tensor: torch.Tensor, kind: str, axis: int) -> int:
        if value in (0, 1):
            return value
        origin = self._origins.get(id(tensor))
        if origin is None:
            return RuntimeInt.make(value)
        place = place_of(tensor, kind, axis)
        if self._constant_sizes.is_noted(place):
            return value
        return RuntimeInt.make(value, lambda *args: getattr(origin(*args), kind)(axis), place)


def marked_sizes(tensor: torch.Tensor) -> tuple[tuple[int, int], ...]:
    """Axes that the user gave to ``torch._dynamo.mark_static``, and their sizes."""
    marks = getattr(tensor, "_dynamo_static_indices", ())
    return tuple((axis, tensor.shape[axis]) for axis in sorted({m % tensor.dim() for m in marks}))


class UnchangedTensors(_HostMode):
    """Active while host code runs for tracing: tensors that it has not made stay as they are.

    ``own``: tensors that it may change; copies of the arguments. ``on_change`` hears of changes.
    """

    def __init__(self, own: Any, on_change: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self._own = {_memory(tensor) for tensor in tensors_in(own)}
        self._on_change = on_change

    @override
    def call(self, func: Any, args: Any, kwargs: Any) -> Any:
        if find_tracer() is not None:
            return func(*args, **kwargs)
        changed = _changed_tensor(getattr(func, "__name__", ""), args, kwargs)
        if changed is not None:
            self._on_change()
        if changed is not None and _memory(changed) not in self._own:
            return changed
        result = func(*args, **kwargs)
        given = {_memory(tensor) for tensor in tensors_in([*args, *kwargs.values()])}
        self._own |= {_memory(tensor) for tensor in tensors_in(result)} - given
        return result


_IN_PLACE = frozenset(
    {f"__i{name}__" for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")}
    | {f"__i{name}__" for name in ("and", "or", "xor", "lshift", "rshift")}
    | {"__setitem__"}
)


def _changed_tensor(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The tensor that a call changes; None for one that changes none, or several."""
    is_in_place = name in _IN_PLACE or (name.endswith("_") and not name.endswith("__"))
    changed = args[0] if is_in_place and args else kwargs.get("out")
    return changed if isinstance(changed, torch.Tensor) else None


def _sizes_given(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any]:
    """The sizes in a call that makes or views a tensor, in the order of its axes."""
    sequences = [a for a in (*args, kwargs.get("size")) if isinstance(a, (list, tuple))]
    if sequences:
        return sequences[0]
    # The number of torch.full is its value.
    return () if "full" in name else [a for a in args if isinstance(a, int)]


def may_change_arguments(source: KernelSource) -> bool:
    """Whether host code before the loops has anything that looks like a change in place."""
    nodes = [node for statement in source.before for node in ast.walk(statement)]
    counters = {
        target.id
        for node in nodes
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return any(_is_change(node, counters) for node in nodes)


def copy_if_changed(
    source: KernelSource, arguments: tuple[Any, ...], kept: frozenset[int] = frozenset()
) -> tuple[Any, ...]:
    """The arguments for a trial run: copies where host code may change them.

    Those at the positions ``kept`` are objects of which nobody knows what they hold.
    """
    if not may_change_arguments(source):
        return arguments
    values = [None if position in kept else value for position, value in enumerate(arguments)]
    copied: list[Any] = copy_tensors(values)
    whole = [arguments[i] if i in kept else value for i, value in enumerate(copied)]
    return rebuilt(arguments, whole)


def copy_tensors(value: Any) -> Any:
    """A nested value with its tensors copied, one copy of each storage."""
    storages: dict[int, torch.UntypedStorage] = {}

    def copied(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        address = storage.data_ptr()
        if address not in storages:
            storages[address] = storage.clone()
        form = (tensor.storage_offset(), tensor.size(), tensor.stride())
        with torch.no_grad():
            empty = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
            return empty.set_(storages[address], *form)  # type: ignore[call-overload]

    return map_tensors(value, copied)


def _is_change(node: ast.AST, counters: set[str]) -> bool:
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        has_output = any(keyword.arg == "out" for keyword in node.keywords)
        return has_output or (name.endswith("_") and not name.endswith("__"))
    if isinstance(node, ast.AugAssign):
        return not (isinstance(node.target, ast.Name) and node.target.id in counters)
    return isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)
