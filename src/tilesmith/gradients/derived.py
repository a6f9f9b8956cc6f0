"""Gradients of a bound kernel: host code by torch's autograd, device code by a derived kernel.

Host code runs under autograd with the launch as one node, so views, casts and sums before and after
it need no rules here.
"""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import torch

import tilesmith.exc as errors
from tilesmith.compiler.specialization import Specialization, Variant
from tilesmith.frontend.containers import tensors_in
from tilesmith.frontend.source.split_kernel import SplitKernel
from tilesmith.gradients.program import differentiate, float_tensors, written_tensors
from tilesmith.gradients.source.kernel_text import BackwardSource, Options, Role, write_kernel
from tilesmith.ir.traversal import walk
from tilesmith.ir.types import TensorType
from tilesmith.runtime.arguments import compile_guard, compile_reader
from tilesmith.settings import Settings

Launcher = Callable[..., None]
_NUMBERS = itertools.count(1)
"""Of texts: two kernels may have one name."""


class Definition(Protocol):
    """What is asked of a kernel's definition."""

    name: str
    settings: Settings

    @property
    def split(self) -> SplitKernel:
        """Host and device code."""
        ...


class Bound(Protocol):
    """What is asked of a bound kernel."""

    @property
    def definition(self) -> Definition:
        """The kernel."""
        ...

    @property
    def specialization(self) -> Specialization:
        """Its traces."""
        ...

    @property
    def written_arguments(self) -> Collection[int]:
        """Positions of arguments whose memory it stores into."""
        ...

    def call_with(self, wrap: Callable[[Launcher], Launcher], args: tuple[Any, ...]) -> Any:
        """Run host code with something around the launcher."""
        ...


@dataclass(frozen=True)
class CompiledBackward:
    """A backward kernel that was made from its text."""

    source: BackwardSource
    kernel: Any


def compile_source(source: BackwardSource) -> Any:
    """The kernel that a text defines, through the decorator that is written there."""
    file = f"<{source.name} {next(_NUMBERS)}>"
    linecache.cache[file] = (len(source.text), None, source.text.splitlines(keepends=True), file)
    scope: dict[str, Any] = {"__name__": source.name}
    exec(compile(source.text, file, "exec"), scope)
    return scope[source.name]


def _options(settings: Settings) -> Options:
    default = Settings()
    names = ("dot_precision", "index_dtype", "fast_math", "backend", "check")
    others = [
        (name, repr(getattr(settings, name)))
        for name in names
        if getattr(settings, name) != getattr(default, name)
    ]
    return Options(settings.static_shapes, tuple(others))


