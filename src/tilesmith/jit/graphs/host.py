"""Host code of a kernel for graphs of torch: run without launches, on tensors without memory."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import torch

from tilesmith.frontend.containers import tensors_in
from tilesmith.frontend.source.kernel_source import KernelSource, called_name
from tilesmith.frontend.tracing.host_session import HostSession
from tilesmith.frontend.tracing.tracer import running_host
from tilesmith.jit.definition import KernelDefinition
from tilesmith.operators.gradient import Gradient
from tilesmith.schedule.config import Config

_READING = frozenset({"load", "len", "print", "device_print"})
"""Functions that are given whole tensors and only read them."""

Gradients = Sequence[torch.Tensor | None]


class _StagedKernel(Protocol):
    @property
    def kernels(self) -> Sequence[Any]: ...

    def run(self, args: tuple[Any, ...], launches: Sequence[Callable[..., Any]]) -> Any: ...


class _Kernel(Protocol):
    definition: KernelDefinition
    gradient: Gradient | None

    def run_backward(self, args: tuple[Any, ...], *gradients: Gradients) -> Gradients: ...

    @property
    def staged(self) -> _StagedKernel | None: ...

    def call_plainly(self, args: tuple[Any, ...]) -> Any: ...


class GraphHost:
    """A kernel as operators see it."""

    def __init__(self, kernel: _Kernel) -> None:
        self._kernel = kernel
        self.name = kernel.definition.name
        self.parameters: Sequence[str] = kernel.definition.parameters

    @property
    def gradient(self) -> Gradient | None:
        """What was registered for its gradient."""
        return self._kernel.gradient

    @property
    def is_derived(self) -> bool:
        """Whether its gradient is derived where none was registered."""
        choice = self._kernel.definition.settings.missing_gradient
        return choice == "derive" and self._kernel.staged is None

    def run_backward(self, args: tuple[Any, ...], *gradients: Gradients) -> Gradients:
        """The derived gradient of each tensor argument."""
        return self._kernel.run_backward(args, *gradients)

    def run(self, args: tuple[Any, ...]) -> Any:
        """The result of a call."""
        return self._kernel.call_plainly(args)

    def run_host(self, args: tuple[Any, ...]) -> tuple[Any, list[torch.Tensor]]:
        """The result of host code without its launches, and the tensors these would write."""
        written: list[torch.Tensor] = []
        staged = self._kernel.staged
        if staged is not None:
            stages = [kernel.definition for kernel in staged.kernels]
            names = [(d.parameters, written_names(d.split.source)) for d in stages]
            launches = [_Launch(given, changed, written) for given, changed in names]
            return staged.run(args, launches), written
        definition = self._kernel.definition
        split = definition.split
        launch = _Launch(split.captured, written_names(split.source), written)
        launch.device = definition.find_device(args)
        with running_host(_session(definition.configs, launch.device)):
            return split.host_function()(launch, *args), written


class _Launch:
    """The launch point of host code: notes the tensors that device code writes."""

    device: Any = None

    def __init__(
        self, names: Sequence[str], changed: frozenset[str], written: list[torch.Tensor]
    ) -> None:
        self._names, self._changed, self._written = names, changed, written

    def __call__(self, *values: Any) -> None:
        for name, value in zip(self._names, values):
            if name in self._changed:
                self._written.extend(tensors_in(value))


def _session(configs: Sequence[Config], device: Any) -> HostSession:
    blocks = configs[0].get("block_sizes", []) if configs else []
    return HostSession(dict(enumerate(blocks)), configs[0] if configs else {}, device=device)


def written_names(source: KernelSource) -> frozenset[str]:
    """Host names whose elements device code stores to, or hands to a function that may."""
    found = source.loop_names
    return frozenset({*found.bound, *found.changed, *_names_given(source.loops)})


def _names_given(statements: Iterable[ast.stmt]) -> Iterable[str]:
    for statement in statements:
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and called_name(node) not in _READING:
                given = (*node.args, *(keyword.value for keyword in node.keywords))
                yield from (item.id for item in given if isinstance(item, ast.Name))
