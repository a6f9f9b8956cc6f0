"""Gradients of a bound kernel: host code by torch's autograd, device code by a derived kernel.

Host code runs under autograd with the launch as one node, so views, casts and sums before and after
it need no rules here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

import tilesmith.exc as errors
from tilesmith.compiler.specialization import Variant
from tilesmith.frontend.containers import map_tensors, tensors_in
from tilesmith.gradients.launch_node import Bound, CompiledBackward, Launcher, LaunchForm
from tilesmith.gradients.program import differentiate, float_tensors, written_tensors
from tilesmith.gradients.reshaped import find_reshaped
from tilesmith.gradients.resumed import resume
from tilesmith.gradients.source.kernel_text import Options, write_kernel
from tilesmith.runtime.arguments import compile_guard
from tilesmith.settings import Settings


def options_of(settings: Settings) -> Options:
    """Those of a kernel that kernels made from it share."""
    own, default = vars(settings), vars(Settings())
    names = ("dot_precision", "index_dtype", "fast_math", "backend", "check")
    others = [(name, repr(own[name])) for name in names if own[name] != default[name]]
    return Options(settings.static_shapes, tuple(others))


_Key = tuple[Variant, frozenset[str], frozenset[str], "frozenset[str] | None"]
"""A trace, what gradients are wanted of and given for, and which results were saved."""


class DerivedBackward:
    """The backward of one bound kernel; derived when it is first needed."""

    def __init__(self, bound: Bound, *, keeps_latest: bool = False) -> None:
        self.bound = bound
        self._forward = bound.with_launcher(self._wrap)
        self._here = threading.local()
        self._keeps_latest = keeps_latest
        self._made: dict[_Key, CompiledBackward] = {}
        self._planned: dict[_Key, CompiledBackward] = {}
        """For all results of a launch: what has to be saved, before it is known what will run."""
        self._single: dict[CompiledBackward, CompiledBackward] = {}
        self._second: dict[Any, DerivedBackward] = {}
        self.latest: tuple[Any, tuple[Any, ...]] | None = None
        """The backward kernel that ran last, and its arguments, where they are to be kept."""
        self._guards: dict[Variant, Callable[..., bool] | None] = {}
        self._forms: dict[Variant, LaunchForm] = {}

    def call(self, *args: Any) -> Any:
        """Run the forward kernel so that autograd can go back through it."""
        self._here.args = args
        try:
            return self._forward(*args)
        finally:
            self._here.args = ()  # or graphs of calls that are over would stay

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
        found = self.compiled(variant, wanted, given)
        if not found.source.gradients:
            reason = "no result depends on floats that have gradients"
            raise errors.AutodiffNotSupported(function=function.name, reason=reason)
        return found

    def compiled(
        self,
        variant: Variant,
        wanted: frozenset[str],
        given: frozenset[str],
        saved: frozenset[str] | None = None,
    ) -> CompiledBackward:
        """The backward kernel that computes some gradients from the cotangents that there are.

        ``saved``: the results of the forward kernel that it may load; without it, all of them.
        """
        key = (variant, wanted, given, saved)
        if key not in self._made:
            self._made[key] = self._planned.get(key) or self._derive(*key)
        return self._made[key]

    def planned(
        self, variant: Variant, wanted: frozenset[str], given: frozenset[str]
    ) -> CompiledBackward | None:
        """The same before it is known whether it will run; None where there is no derivative."""
        key = (variant, wanted, given, None)
        if key not in self._planned:
            try:
                self._planned[key] = self._derive(*key)
            except errors.AutodiffNotSupported:
                # Nobody has asked for gradients yet: going back says it.
                return None
        return self._planned[key]

    def _derive(
        self,
        variant: Variant,
        wanted: frozenset[str],
        given: frozenset[str],
        saved: frozenset[str] | None,
        *,
        in_one_launch: bool = False,
    ) -> CompiledBackward:
        function = variant.trace.function
        reshaped = find_reshaped(self.bound.definition.split.source)
        program = differentiate(
            function, wanted, given, saved, reshaped, in_one_launch=in_one_launch
        )
        return CompiledBackward(write_kernel(program, options_of(self.bound.definition.settings)))

    def _wrap(self, launch: Launcher) -> Launcher:
        def run(*values: Any) -> None:
            self._form(self.find_variant(values)).run(launch, values)

        return run

    def run(
        self,
        inputs: Sequence[Any],
        grad_outputs: Sequence[torch.Tensor | None],
        grad_written: Sequence[torch.Tensor | None] = (),
        results: Sequence[torch.Tensor | None] | None = None,
    ) -> tuple[torch.Tensor | None, ...]:
        """The gradient of each tensor among the inputs; None of one without floats.

        ``grad_outputs`` has the cotangent of each tensor that the kernel returns, or None;
        ``grad_written`` those of what it writes among the inputs. ``results``: those that a call
        returned, None of one that was not kept; without them the forward kernel runs once more.
        """
        # Inside an operator torch records nothing, not even views that host code makes.
        self._here.args = tuple(inputs)
        with torch.inference_mode(False), torch.enable_grad():
            return self._run(inputs, grad_outputs, grad_written, results)

    def _run(
        self,
        inputs: Sequence[Any],
        grad_outputs: Sequence[torch.Tensor | None],
        grad_written: Sequence[torch.Tensor | None],
        results: Sequence[torch.Tensor | None] | None,
    ) -> tuple[torch.Tensor | None, ...]:
        if results is not None:
            plain = [map_tensors(value, _leaf) for value in inputs]
            known = resume(self, plain, grad_outputs, results)
            self._here.args = ()
            if known is not None:
                return tuple(map(known.get, tensors_in(plain)))
        places = sorted(self.bound.written_arguments) if grad_written else []
        leaves = [
            map_tensors(value, (lambda t: t.detach().clone()) if place in places else _leaf)
            for place, value in enumerate(inputs)
        ]
        # What is written must not change here, and autograd lets no leaf change.
        copied = () if grad_written else self.bound.written_arguments
        args = [map_tensors(x, torch.clone) if i in copied else x for i, x in enumerate(leaves)]
        outputs = list(tensors_in(self.call(*args)))
        if len(grad_outputs) > len(outputs):
            reason = f"it gives {len(outputs)} tensors, and {len(grad_outputs)} gradients are given"
            name = self.bound.definition.name
            raise errors.AutodiffNotSupported(function=name, reason=reason)
        pairs = [
            (output, grad)
            for output, grad in zip(outputs, grad_outputs)
            if grad is not None and output.requires_grad
        ]
        changed = zip(tensors_in([leaves[place] for place in places]), grad_written)
        pairs += [(leaf, grad) for leaf, grad in changed if grad is not None and leaf.requires_grad]
        tensors = list(tensors_in(leaves))
        wanted = [leaf for leaf in tensors if leaf.requires_grad and leaf.is_leaf]
        found = torch.autograd.grad(
            [output for output, _ in pairs], wanted, [grad for _, grad in pairs], allow_unused=True
        )
        grads = dict(zip(map(id, wanted), found))
        return tuple(grads.get(id(leaf)) for leaf in tensors)

    def find_variant(self, values: tuple[Any, ...]) -> Variant:
        """The trace that what host code computed fits; a new one where there is none."""
        if (found := _fitting(self.bound, self._guards, values)) is None:
            with torch.no_grad():
                self.bound.capture_launch(self._here.args)
            found = _fitting(self.bound, self._guards, values)
        return found or self.bound.specialization.default

    def _form(self, variant: Variant) -> LaunchForm:
        """What launches of a trace have in common."""
        if variant not in self._forms:
            self._forms[variant] = LaunchForm(self, variant)
        return self._forms[variant]

    def _in_one_launch(
        self, made: CompiledBackward, args: Sequence[Any]
    ) -> tuple[CompiledBackward, list[Any]]:
        """The same backward in a form that has a derivative itself."""
        if made not in self._single:
            known = {**self._planned, **self._made}
            key = next(key for key, one in known.items() if one is made)
            self._single[made] = self._derive(*key, in_one_launch=True)
        single = self._single[made]
        there = {(a.role, a.source): arg for a, arg in zip(made.source.arguments, args)}
        return single, [there[a.role, a.source] for a in single.source.arguments]

    def back_through(self, made: CompiledBackward, args: Sequence[Any]) -> tuple[Any, ...]:
        """Run a backward kernel; so that autograd can go back once more where it wants to."""
        needs_graph = torch.is_grad_enabled() and any(
            isinstance(arg, torch.Tensor) and arg.requires_grad for arg in args
        )
        if needs_graph and made.source.is_staged:
            made, args = self._in_one_launch(made, args)
        if self._keeps_latest:
            self.latest = made.kernel, tuple(args)
        if not needs_graph:
            found = made.kernel(*args)
        else:
            bound = made.kernel.bind(tuple(args))
            second = self._second.setdefault(bound, DerivedBackward(bound))
            found = second.call(*args)
        return found if isinstance(found, tuple) else (found,)


def _fitting(bound: Bound, guards: dict[Variant, Any], values: tuple[Any, ...]) -> Variant | None:
    for variant in bound.specialization.variants:
        if variant not in guards:
            trace, names = variant.trace, bound.definition.split.captured
            guards[variant] = compile_guard(names, trace.guards, trace.constants)
        if (guard := guards[variant]) is None or guard(*values):
            return variant
    return None


def _leaf(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().requires_grad_(tensor.is_floating_point())
