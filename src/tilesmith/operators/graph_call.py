"""Calls of kernels inside graphs.

``tilesmith::call`` stands for a call of any kernel, with arguments of any structure. Dynamo traces
``GraphCalls.call`` and puts it into its graph; run, it becomes the kernel's own operator, which is
made when the first of its calls is seen. Its result is a list of tensors; what belongs to them is
learned at the same time and found under the same text.
"""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import Any
from weakref import WeakValueDictionary

import torch

from tilesmith.diagnostics import operator_errors as errors
from tilesmith.operators.inside import NAMESPACE, check_tangents, is_exporting
from tilesmith.operators.operator import NOT_IN_TRANSFORMS, KernelOperator, plan_operator
from tilesmith.operators.outline import KernelHost, Outline, outline_call, result_of
from tilesmith.operators.structure import NoOperatorError, Parts, Structure, take_call_apart

_LEAVES = "Tensor[] tensors, SymInt[] integers, float[] floats, str kernel, str structure"
_MAKING = threading.Lock()
"""Operators are registered once."""


class RecordedCall:
    """Calls of one structure in eager mode that autograd goes back through.

    Not by way of torch's dispatcher: that would cost several times as much.
    """

    def __init__(self, operator: KernelOperator, bound: Any) -> None:
        self.operator = operator
        self._bound = bound
        """Has ``call``, which runs such calls; None: the kernel looks for it each time."""

    def run(self, args: tuple[Any, ...]) -> Any:
        """The result for tensors that have memory."""
        bound = self._bound
        return self.operator.kernel.run(args) if bound is None else bound.call(*args)

    def __call__(self, *args: Any) -> Any:
        """The result of a call."""
        operator = self.operator
        leaves = operator.leaves(args)
        made = _RecordedCall.apply(*leaves, (self, args))
        if operator.outline.is_plain:
            return made
        return result_of(
            operator.outline.recipe, operator.structure.by_kind(leaves).tensors, _as_list(made)
        )


