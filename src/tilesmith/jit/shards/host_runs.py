"""Host code at two sizes: what it hands to device code, and whether it only allocates and views.

A kernel may run on shards only if nothing but the ranges of its loops follows from how long the
sharded dimensions are. Host code is run on tensors without memory that differ in this length;
numbers that differ then are those that follow from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tilesmith.frontend.containers import tensors_in
from tilesmith.frontend.tracing.host_session import HostSession
from tilesmith.frontend.tracing.tracer import running_host
from tilesmith.jit.definition import KernelDefinition

_EMPTY = ("empty", "new_empty", "zeros", "new_zeros", "ones", "new_ones", "zero_")
_FILLED = ("full", "new_full", "fill_")


class HostComputesError(Exception):
    """Host code computes with tensors, by an operator of this name."""


@dataclass(frozen=True)
class HostRun:
    """One run of host code."""

    arguments: tuple[torch.Tensor, ...]
    """The tensors among the arguments."""
    captured: tuple[Any, ...]
    """What it handed over at the launch point."""
    result: Any
    fills: tuple[Any, ...]
    """Constants that it filled tensors with."""


class Watch(TorchDispatchMode):
    """Lets host code allocate and take views, and nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.fills: list[Any] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """Look at one operator."""
        name = func._schema.name.removeprefix("aten::")
        stem = name.removesuffix("_like").removesuffix("_strided")
        returned = func._schema.returns
        is_view = any(r.alias_info and not r.alias_info.is_write for r in returned)
        if not any("Tensor" in str(r.type) for r in returned):
            return func(*args, **(kwargs or {}))  # such as promote_types
        if stem in _FILLED:
            self.fills.append([value for value in args if isinstance(value, (int, float, bool))])
        elif stem not in _EMPTY and not is_view:
            raise HostComputesError(name)
        return func(*args, **(kwargs or {}))


def run_host(
    definition: KernelDefinition, args: tuple[Any, ...], *, is_watched: bool = True
) -> HostRun:
    """Run host code on tensors without memory; watched, it raises HostComputesError."""
    captured: list[Any] = []

    def launch(*values: Any) -> None:
        captured.extend(values)

    device = launch.device = torch.device("meta")  # type: ignore[attr-defined]
    watch = Watch()
    with running_host(HostSession(device=device)), watch if is_watched else nullcontext():
        result = definition.split.host_function()(launch, *args)
    return HostRun(tuple(tensors_in(args)), tuple(captured), result, tuple(watch.fills))


def shadow(tensor: torch.Tensor, changed: int | None = None, length: int = 0) -> torch.Tensor:
    """A tensor of the same form without memory; one dimension may have another length."""
    shape = [length if dim == changed else n for dim, n in enumerate(tensor.shape)]
    order = sorted(range(tensor.dim()), key=lambda dim: (-tensor.stride(dim), dim))
    dense = torch.empty([shape[dim] for dim in order], dtype=tensor.dtype, device="meta")
    return dense.permute([order.index(dim) for dim in range(tensor.dim())])
