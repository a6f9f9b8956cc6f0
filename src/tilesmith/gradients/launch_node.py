"""A launch as a node of autograd: what it saves, and the backward kernel that it runs."""

from __future__ import annotations

import itertools
import linecache
import weakref
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, cast

import torch

import tilesmith.exc as errors
from tilesmith.compiler.specialization import Specialization, Variant
from tilesmith.frontend.source.split_kernel import SplitKernel
from tilesmith.gradients.overwritten import is_of_leaf, names_before, whole_of
from tilesmith.gradients.program import first_access, written_tensors
from tilesmith.gradients.source.kernel_text import BackwardSource, Role
from tilesmith.ir.traversal import walk
from tilesmith.ir.types import TensorType
from tilesmith.runtime.arguments import compile_reader
from tilesmith.settings import Settings

Launcher = Callable[..., None]
Needs = tuple[bool, ...]
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

    def with_launcher(self, wrap: Callable[[Launcher], Launcher]) -> Callable[..., Any]:
        """Runs host code with something around the launcher."""
        ...

    def capture_launch(self, args: tuple[Any, ...]) -> Any:
        """Makes a trace that fits arguments, if there is none; nothing is launched."""
        ...


@dataclass(frozen=True, eq=False)
class CompiledBackward:
    """A backward kernel, which is made from its text when it is first asked for."""

    source: BackwardSource

    @cached_property
    def kernel(self) -> Any:
        """What the text defines."""
        return compile_source(self.source.name, self.source.text)

    @property
    def captured(self) -> frozenset[str]:
        """The launch expressions of the forward kernel that it needs."""
        arguments = self.source.arguments
        return frozenset(a.source for a in arguments if a.role is Role.CAPTURED)


def compile_source(name: str, text: str) -> Any:
    """The kernel that a text defines, through the decorator that is written there."""
    file = f"<{name} {next(_NUMBERS)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    scope: dict[str, Any] = {"__name__": name}
    exec(compile(text, file, "exec"), scope)
    # Lines are shown for as long as there is something that they are of.
    weakref.finalize(scope[name], linecache.cache.pop, file, None)
    return scope[name]


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

    def back_through(self, made: CompiledBackward, args: Sequence[Any]) -> tuple[Any, ...]:
        """Run one."""
        ...


class LaunchForm:
    """What all launches of one trace have in common; finds things once that are the same in all."""

    def __init__(self, derived: Backwards, variant: Variant) -> None:
        self.derived, self.variant = derived, variant
        trace, captured = variant.trace, derived.bound.definition.split.captured
        parameters = [p for p in trace.function.parameters if not p.is_zeroed]
        accessed = {v for op in walk(trace.function.body) for v in op.operand_values()}
        tensors = [
            p for p in parameters if isinstance(p.value.type, TensorType) and p.value in accessed
        ]
        self.numbers = [p.source for p in parameters if not isinstance(p.value.type, TensorType)]
        self.names = [p.value.name for p in tensors]
        self.sources = [p.source for p in tensors]
        before = names_before(trace.function)
        self.overwritten = [self.names.index(name) for name, _ in before]
        """Places of tensors that are read first; what was in them comes after all others."""
        self.names += [old for _, old in before]
        self.sources += [self.sources[place] for place in self.overwritten]
        self.places = {source: place for place, source in enumerate(self.sources)}
        self.read_tensors = compile_reader(captured, self.sources, trace.constants)
        self.read_numbers = compile_reader(captured, self.numbers, trace.constants)
        written = {value.name for value in written_tensors(trace.function)}
        self.written = [place for place, name in enumerate(self.names) if name in written]
        self._records: dict[Needs, _Record] = {}

    def run(self, launch: Launcher, values: tuple[Any, ...]) -> None:
        """Launch as a node of autograd, if it has to be one."""
        tensors = list(self.read_tensors(*values))
        if not any(tensor.requires_grad for tensor in tensors):
            launch(*values)
            return
        changed = [place for place in self.written if tensors[place].requires_grad]
        for place in changed:
            if place not in self.overwritten or is_of_leaf(tensors[place]):
                self._refuse(self.names[place])
        old = [tensors[place].clone() for place in self.overwritten]
        tensors[len(tensors) - len(old) :] = old
        bases = [whole_of(tensors[place]) for place in self.written]
        # Autograd follows views only through operations of its own: one of them is a copy.
        is_shared = len({*map(id, bases)}) < len(bases) or any(base is None for base in bases)
        is_copied = bool(changed) or is_shared
        marked = list(tensors)
        """What it is told of: the whole tensor where a view of all of it is written."""
        for place, base in zip(self.written, () if is_copied else bases):
            marked[place] = cast("torch.Tensor", base)
        sizes = [tensors[place].size() for place in self.written]
        made = _Launch.apply((self, launch, values, sizes, is_copied), *marked)
        for place, copy in zip(self.written, made if is_copied else ()):
            tensors[place].copy_(copy)

    def _refuse(self, name: str) -> None:
        raise errors.AutodiffNotSupported(
            function=self.derived.bound.definition.name,
            reason=f"`{name}`, of which a gradient is wanted, is changed in place",
            loc=first_access(self.variant.trace.function, name),
        )

    def record(self, needs: Needs) -> _Record:
        """What launches keep whose tensors need these gradients."""
        if needs not in self._records:
            self._records[needs] = _Record(self, needs)
        return self._records[needs]


