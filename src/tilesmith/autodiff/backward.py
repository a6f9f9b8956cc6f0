"""Gradients of a kernel's results: host code under autograd, launches by their backward kernels.

Host code runs once more with a graph: torch differentiates what it does with tensors (views, sums
of partial results), and each launch is one node whose gradient is a kernel of ours.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

import tilesmith.exc as errors
from tilesmith.autodiff.kernel_text import NAME, BackwardText, write_backward
from tilesmith.autodiff.outline import Outline
from tilesmith.dtypes import DTYPES_BY_NAME
from tilesmith.frontend.source.stages import make_stages
from tilesmith.interpreter.torch_dtypes import to_torch
from tilesmith.ir.types import TensorType, Value
from tilesmith.jit.bound_kernel import BoundKernel
from tilesmith.jit.executables import CapturedLaunch
from tilesmith.jit.kernel import Kernel
from tilesmith.jit.staged_kernel import StagedKernel
from tilesmith.settings import Settings

KEPT_SETTINGS = ("backend", "dot_precision", "fast_math", "index_dtype", "num_threads")


@dataclass
class BackwardRun:
    """What one call of ``backward`` collects."""

    autotune: bool
    effort: str | None
    texts: list[str] = field(default_factory=list[str])
    triton: list[str] = field(default_factory=list[str])


def backward(
    kernel: Kernel,
    grad_out: Any,
    *inputs: Any,
    return_code: bool = False,
    autotune: bool = False,
    autotune_effort: str | None = None,
) -> Any:
    """The gradients of a kernel's tensor arguments, given those of its results.

    Example:
        ``grad_x, grad_y = tilesmith.experimental.backward(kernel, grad_out, x, y)``

    Args:
        kernel: not changed, and not called on these arguments but on copies.
        grad_out: the gradient of the result, or of all results that are tensors; those at the end
            may be left out, and None means zeros.
        inputs: the kernel's arguments.
        return_code: also return the source of the backward kernel, and its Triton module.
        autotune: search for a config of the backward kernel.
        autotune_effort: how long to search.
    """
    run = BackwardRun(autotune, autotune_effort)
    args = kernel.definition.with_defaults(inputs)
    leaves = [_leaf(arg) for arg in args]
    with torch.enable_grad():
        # Kernels may write to their arguments, which leaves of a graph do not allow.
        given = [leaf * 1 if _is_leaf(leaf) else leaf for leaf in leaves]
        results = _run_host(kernel, tuple(given), run)
        found = _gradients(kernel, results, grad_out, [leaf for leaf in leaves if _is_leaf(leaf)])
    tensors = found[0] if len(found) == 1 else tuple(found)
    return (tensors, "\n\n".join(run.texts), "\n\n".join(run.triton)) if return_code else tensors


def _leaf(arg: Any) -> Any:
    if isinstance(arg, torch.Tensor) and arg.is_floating_point():
        return arg.detach().clone().requires_grad_()
    return arg


def _is_leaf(arg: Any) -> bool:
    return isinstance(arg, torch.Tensor) and arg.requires_grad


def _gradients(
    kernel: Kernel, results: Any, grad_out: Any, leaves: list[torch.Tensor]
) -> list[torch.Tensor]:
    listed: list[Any] = list(results) if isinstance(results, (tuple, list)) else [results]
    outputs = [item for item in listed if isinstance(item, torch.Tensor)]
    grads: list[Any] = list(grad_out) if isinstance(grad_out, (tuple, list)) else [grad_out]
    if len(grads) > len(outputs):
        reason = f"it gives {len(outputs)} tensors, and {len(grads)} gradients are given"
        raise errors.AutodiffNotSupported(function=kernel.name, reason=reason)
    pairs = [(o, g) for o, g in zip(outputs, grads) if o.requires_grad and g is not None]
    if not pairs:
        return [torch.zeros_like(leaf) for leaf in leaves]
    given = [grad.to(output.dtype) for output, grad in pairs]
    outputs = [output for output, _ in pairs]
    found: Any = torch.autograd.grad(outputs, leaves, given, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(leaves, found)]


def _run_host(kernel: Kernel, args: tuple[Any, ...], run: BackwardRun) -> Any:
    """Run host code; each launch becomes a node of the graph."""
    whole = kernel.definition
    settings = Settings(**{**whole.settings.to_dict(), "static_shapes": True})
    definition = whole.changed(settings=settings, configs=whole.configs)
    source = definition.staged or make_stages(definition.fn)
    staged = StagedKernel(definition, source, Kernel)

    def launch_of(number: int) -> Any:
        return lambda *values: _launch(staged.kernels[number], values, run)

    return staged.run(args, [launch_of(number) for number in range(len(staged.kernels))])


def _launch(kernel: Kernel, values: tuple[Any, ...], run: BackwardRun) -> None:
    bound = kernel.bind(values)
    launch = bound.capture_launch(values)
    function = launch.variant.function
    parameters = [p for p in function.parameters if isinstance(p.value.type, TensorType)]
    tensors = launch.read([p.source for p in parameters])
    node = LaunchNode(bound, launch, Outline(function, kernel.definition.name), tensors, run)
    # Autograd knows how to follow a copy into a view; of a function that changes views in place it
    # knows only the simplest.
    for tensor, new in zip(node.written(), _Launch.apply(node, *tensors)):
        tensor.copy_(new)


class LaunchNode:
    """One launch, and what its gradient needs."""

    def __init__(
        self,
        bound: BoundKernel,
        launch: CapturedLaunch,
        outline: Outline,
        tensors: tuple[torch.Tensor, ...],
        run: BackwardRun,
    ) -> None:
        self.bound = bound
        self.launch = launch
        self.outline = outline
        self.values = outline.tensors
        self.run = run
        self._read = dict(zip(self.values, tensors))
        """Each tensor as the launch's loads have seen it."""

    def written(self) -> list[torch.Tensor]:
        """The tensors that the launch writes to."""
        return [self._read[value] for value in self.values if self.is_written(value)]

    def start(self) -> list[torch.Tensor]:
        """Launch it; copies of the tensors that it writes to."""
        written = self.written()
        for value in self.values:
            is_changed = self.is_written(value) and self.outline.loads(value)
            if is_changed and self.outline.reads_old(value):
                self._read[value] = self._read[value].detach().clone()
        self.bound(*self.launch.arguments)
        return [tensor.detach().clone() for tensor in written]

    def is_written(self, value: Value) -> bool:
        """Whether the launch stores into a tensor."""
        return any(op.tensor is value for op in self.outline.stores(value))

    def gradients(
        self, given: Sequence[torch.Tensor | None], needed: Sequence[bool]
    ) -> list[torch.Tensor | None]:
        """What reaches the tensors, given the gradients of those that were written."""
        wanted = {value for value, is_needed in zip(self.values, needed) if is_needed}
        text = write_backward(self.outline, wanted, self._settings())
        outer = dict(zip((v for v in self.values if self.is_written(v)), given))
        dtype = to_torch(DTYPES_BY_NAME[text.dtype])
        found = {value: self._start(value, outer.get(value), dtype) for value in text.gradients}
        loaded = [self._read[value].detach() for value in text.loaded]
        self._run(text, (*loaded, *self._numbers(text), *found.values()))
        return [
            found[value].to(self._read[value].dtype) if value in wanted and value in found else None
            for value in self.values
        ]

    def _settings(self) -> dict[str, object]:
        default = Settings.from_environment({}, {})
        ours = self.bound.settings
        kept = {name: getattr(ours, name) for name in KEPT_SETTINGS}
        return {name: v for name, v in kept.items() if v != getattr(default, name)}

    def _numbers(self, text: BackwardText) -> tuple[Any, ...]:
        sources = {p.value: p.source for p in self.outline.function.parameters}
        return self.launch.read([sources[value] for value in text.numbers])

    def _start(self, value: Value, given: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor:
        tensor = self._read[value]
        if given is None:
            return torch.zeros(tensor.shape, dtype=dtype, device=tensor.device)
        return given.detach().to(dtype).clone(memory_format=torch.contiguous_format)

    def _run(self, text: BackwardText, args: tuple[Any, ...]) -> None:
        folder = Path(self.bound.settings.cache_dir) / "backward"
        kernel = load_kernel(folder, text.source)
        self.run.texts.append(text.source)
        if self.run.autotune:
            effort = self.run.effort
            options: dict[str, Any] = {} if effort in (None, "none") else {"effort": effort}
            kernel.autotune(args, **options)
        bound = kernel.bind(args)
        self.run.triton.append(bound.to_triton_code())
        bound(*args)


class _Launch(torch.autograd.Function):
    """A launch as a node of torch's graph; what it gives is what its tensors hold afterwards."""

    @staticmethod
    def forward(ctx: Any, node: LaunchNode, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.node = node
        ctx.set_materialize_grads(False)
        return tuple(node.start())

    @staticmethod
    def backward(ctx: Any, *given: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        return (None, *ctx.node.gradients(given, ctx.needs_input_grad[1:]))


@cache
def load_kernel(folder: Path, source: str) -> Kernel:
    """The kernel of a generated module, which is kept as a file so that errors can show it."""
    path = folder / f"tilesmith_backward_{sha256(source.encode()).hexdigest()[:16]}.py"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, NAME)
