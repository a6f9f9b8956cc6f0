"""A launch as a node of autograd: what it saves, and the backward kernel that it runs."""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, cast

import torch

import tilesmith.exc as errors
from tilesmith.compiler.specialization import Specialization, Variant
from tilesmith.frontend.source.split_kernel import SplitKernel
from tilesmith.gradients.program import first_access, written_tensors
from tilesmith.gradients.source.kernel_text import BackwardSource, Role
from tilesmith.ir.traversal import walk
from tilesmith.ir.types import TensorType
from tilesmith.runtime.arguments import compile_reader
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


@dataclass(frozen=True, eq=False)
class CompiledBackward:
    """A backward kernel, which is made from its text when it is first asked for."""

    source: BackwardSource

    @cached_property
    def kernel(self) -> Any:
        """What the text defines."""
        return compile_source(self.source)

    @property
    def captured(self) -> frozenset[str]:
        """The launch expressions of the forward kernel that it needs."""
        arguments = self.source.arguments
        return frozenset(a.source for a in arguments if a.role is Role.CAPTURED)


def compile_source(source: BackwardSource) -> Any:
    """The kernel that a text defines, through the decorator that is written there."""
    file = f"<{source.name} {next(_NUMBERS)}>"
    linecache.cache[file] = (len(source.text), None, source.text.splitlines(keepends=True), file)
    scope: dict[str, Any] = {"__name__": source.name}
    exec(compile(source.text, file, "exec"), scope)
    return scope[source.name]


class Backwards(Protocol):
    """The backward kernels of a bound kernel, one for each choice of gradients."""

    bound: Bound

    def compiled(
        self,
        variant: Variant,
        wanted: frozenset[str],
        given: frozenset[str],
        saved: frozenset[str] | None = None,
    ) -> CompiledBackward:
        """The one for some gradients and cotangents."""
        ...

    def planned(
        self, variant: Variant, wanted: frozenset[str], given: frozenset[str]
    ) -> CompiledBackward | None:
        """The same before it is known whether it will run; None where there is no derivative."""
        ...

    def form(self, variant: Variant) -> LaunchForm:
        """What launches of a trace have in common."""
        ...

    def back_through(self, made: CompiledBackward, args: Sequence[Any]) -> tuple[Any, ...]:
        """Run one."""
        ...


def _whole_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """The tensor itself, or the one that it is another shape of; None of a part of one."""
    base = tensor._base  # pyright: ignore[reportPrivateUsage]
    if tensor.requires_grad or base is None:
        return tensor
    is_all = (
        not base.requires_grad
        and base.is_contiguous()
        and tensor.is_contiguous()
        and base.numel() == tensor.numel()
        and base.dtype == tensor.dtype
    )
    return base if is_all else None


class LaunchForm:
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


class LaunchCall:
    """One launch on its way through autograd."""

    def __init__(
        self, derived: Backwards, variant: Variant, launch: Launcher, values: tuple[Any, ...]
    ) -> None:
        self.derived = derived
        self.variant = variant
        self.launch = launch
        self.values = values
        form = derived.form(variant)
        self.read = dict(zip(form.sources, form.read(*values)))
        self.names, self.written = form.names, form.written
        self.tensor_sources = form.tensor_sources
        self.tensors: list[torch.Tensor] = [self.read[source] for source in form.tensor_sources]
        bases = [_whole_of(self.tensors[place]) for place in self.written]
        is_one = len({id(base) for base in bases}) < len(bases)
        # Autograd follows views only through operations of its own: one of them is a copy.
        self.is_copied = is_one or any(base is None for base in bases)
        self.marked = self.tensors.copy()
        """What autograd is told of: the whole tensor where a view of all of it is written."""
        for place, base in zip(self.written, bases):
            if base is not None and not self.is_copied:
                self.marked[place] = base

    def apply(self) -> None:
        """Launch as a node of autograd."""
        if not self.is_copied:
            _Launch.apply(self, *self.marked)
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
                    loc=first_access(self.variant.trace.function, name),
                )