class DerivedBackward:
    """The backward of one bound kernel; made by ``derive_backward``."""

    def __init__(self, bound: Bound) -> None:
        self.bound = bound
        self._made: dict[tuple[Variant, frozenset[str], frozenset[str]], CompiledBackward] = {}
        self._second: dict[Any, DerivedBackward] = {}
        self.latest: tuple[Any, tuple[Any, ...]] | None = None
        """The backward kernel that ran last, and its arguments."""
        self._guards: dict[Variant, Callable[..., bool] | None] = {}
        self._forms: dict[Variant, _LaunchForm] = {}

    @property
    def source(self) -> str:
        """The text of the backward kernel for all gradients."""
        return self._whole().source.text

    @property
    def kernel(self) -> Any:
        """The backward kernel for all gradients."""
        return self._whole().kernel

    def _whole(self) -> CompiledBackward:
        variant = self.bound.specialization.default
        function = variant.trace.function
        wanted = frozenset(value.name for value in float_tensors(function))
        given = frozenset(value.name for value in written_tensors(function))
        return self.compiled(variant, wanted, given)

    def compiled(
        self, variant: Variant, wanted: frozenset[str], given: frozenset[str]
    ) -> CompiledBackward:
        """The backward kernel that computes some gradients from the cotangents that there are."""
        key = (variant, wanted, given)
        if key not in self._made:
            program = differentiate(variant.trace.function, wanted, given)
            source = write_kernel(program, _options(self.bound.definition.settings))
            kernel = compile_source(source) if source.gradients else None
            self._made[key] = CompiledBackward(source, kernel)
        return self._made[key]

    def call(self, *args: Any) -> Any:
        """Run the forward kernel so that autograd can go back through it."""

        def wrap(launch: Launcher) -> Launcher:
            return lambda *values: self._launch(launch, values)

        with torch.enable_grad():
            return self.bound.call_with(wrap, args)

    def run(
        self,
        inputs: Sequence[Any],
        grad_outputs: Sequence[torch.Tensor | None],
        grad_written: Sequence[torch.Tensor | None] = (),
    ) -> tuple[torch.Tensor | None, ...]:
        """The gradient of each tensor among the inputs; None of one without floats.

        ``grad_outputs`` has the cotangent of each tensor that the kernel returns, or None;
        ``grad_written`` those of what it writes among the inputs.
        """
        places = sorted(self.bound.written_arguments) if grad_written else []
        leaves = [
            value.detach().clone() if place in places else _leaf(value)
            for place, value in enumerate(inputs)
        ]
        outputs = list(tensors_in(self.call(*leaves)))
        if len(grad_outputs) > len(outputs):
            reason = f"it gives {len(outputs)} tensors, and {len(grad_outputs)} gradients are given"
            name = self.bound.definition.name
            raise errors.AutodiffNotSupported(function=name, reason=reason)
        pairs = [
            (output, grad)
            for output, grad in zip(outputs, grad_outputs)
            if grad is not None and output.requires_grad
        ]
        changed = zip((leaves[place] for place in places), grad_written)
        pairs += [(leaf, grad) for leaf, grad in changed if grad is not None and leaf.requires_grad]
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        wanted = [leaf for leaf in tensors if leaf.requires_grad and leaf.is_leaf]
        found = torch.autograd.grad(
            [output for output, _ in pairs], wanted, [grad for _, grad in pairs], allow_unused=True
        )
        grads = dict(zip(map(id, wanted), found))
        return tuple(grads.get(id(leaf)) for leaf in tensors)

    def find_variant(self, values: tuple[Any, ...]) -> Variant:
        """The trace that what host code computed fits."""
        for variant in self.bound.specialization.variants:
            if variant not in self._guards:
                names = self.bound.definition.split.captured
                trace = variant.trace
                self._guards[variant] = compile_guard(names, trace.guards, trace.constants)
            guard = self._guards[variant]
            if guard is None or guard(*values):
                return variant
        return self.bound.specialization.default

    def form(self, variant: Variant) -> _LaunchForm:
        """What launches of a trace have in common."""
        if variant not in self._forms:
            names = self.bound.definition.split.captured
            self._forms[variant] = _LaunchForm(names, variant)
        return self._forms[variant]

    def _launch(self, launch: Launcher, values: tuple[Any, ...]) -> None:
        variant = self.find_variant(values)
        call = _Call(self, variant, launch, values)
        if any(tensor.requires_grad for tensor in call.tensors):
            call.check()
            call.apply()
        else:
            launch(*values)

    def back_through(self, made: CompiledBackward, args: Sequence[Any]) -> tuple[Any, ...]:
        """Run a backward kernel; so that autograd can go back once more where it wants to."""
        needs_graph = torch.is_grad_enabled() and any(
            isinstance(arg, torch.Tensor) and arg.requires_grad for arg in args
        )
        self.latest = made.kernel, tuple(args)
        if not needs_graph:
            found = made.kernel(*args)
        else:
            bound = made.kernel.bind(tuple(args))
            second = self._second.setdefault(bound, DerivedBackward(bound))
            found = second.call(*args)
        return found if isinstance(found, tuple) else (found,)