class _Record:
    """What going back through launches of a form needs: which tensors, and the kernels for it."""

    def __init__(self, form: LaunchForm, needs: Needs) -> None:
        written = frozenset(form.names[place] for place in form.written)
        read = frozenset(name for name, need in zip(form.names, needs) if need) - written
        self.form = form
        self.whole = form.derived.planned(form.variant, read, written)
        """For all results; None where there is no derivative."""
        needed = self.whole.captured if self.whole is not None else ()
        self.saved = sorted(place for source, place in form.places.items() if source in needed)
        """Places of the tensors that are saved."""
        self._steps: dict[tuple[Needs, Needs], _Step | None] = {}

    def step(self, needs: Needs, given: Needs) -> _Step | None:
        """What runs where these gradients are wanted and those cotangents are there; or nothing."""
        key = needs, given
        if key not in self._steps:
            self._steps[key] = self._find_step(needs, given)
        return self._steps[key]

    def _find_step(self, needs: Needs, given: Needs) -> _Step | None:
        form = self.form
        read = [place for place in range(len(needs)) if place not in form.written]
        wanted = frozenset(form.names[place] for place in read if needs[place])
        there = frozenset(form.names[i] for i, is_there in zip(form.written, given) if is_there)
        made = self._choose(wanted, there) if wanted and there else None
        return _Step(self, made, wanted) if made is not None and made.source.gradients else None

    def _choose(self, wanted: frozenset[str], given: frozenset[str]) -> CompiledBackward:
        """The backward kernel for some gradients, of those that what was saved is enough for."""
        form = self.form
        names = frozenset(form.names[i] for i in self.saved if i in form.written)
        made = form.derived.compiled(form.variant, wanted, given, names)
        there = {*form.numbers, *(form.sources[place] for place in self.saved)}
        return made if self.whole is None or made.captured <= there else self.whole


class _Step:
    """One way back: a kernel, where its arguments come from and where its results go."""

    def __init__(self, record: _Record, made: CompiledBackward, wanted: frozenset[str]) -> None:
        form = record.form
        self.made = made
        self.num_places = len(form.names)
        where = {(True, form.names[place]): (0, i) for i, place in enumerate(form.written)}
        where |= {(False, source): (2, i) for i, source in enumerate(form.numbers)}
        where |= {(False, form.sources[place]): (1, i) for i, place in enumerate(record.saved)}
        arguments = made.source.arguments
        self.arguments = [where[a.role is Role.COTANGENT, a.source] for a in arguments]
        """Of each argument which of three lists it is in, cotangents, saved ones, numbers."""
        self.cotangents = sorted({i for kind, i in self.arguments if kind == 0})
        places = [form.places[source] for source in made.source.gradients]
        self.places = [place if form.names[place] in wanted else None for place in places]

    def run(self, derived: Backwards, lists: tuple[Sequence[Any], ...]) -> list[Any]:
        """A gradient for each tensor of the launch."""
        args = [lists[kind][number] for kind, number in self.arguments]
        found: list[Any] = [None] * self.num_places
        for place, result in zip(self.places, derived.back_through(self.made, args)):
            if place is not None:
                found[place] = result
        return found


_Call = tuple[LaunchForm, Launcher, tuple[Any, ...], list[torch.Size], bool]
"""A form, what launches with which values, sizes of what is written, whether that is copied."""


class _Launch(torch.autograd.Function):
    """A launch as a node of autograd: written tensors depend on those that are read."""

    @staticmethod
    def forward(ctx: Any, call: _Call, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Launch; what is written stays the same tensor."""
        form, launch, values, ctx.sizes, is_copied = call
        launch(*values)
        written = [tensors[place] for place in form.written]
        ctx.set_materialize_grads(False)
        if is_copied:
            written = [tensor.clone() for tensor in written]
        else:
            ctx.mark_dirty(*written)
        record = ctx.record = form.record(ctx.needs_input_grad[1:])
        known = {**dict(enumerate(tensors)), **dict(zip(form.written, written))}
        ctx.save_for_backward(*[known[place] for place in record.saved])
        ctx.numbers = form.read_numbers(*values)
        ctx.kinds = [(tensor.dtype, tensor.device) for tensor in written]
        return tuple(written)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        """Run the derived kernel for the gradients that are wanted."""
        record = cast("_Record", ctx.record)
        form = record.form
        step = record.step(ctx.needs_input_grad[1:], tuple(grad is not None for grad in grads))
        if step is None:
            return (None,) * (1 + len(form.names))
        sizes = cast("list[torch.Size]", ctx.sizes)
        cotangents = [None if g is None else g.reshape(size) for g, size in zip(grads, sizes)]
        for number in step.cotangents:
            if cotangents[number] is None:  # the kernel for all results runs
                dtype, device = ctx.kinds[number]
                cotangents[number] = torch.zeros(sizes[number], dtype=dtype, device=device)
        forms = dict(zip(form.written, sizes))
        saved = [
            tensor.reshape(forms[place]) if place in forms else tensor
            for place, tensor in zip(record.saved, ctx.saved_tensors)
        ]
        return None, *step.run(form.derived, (cotangents, saved, ctx.numbers))
