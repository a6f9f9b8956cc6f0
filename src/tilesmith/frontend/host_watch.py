"""Watches torch calls of host code: what computes there is not fused, and may be on a wrong device.

A call counts when it stands in the user's code, takes a tensor and gives memory of its own.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from types import CodeType, FrameType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from tilesmith.diagnostics import errors
from tilesmith.diagnostics.catalogue import BaseWarning
from tilesmith.diagnostics.location import SourceLocation
from tilesmith.diagnostics.warning_log import WarningLog
from tilesmith.frontend.sessions import find_tracer
from tilesmith.frontend.tracer import locate

QUIET_NAMES = (
    "broadcast", "contiguous", "expand", "fill", "full", "like", "new", "permute", "promote",
    "rand", "reshape", "squeeze", "strided", "transpose", "unsqueeze", "view", "zero",
)  # fmt: skip
"""Calls whose name contains one of these set the stage and compute nothing worth fusing."""

_BETWEEN = ("torch", "tilesmith.frontend.host_watch", "tilesmith.frontend.host_mode")


class HostWatch(TorchFunctionMode):
    """Active while host code runs; tells ``log`` what computes, once for each place."""

    def __init__(self, log: WarningLog, host: CodeType, device: torch.device | None) -> None:
        super().__init__()
        self._log = log
        self._host = host
        self._device = device
        self._is_asking = False

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run the call, then look at what it gave."""
        kwargs = kwargs or {}
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
        made = list(_tensors(result))
        if not made or name == "__get__":
            return
        loc = locate()
        if not _is_user_call() or all(p.code is not self._host for p in _with_callers(loc)):
            return
        for tensor in made:
            if self._device is not None and tensor.device != self._device:
                self._warn(errors.WrongDevice, loc, _spelling(func), tensor.device)
        if _computes(name, list(_tensors(given)), made):
            self._warn_of_operation(_spelling(func), loc)

    def _warn_of_operation(self, operation: str, loc: SourceLocation) -> None:
        if loc.code is self._host:
            self._warn(errors.TensorOperationInWrapper, loc, operation, None)
            return
        chain = list(_with_callers(loc))
        position = next(n for n, place in enumerate(chain) if place.code is self._host)
        called = chain[position - 1].function
        self._warn(errors.TensorOperationsInHostCall, chain[position], called, None)

    def _warn(
        self, warning: type[BaseWarning], loc: SourceLocation, operation: str, device: Any
    ) -> None:
        details = {"operation": operation}
        if device is not None:
            details |= {"device": str(device), "kernel_device": str(self._device)}
        self._log.warn(warning, loc=loc, **details)


def may_compute(statements: Sequence[ast.stmt]) -> bool:
    """Whether statements have anything that could be a torch operation."""
    nodes = (node for statement in statements for node in ast.walk(statement))
    return any(
        isinstance(node, (ast.Call, ast.BinOp, ast.UnaryOp, ast.Subscript)) for node in nodes
    )


def _is_user_call() -> bool:
    """Whether nothing but torch stands between the user's code and the watch."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _module_of(frame).startswith(_BETWEEN):
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


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        yield from _tensors(tuple(value.values()))


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