@dataclass(frozen=True)
class _Record:
    """What going back through a launch needs, apart from tensors: those are autograd's to keep."""

    derived: Backwards
    variant: Variant
    names: Sequence[str]
    sources: Sequence[str]
    written: Sequence[int]
    numbers: Mapping[str, Any]
    """Of the host, by launch expression."""
    whole: CompiledBackward | None
    """For all results; None where there is no derivative."""
    wanted: frozenset[str]
    saved: Sequence[int]
    """Places of the tensors that are saved."""

    @staticmethod
    def of(call: LaunchCall, needs: Sequence[bool]) -> _Record:
        """Find what has to be saved of a launch."""
        written = frozenset(call.names[place] for place in call.written)
        read = frozenset(name for name, need in zip(call.names, needs) if need) - written
        whole = call.derived.planned(call.variant, read, written)
        needed = whole.captured if whole is not None else ()
        numbers = {s: v for s, v in call.read.items() if not isinstance(v, torch.Tensor)}
        return _Record(
            call.derived,
            call.variant,
            call.names,
            call.tensor_sources,
            call.written,
            numbers,
            whole,
            read,
            [place for place, source in enumerate(call.tensor_sources) if source in needed],
        )

    def choose(self, wanted: frozenset[str], given: frozenset[str]) -> CompiledBackward:
        """The backward kernel for some gradients, of those that what was saved is enough for."""
        names = frozenset(self.names[i] for i in self.saved if i in self.written)
        made = self.derived.compiled(self.variant, wanted, given, names)
        there = {*self.numbers, *(self.sources[place] for place in self.saved)}
        if self.whole is None or made.captured <= there:
            return made
        return self.whole


class _Launch(torch.autograd.Function):
    """A launch as a node of autograd: written tensors depend on those that are read."""

    @staticmethod
    def forward(ctx: Any, call: LaunchCall, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Launch; what is written stays the same tensor."""
        call.launch(*call.values)
        written = [tensors[place] for place in call.written]
        ctx.set_materialize_grads(False)
        if call.is_copied:
            written = [tensor.clone() for tensor in written]
        else:
            ctx.mark_dirty(*written)
        record = ctx.record = _Record.of(call, ctx.needs_input_grad[1:])
        known = {**dict(enumerate(tensors)), **dict(zip(call.written, written))}
        ctx.save_for_backward(*(known[place] for place in record.saved))
        ctx.forms = [call.tensors[place].size() for place in call.written]
        ctx.kinds = [(tensor.dtype, tensor.device) for tensor in written]
        return tuple(written)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        """Run the derived kernel for the gradients that are wanted."""
        record = cast("_Record", ctx.record)
        names = record.names
        read = [place for place in range(len(names)) if place not in record.written]
        wanted = frozenset(names[i] for i in read if ctx.needs_input_grad[i + 1])
        sizes = dict(zip(record.written, cast("list[torch.Size]", ctx.forms)))
        given = {
            names[i]: g.reshape(sizes[i]) for i, g in zip(record.written, grads) if g is not None
        }
        found: list[torch.Tensor | None] = [None] * len(names)
        made = record.choose(wanted, frozenset(given)) if given and wanted else None
        if made is not None and made.source.gradients:
            saved = cast("tuple[torch.Tensor, ...]", ctx.saved_tensors)
            known = dict(record.numbers)
            for place, tensor in zip(record.saved, saved):
                known[record.sources[place]] = tensor.reshape(sizes.get(place, tensor.size()))
            for place, (dtype, device) in zip(record.written, ctx.kinds):
                if names[place] not in given and made is record.whole:
                    given[names[place]] = torch.zeros(sizes[place], dtype=dtype, device=device)
            args = [
                given[a.source] if a.role is Role.COTANGENT else known[a.source]
                for a in made.source.arguments
            ]
            results = record.derived.back_through(made, args)
            places = {source: i for i, source in enumerate(record.sources)}
            for source, result in zip(made.source.gradients, results):
                if names[places[source]] in wanted:
                    found[places[source]] = result
        return None, *found