class _RecordedCall(torch.autograd.Function):
    """Takes the leaves of a call and, last, the call: numbers of inputs are those of leaves."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Any:
        """Run the kernel and keep what the gradient needs."""
        call, args = inputs[-1]
        result = call.run(args)
        ctx.gradient = gradient = call.operator.gradient
        gradient.save_call(ctx, args, result)
        return call.operator.returned(result)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """A gradient for each leaf."""
        return *ctx.gradient.backward(ctx, *gradients), None


class _TransformedCall(torch.autograd.Function):
    """The same for tensors of transforms: what they stand for goes to the operator."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*inputs: Any) -> Any:
        """Call the operator, one transform further inside."""
        *leaves, operator = inputs
        made = _call_transformed(operator, operator.structure.by_kind(leaves))
        return made[0] if len(made) == 1 else tuple(made)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Keep what the gradient needs."""
        *leaves, operator = inputs
        ctx.gradient = operator.gradient
        operator.gradient.save(ctx, tuple(leaves), output)

    backward = _RecordedCall.backward


def _call_transformed(operator: KernelOperator, parts: Parts) -> list[torch.Tensor]:
    """The tensors that a call makes under transforms of ``torch.func``."""
    try:
        return operator(parts)
    except RuntimeError as error:
        if NOT_IN_TRANSFORMS not in str(error):
            raise
    return _as_list(_TransformedCall.apply(*operator.structure.in_order(parts), operator))


def _as_list(made: Any) -> list[torch.Tensor]:
    return list(made) if isinstance(made, tuple) else [made]


class Plan:
    """What calls of one structure become: an operator, or a call outside of the graph."""

    def __init__(
        self,
        operator: KernelOperator | None,
        outside: Callable[..., Any] | None = None,
        obstacle: str = "",
    ) -> None:
        self.operator = operator
        self.outside = outside
        """Runs the kernel where the graph ends, because it cannot be an operator."""
        self.obstacle = obstacle
        """Why it cannot."""
        self.recipe = self.latest = None if operator is None else operator.outline.recipe
        """How the result is put together; ``latest`` is for the call that was seen last."""
        self.is_particular = operator is not None and operator.outline.is_particular


class Plans:
    """Plans as attributes, named by texts of structures: a graph then depends on those it uses."""


def plan_name(text: str) -> str:
    """The attribute of a plan: Dynamo reads dots in it as a path."""
    return text.replace(".", "/")


class GraphCalls:
    """Calls of one kernel that torch traces."""

    def __init__(
        self,
        kernel: KernelHost,
        handle: str,
        defaults: Mapping[str, Any],
        rest: int | None = None,
    ) -> None:
        self.kernel = kernel
        self.handle = handle
        """The kernel in graphs: its module and name, by which another process finds it."""
        self._handle_here = f"{handle}@{uuid.uuid4().hex}"
        """The same in graphs that stay here. torch keeps what it compiles for other processes, but
        these lack operators that tracing makes, of a registered backward for one: they must not
        find it."""
        self.plans = Plans()
        self._names = tuple(kernel.parameters)
        self._defaults = dict(defaults)
        self._rest = rest
        """Which parameter takes all further positional arguments, if one does."""
        self._lock = threading.Lock()

    def call_as_written(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The result of a call in a graph, with the arguments of the caller. Dynamo runs this."""
        given = [*args]
        if self._rest is not None and len(given) >= self._rest:
            given = [*given[: self._rest], tuple(given[self._rest :])]
        others = self._names[len(given) :]
        return self.call([*given, *(self._value(name, kwargs) for name in others)])

    def _value(self, name: str, kwargs: Mapping[str, Any]) -> Any:
        if self._rest is not None and name == self._names[self._rest]:
            return ()
        return kwargs[name] if name in kwargs else self._defaults[name]

    def call(self, values: Sequence[Any]) -> Any:
        """The same with a value for each parameter."""
        parts = Parts()
        text = take_call_apart(values, self._names, self._defaults, parts)
        handle = self.handle if is_exporting() else self._handle_here
        new = torch.ops.tilesmith.call(parts.tensors, parts.integers, parts.floats, handle, text)
        plan = getattr(self.plans, plan_name(text))
        if plan.outside is not None:
            return plan.outside(*values)
        recipe = _latest_recipe(self.handle, text) if plan.is_particular else plan.recipe
        return result_of(recipe, parts.tensors, new, parts.integers)

    def recorded(self, values: Sequence[Any], bound: Any) -> RecordedCall | None:
        """What runs such calls in eager mode, so that autograd goes back through them.

        None where only a graph can: a kernel that is no operator, one that writes, one that returns
        views or numbers.
        """
        parts = Parts()
        text = take_call_apart(values, self._names, self._defaults, parts)
        operator = self._planned(text, parts).operator
        if operator is None or operator.outline.is_special:
            return None
        return RecordedCall(operator, bound)

    def call_transformed(self, values: Sequence[Any]) -> Any:
        """The result of a call with tensors that stand for others, as transforms make them."""
        parts = Parts()
        text = take_call_apart(values, self._names, self._defaults, parts)
        plan = self._planned(text, parts)
        operator, recipe = plan.operator, plan.latest
        if operator is None or operator.gradient is None or operator.outline.num_views:
            return self.call(values)
        try:
            made = _call_transformed(operator, parts)
        except TypeError as error:
            # What torch raises where __torch_dispatch__ returns NotImplemented.
            if "Multiple dispatch failed" not in str(error):
                raise
            kind = next(type(t).__name__ for t in parts.tensors if type(t) is not torch.Tensor)
            raise errors.SubclassWithoutKernel(function=self.kernel.name, kind=kind) from error
        return result_of(recipe, parts.tensors, made, parts.integers)

    def forget(self) -> None:
        """Make operators anew: the kernel is another one now."""
        self.plans = Plans()

    def find_plan(self, text: str) -> Plan | None:
        """The plan for calls of a structure, if one was made."""
        return self.plans.__dict__.get(plan_name(text))

    def _planned(self, text: str, parts: Parts) -> Plan:
        """The plan for calls like this one: made below all modes, and by no subclass."""
        known = self.find_plan(text)
        if known is None or known.is_particular:
            if all(type(tensor).__module__.startswith("torch") for tensor in parts.tensors):
                leaves = parts.tensors, parts.integers, parts.floats
                torch.ops.tilesmith.plan(*leaves, self.handle, text)
            else:
                self.plan(text, Parts(_shadows(parts.tensors), parts.integers, parts.floats))
        plan = self.find_plan(text)
        assert plan is not None
        return plan

    def plan(self, text: str, parts: Parts) -> None:
        """Make the plan for calls like this one, or see what this one returns."""
        with self._lock:
            known = self.find_plan(text)
            if known is None:
                setattr(self.plans, plan_name(text), self._made(text, parts))
            elif known.operator is not None:
                self._look_again(known, known.operator.outline, text, parts)

    def _look_again(self, known: Plan, outline: Outline, text: str, parts: Parts) -> None:
        args = Structure(text, self._defaults).put_together(parts)
        try:
            found = outline_call(self.kernel, args, parts.tensors, parts.integers)
            if replace(found, recipe=outline.recipe) != outline:
                raise NoOperatorError("it returns or writes other tensors for other sizes")
            known.latest = found.recipe
        except NoOperatorError as obstacle:
            setattr(self.plans, plan_name(text), self._outside(obstacle))

    def _made(self, text: str, parts: Parts) -> Plan:
        structure = Structure(text, self._defaults)
        try:
            if structure.refused is not None:
                raise NoOperatorError(f"an argument is a {structure.refused}")
            names = process_calls().find_name
            return Plan(plan_operator(self.kernel, structure, parts, names))
        except NoOperatorError as obstacle:
            return self._outside(obstacle)

    def _outside(self, obstacle: NoOperatorError) -> Plan:
        reason = f"kernel `{self.kernel.name}` cannot be an operator: {obstacle}"
        outside = torch.compiler.disable(lambda *args: self.kernel.run(args), reason=reason)
        return Plan(None, outside, str(obstacle))

    def operator(self, args: tuple[Any, ...]) -> KernelOperator:
        """The operator for such arguments; an error that says why where there is none."""
        parts = Parts()
        text = take_call_apart(args, self._names, self._defaults, parts)
        plan = self._planned(text, parts)
        if plan.operator is None:
            raise errors.NoOperator(function=self.kernel.name, problem=plan.obstacle)
        return plan.operator


