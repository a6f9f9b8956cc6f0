"""Calls of one kernel for a whole batch: one launch where that is possible."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any, Protocol

import torch

import tilesmith.exc as errors
from tilesmith.frontend.containers import map_tensors, tensors_in
from tilesmith.frontend.functions.random import SEED_OF_CALL
from tilesmith.frontend.read_values.global_reads import GlobalRead, globals_read
from tilesmith.gradients.derived import options_of
from tilesmith.gradients.launch_node import compile_source
from tilesmith.jit.batching.device_code import write_batched
from tilesmith.jit.batching.host_code import (
    ElementRun,
    Form,
    Made,
    NotBatchedError,
    looks_at_device,
    run_element,
)
from tilesmith.jit.definition import KernelDefinition
from tilesmith.jit.graphs.host import GraphHost
from tilesmith.jit.shards.plan import trace_shadows
from tilesmith.runtime.arguments import compile_guard, compile_reader

MOST_PLANS = 256
"""Forms of calls that are remembered; numbers among the arguments belong to a form."""


class _Kernel(Protocol):
    definition: KernelDefinition

    @property
    def staged(self) -> object | None: ...


@dataclass(frozen=True)
class _Code:
    """A batched kernel for arguments of some shapes."""

    kernel: Any
    fits: Callable[..., bool] | None
    """Whether what host code captured is what it was traced with."""
    read: Callable[..., tuple[Any, ...]]


@dataclass(frozen=True, eq=False)
class _Plan:
    """One form of calls."""

    kernel: Any
    arguments: tuple[Any, ...]
    """What it is given: forms of tensors, and numbers."""
    made: tuple[Made, ...]
    results: tuple[Form, ...]
    fits: Callable[[], bool]
    """Whether what host code captured is still what it was planned with."""
    checks: dict[bool, bool] = field(default_factory=dict[bool, bool])
    """Whether it can run, without and with a gradient, as far as that was tried."""

    def given(self, placed: Mapping[Form, torch.Tensor]) -> tuple[Any, ...]:
        """The arguments of the batched kernel."""
        return tuple(placed[x] if isinstance(x, Form) else x for x in self.arguments)

    def place(self, tensors: Sequence[torch.Tensor], batch: torch.Size) -> dict[Form, torch.Tensor]:
        """The tensors of a launch and its results; those that are made are made here."""
        forms = [x for x in (*self.arguments, *self.results) if isinstance(x, Form)]
        found: dict[Form, torch.Tensor] = {}
        bases: dict[int, torch.Tensor] = dict(enumerate(tensors))
        for form in forms:
            if form.memory not in bases:
                made = self.made[-1 - form.memory]
                bases[form.memory] = _allocated(made, form, batch, tensors[0].device)
            found.setdefault(form, _view(bases[form.memory], form, batch))
        return found


def _allocated(made: Made, form: Form, batch: torch.Size, device: torch.device) -> torch.Tensor:
    """Memory for a batch, in the form in which it is used first."""
    lead = [made.length * prod(batch[place + 1 :]) for place in range(len(batch))]
    shape, strides = (*batch, made.length), (*lead, 1)
    if not form.offset and prod(form.shape) == made.length:
        shape, strides = (*batch, *form.shape), (*lead, *form.strides)
    found = torch.empty_strided(shape, strides, dtype=made.dtype, device=device)
    return found if made.fill is None else found.fill_(made.fill)


def _view(base: torch.Tensor, form: Form, batch: torch.Size) -> torch.Tensor:
    shape, strides = (*batch, *form.shape), (*base.stride()[: len(batch)], *form.strides)
    if not form.offset and (base.shape, base.stride()) == (shape, strides):
        return base
    return base.as_strided(shape, strides, base.storage_offset() + form.offset)


class BatchedCalls:
    """Finds what runs calls of one kernel for a batch."""

    def __init__(self, kernel: _Kernel) -> None:
        self._kernel = kernel
        self._plans: dict[Hashable, _Plan | None] = {}
        self._codes: dict[Hashable, list[_Code]] = {}
        self._kernels: dict[str, Any] = {}
        """By their text: kernels with runtime sizes are the same for all."""
        self.obstacle = ""
        """Why the last form of calls could not be run at once."""

    def run(
        self, args: tuple[Any, ...], depth: int, *, is_recorded: bool = False
    ) -> list[torch.Tensor] | None:
        """The tensors that calls return, in order; None: each element needs a call of its own.

        ``is_recorded``: autograd is to go back through it.
        """
        tensors = list(tensors_in(args))
        batch = tensors[0].shape[:depth]
        plan = self._find(args, tensors, depth)
        if plan is None:
            return None
        placed = plan.place(tensors, batch)
        if prod(batch):
            if not self._can_run(plan, plan.given(placed), is_recorded=is_recorded):
                return None
            plan.kernel(*plan.given(placed))
        return [placed[form] for form in plan.results]

    def _find(
        self, args: tuple[Any, ...], tensors: Sequence[torch.Tensor], depth: int
    ) -> _Plan | None:
        forms = tuple((t.shape[depth:], t.stride()[depth:], t.dtype, t.device) for t in tensors)
        numbers = (*args, *(read.scope.get(read.name) for read in self._globals))
        key = depth, forms, tuple(leaf for arg in numbers for leaf in _numbers(arg))
        known = self._plans.get(key)
        if key not in self._plans or (known is not None and not known.fits()):
            if len(self._plans) >= MOST_PLANS:
                self._plans.clear()
            try:
                self._plans[key] = self._planned(args, depth, forms)
            except (NotBatchedError, errors.BaseError) as problem:
                self._plans[key] = None
                self.obstacle = str(problem)
        return self._plans[key]

    @cached_property
    def _globals(self) -> list[GlobalRead]:
        """Numbers that the function reads from modules: they may change between calls."""
        function = self._kernel.definition.fn
        reads = globals_read(function.__code__, function.__globals__)
        return [read for read in reads if isinstance(read.value, (bool, int, float))]

    def _check_sources(self, sources: Sequence[str]) -> None:
        """Whether all that a launch is given follows from what forms of calls are told by."""
        if SEED_OF_CALL in sources:
            raise NotBatchedError("it draws other numbers at every call")
        names = [f"[{read.name!r}]" for read in self._globals]
        for source in sources:
            if "__constants__" in source and not any(name in source for name in names):
                raise NotBatchedError("it reads what a closure or another module holds")

    def _can_run(self, plan: _Plan, given: tuple[Any, ...], *, is_recorded: bool) -> bool:
        """Whether the text of the batched kernel is one, and has a gradient if it needs one."""
        known = plan.checks.get(is_recorded)
        if known is None:
            try:
                found = (plan.kernel.backward_source if is_recorded else plan.kernel.bind)(given)
                known = found is not None
            except errors.BaseError as problem:
                known, self.obstacle = False, str(problem)
            plan.checks[is_recorded] = known
        return known

    def _planned(self, args: tuple[Any, ...], depth: int, forms: Hashable) -> _Plan:
        if self._kernel.staged is not None:
            raise NotBatchedError("it has several launches")
        if looks_at_device(self._kernel.definition.split.source):
            raise NotBatchedError("its host code looks at the device of a tensor")
        shadows = map_tensors(args, lambda tensor: _shadow(tensor, depth))
        run = run_element(self._kernel.definition, shadows, list(tensors_in(shadows)))
        code = self._code(shadows, run, (depth, forms))
        values = code.read(*run.captured)
        given = tuple(run.form_of(x) if isinstance(x, torch.Tensor) else x for x in values)
        fits = code.fits
        return _Plan(
            code.kernel,
            given,
            run.made,
            run.results,
            lambda: fits is None or fits(*run.captured),
        )

    def _code(self, shadows: tuple[Any, ...], run: ElementRun, key: Hashable) -> _Code:
        known = self._codes.setdefault(key, [])
        for code in known:
            if code.fits is None or code.fits(*run.captured):
                return code
        definition = self._kernel.definition
        trace = trace_shadows(definition, shadows).trace
        self._check_sources([parameter.source for parameter in trace.function.parameters])
        source = write_batched(trace.function, options_of(definition.settings), key[0])  # type: ignore[index]
        if source.text not in self._kernels:
            self._kernels[source.text] = compile_source(source.name, source.text)
        names = definition.split.captured
        read = compile_reader(names, source.arguments, trace.constants)
        # Flags and constants belong to the key of a plain call, and numbers to none.
        fits = compile_guard(names, (*trace.guards, *trace.covered), trace.constants)
        known.append(_Code(self._kernels[source.text], fits, read))
        return known[-1]


def _numbers(arg: Any) -> list[Any]:
    """All that is no tensor, by which two calls may differ."""
    if isinstance(arg, torch.Tensor):
        return [None]
    if isinstance(arg, dict):
        return [*map(str, arg), *(leaf for item in arg.values() for leaf in _numbers(item))]
    if isinstance(arg, (list, tuple)):
        return [len(arg), *(leaf for item in arg for leaf in _numbers(item))]
    return [(type(arg), arg, repr(arg) if isinstance(arg, float) else "")]  # -0.0 equals 0.0


def _shadow(tensor: torch.Tensor, depth: int) -> torch.Tensor:
    """One element without memory."""
    shape, strides = tensor.shape[depth:], tensor.stride()[depth:]
    return torch.empty_strided(shape, strides, dtype=tensor.dtype, device="meta")


class BatchingHost(GraphHost):
    """A kernel as operators see it, with its batching rule."""

    def __init__(self, kernel: Any) -> None:
        super().__init__(kernel)
        self.batched = BatchedCalls(kernel)
        """Calls under ``torch.vmap``."""