def _leaf(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().requires_grad_(value.is_floating_point())


class _LaunchForm:
    """What all launches of one trace have in common."""

    def __init__(self, names: Sequence[str], variant: Variant) -> None:
        trace = variant.trace
        parameters = [p for p in trace.function.parameters if not p.is_zeroed]
        self.sources = [parameter.source for parameter in parameters]
        self.read = compile_reader(names, self.sources, trace.constants)
        accessed = {v for op in walk(trace.function.body) for v in op.operand_values()}
        tensors = [
            p for p in parameters if isinstance(p.value.type, TensorType) and p.value in accessed
        ]
        self.names = [p.value.name for p in tensors]
        self.tensor_sources = [p.source for p in tensors]
        written = {value.name for value in written_tensors(trace.function)}
        self.written = [place for place, name in enumerate(self.names) if name in written]


class _Call:
    """One launch on its way through autograd."""

    def __init__(
        self, derived: DerivedBackward, variant: Variant, launch: Launcher, values: tuple[Any, ...]
    ) -> None:
        self.derived = derived
        self.variant = variant
        self.launch = launch
        self.values = values
        form = derived.form(variant)
        self.read = dict(zip(form.sources, form.read(*values)))
        self.names, self.tensor_sources, self.written = (
            form.names,
            form.tensor_sources,
            form.written,
        )
        self.tensors: list[torch.Tensor] = [self.read[source] for source in form.tensor_sources]
        # Autograd follows views only through operations of its own: one of them is a copy.
        self.is_copied = any(
            not self.tensors[place].requires_grad and self.tensors[place]._base is not None
            for place in self.written
        )

    def apply(self) -> None:
        """Launch as a node of autograd."""
        if not self.is_copied:
            _Launch.apply(self, *self.tensors)
            return
        copies = cast("tuple[torch.Tensor, ...]", _Launch.apply(self, *self.tensors))
        for place, copy in zip(self.written, copies):
            self.tensors[place].copy_(copy)

    def check(self) -> None:
        """Refuse what has no gradient as it is."""
        for place in self.written:
            if self.tensors[place].requires_grad:
                name = self.names[place]
                raise errors.AutodiffNotSupported(
                    function=self.derived.bound.definition.name,
                    reason=f"`{name}`, of which a gradient is wanted, is changed in place",
                )


class _Launch(torch.autograd.Function):
    """A launch as a node of autograd: written tensors depend on those that are read."""

    @staticmethod
    def forward(ctx: Any, call: _Call, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Launch; what is written stays the same tensor."""
        call.launch(*call.values)
        written = [tensors[place] for place in call.written]
        ctx.call = call
        ctx.set_materialize_grads(False)
        if call.is_copied:
            written = [tensor.clone() for tensor in written]
        else:
            ctx.mark_dirty(*written)
        ctx.save_for_backward(*(t for i, t in enumerate(tensors) if i not in call.written))
        return tuple(written)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        """Run the derived kernel for the gradients that are wanted."""
        call = cast("_Call", ctx.call)
        count = len(call.tensors)
        read = [place for place in range(count) if place not in call.written]
        saved = dict(zip(read, cast("tuple[torch.Tensor, ...]", ctx.saved_tensors)))
        wanted = frozenset(call.names[i] for i in read if ctx.needs_input_grad[i + 1])
        given = {call.names[i]: g for i, g in zip(call.written, grads) if g is not None}
        found: list[torch.Tensor | None] = [None] * count
        made = None
        if given and wanted:
            made = call.derived.compiled(call.variant, wanted, frozenset(given))
        if made is not None and made.source.gradients:
            sources = {call.tensor_sources[i]: tensor for i, tensor in saved.items()}
            known = {**call.read, **sources}
            args = [
                given[a.source] if a.role is Role.COTANGENT else known[a.source]
                for a in made.source.arguments
            ]
            results = call.derived.back_through(made, args)
            places = {source: i for i, source in enumerate(call.tensor_sources)}
            for source, result in zip(made.source.gradients, results):
                found[places[source]] = result
        return None, *found


def derive_backward(bound: Bound) -> DerivedBackward:
    """The backward of a bound kernel, derived when it is first needed."""
    return DerivedBackward(bound)