class ProcessCalls:
    """The two operators that stand for any kernel, and the kernels of this process."""

    def __init__(self) -> None:
        self._kernels: WeakValueDictionary[str, GraphCalls] = WeakValueDictionary()
        self._handles: dict[str, int] = {}
        self._names: dict[str, int] = {}
        self._lock = threading.Lock()
        self._library = torch.library.Library(NAMESPACE, "FRAGMENT")
        self._library.define(f"call({_LEAVES}) -> Tensor[]")
        self._library.impl("call", self._call, "CompositeImplicitAutograd")
        self._library.impl("call", self._call, "FuncTorchBatched")
        self._library.define(f"plan({_LEAVES}) -> Tensor[]")
        self._library.impl("plan", self._plan_on_meta, "CompositeExplicitAutograd")
        self._library.impl("plan", self._plan_on_meta, "FuncTorchBatched")
        torch.library.register_fake(f"{NAMESPACE}::plan", self._plan)

    def add(self, name: str, make: Callable[[str], GraphCalls]) -> GraphCalls:
        """A kernel under a handle of its own; the first of a name has the name itself."""
        with self._lock:
            count = self._handles[name] = self._handles.get(name, 0) + 1
            made = make(name if count == 1 else f"{name}#{count}")
            self._kernels[made.handle] = made
            return made

    def find_name(self, wanted: str) -> str:
        """A name for an operator that none has yet."""
        plain = re.sub(r"\W", "_", wanted)
        with self._lock:
            count = self._names[plain] = self._names.get(plain, 0) + 1
        return plain if count == 1 else f"{plain}_{count}"

    def find(self, handle: str) -> GraphCalls:
        """The kernel of a handle; a graph from another process names its module."""
        handle = handle.partition("@")[0]
        found = self._kernels.get(handle)
        if found is None:
            module, _, name = handle.partition(":")
            import_module(module)
            found = self._kernels.get(handle)
            if found is None:
                raise errors.KernelNotFound(handle=handle, module=module, name=name)
        return found

    def _call(self, *given: Any) -> list[torch.Tensor]:
        *leaves, kernel, structure = given
        calls = self.find(kernel)
        check_tangents(calls.kernel.name, leaves[0])
        plan = calls.find_plan(structure)
        if plan is None or plan.is_particular:
            torch.ops.tilesmith.plan(*given)
        plan = calls.find_plan(structure)
        assert plan is not None
        return [] if plan.operator is None else plan.operator.with_views(Parts(*leaves))

    def _plan(self, *given: Any) -> list[torch.Tensor]:
        *leaves, kernel, structure = given
        self.find(kernel).plan(structure, Parts(*leaves))
        return []

    def _plan_on_meta(self, tensors: list[torch.Tensor], *others: Any) -> list[torch.Tensor]:
        """Host code may compute: what has memory is left alone."""
        return self._plan(_shadows(tensors), *others)


def _shadows(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Tensors of the same form without memory."""
    return [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="meta") for t in tensors]


@torch.compiler.assume_constant_result
def _latest_recipe(handle: str, text: str) -> Any:
    """For the call that Dynamo has just put into its graph, whose guards hold its sizes."""
    plan = process_calls().find(handle).find_plan(text)
    return None if plan is None else plan.latest


@cache
def process_calls() -> ProcessCalls:
    """The calls of this process; made with the first kernel."""
    return ProcessCalls()


def add_calls(name: str, make: Callable[[str], GraphCalls]) -> GraphCalls:
    """``ProcessCalls.add``; the first kernels of a process may be made by several threads."""
    with _MAKING:
        return process_calls().add(name, make)
