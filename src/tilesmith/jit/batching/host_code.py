"""Host code of one element, on tensors without memory: what a launch sees and how it is made.

Only allocations and views can be repeated for a whole batch at once. Anything that host code
computes ends this: then the kernel is called once for each element.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from typing_extensions import override

from tilesmith.frontend.containers import tensors_in
from tilesmith.frontend.source.kernel_source import KernelSource
from tilesmith.frontend.tracing.host_session import HostSession
from tilesmith.frontend.tracing.tracer import running_host
from tilesmith.jit.definition import KernelDefinition
from tilesmith.jit.shards.host_runs import HostComputesError, Watch

DEVICE_QUESTIONS = {"is_cuda", "is_cpu", "is_meta", "is_xpu", "is_mps", "get_device"}


class NotBatchedError(Exception):
    """Why a kernel is called once for each element."""


@dataclass(frozen=True)
class Form:
    """A tensor of one element: where it lies in memory that was given or made."""

    memory: int
    """Which argument it is a view of; from -1 downwards, which of the tensors that are made."""
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class Made:
    """Memory that host code allocates."""

    length: int
    dtype: torch.dtype
    fill: Any
    """None: what is in it does not matter."""


@dataclass(frozen=True)
class ElementRun:
    """What host code does for one element."""

    captured: tuple[Any, ...]
    made: tuple[Made, ...]
    results: tuple[Form, ...]
    arguments: tuple[torch.Tensor, ...]
    memories: tuple[tuple[torch.UntypedStorage, int], ...]
    """Which argument, or which of those that were made, a storage is."""

    def form_of(self, tensor: torch.Tensor) -> Form:
        """Where a tensor of host code lies."""
        storage = tensor.untyped_storage()
        number = next((n for memory, n in self.memories if memory is storage), None)
        if number is None:
            raise NotBatchedError("it uses a tensor that is no argument")
        if number >= 0 and tensor.dtype != self.arguments[number].dtype:
            raise NotBatchedError("it takes an argument for another type")
        if number < 0 and tensor.dtype != self.made[-1 - number].dtype:
            raise NotBatchedError("it takes what it made for another type")
        return Form(number, tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset()))


class _Allocations(Watch):
    """Notes what tensors are filled with."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[torch.Tensor] = []
        self.values: list[Any] = []

    @override
    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """Look at one operator."""
        if func._schema.name == "aten::broadcast_tensors":  # views, though its schema hides it
            return func(*args, **(kwargs or {}))
        result = super().__torch_dispatch__(func, types, args, kwargs)
        stem = func._schema.name.removeprefix("aten::").removeprefix("new_")
        stem = stem.removesuffix("_like").removesuffix("_strided")
        if stem in ("zero_", "fill_"):
            self._fill(args[0], 0 if stem == "zero_" else args[1])
        elif stem in ("empty", "zeros", "ones", "full"):
            self.made.append(result)
            constants = {"empty": None, "zeros": 0, "ones": 1}
            place = 2 if "new_" in func._schema.name else 1
            self.values.append(constants[stem] if stem in constants else args[place])
        return result

    def _fill(self, tensor: torch.Tensor, value: Any) -> None:
        for number, made in enumerate(self.made):
            if made is tensor and not isinstance(value, torch.Tensor):
                self.values[number] = value
                return
        raise NotBatchedError("it fills a part of a tensor")


def looks_at_device(source: KernelSource) -> bool:
    """Whether host code does more with the device of a tensor than to allocate there.

    Shadows are on no device that host code may decide by.
    """
    nodes = [node for statement in source.before for node in ast.walk(statement)]
    handed = {
        id(node.value) for node in nodes if isinstance(node, ast.keyword) and node.arg == "device"
    }
    read = [node for node in nodes if isinstance(node, ast.Attribute)]
    return any(
        node.attr in DEVICE_QUESTIONS or (node.attr == "device" and id(node) not in handed)
        for node in read
    )


def run_element(
    definition: KernelDefinition, args: tuple[Any, ...], tensors: Sequence[torch.Tensor]
) -> ElementRun:
    """Run host code on the shadow of one element; ``tensors`` are those among its arguments."""
    launches: list[tuple[Any, ...]] = []

    def launch(*values: Any) -> None:
        launches.append(values)

    device = launch.device = torch.device("meta")  # type: ignore[attr-defined]
    watch = _Allocations()
    try:
        with running_host(HostSession(device=device)), watch:
            result = definition.split.host_function()(launch, *args)
    except HostComputesError as problem:
        raise NotBatchedError(f"its host code computes `{problem}`") from None
    except (AssertionError, RuntimeError, ValueError, NotImplementedError) as problem:
        raise NotBatchedError(f"its host code needs more than sizes: {problem}") from None
    if len(launches) != 1:
        raise NotBatchedError("it has several launches, or none")
    memories = (
        *((tensor.untyped_storage(), number) for number, tensor in enumerate(tensors)),
        *((tensor.untyped_storage(), -1 - number) for number, tensor in enumerate(watch.made)),
    )
    made = tuple(
        Made(tensor.untyped_storage().nbytes() // tensor.element_size(), tensor.dtype, value)
        for tensor, value in zip(watch.made, watch.values)
    )
    run = ElementRun(launches[0], made, (), tuple(tensors), memories)
    results = tuple(run.form_of(tensor) for tensor in tensors_in(result))
    return ElementRun(launches[0], made, results, tuple(tensors), memories)
