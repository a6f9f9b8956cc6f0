"""What a call of a kernel makes and changes: learned from host code, run without launches."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

import tilesmith.exc as errors
from tilesmith.operators.gradient import Gradient
from tilesmith.operators.structure import NoOperatorError

NEW, GIVEN, VIEW, SIZE, CONSTANT = "new", "given", "view", "size", "constant"
NUMBER = "number"
"""A leaf of a result: a tensor that the call made, an argument, a view of one, a size of one that
the graph does not know, a value that sizes and numbers of the call decide, an integer among the
arguments. Views are counted from -1 downwards: they stand behind what is new."""


class KernelHost(Protocol):
    """What is asked of a kernel."""

    name: str
    parameters: Sequence[str]

    @property
    def gradient(self) -> Gradient | None:
        """What was registered for its gradient."""
        ...

    def run_host(self, args: tuple[Any, ...]) -> tuple[Any, list[torch.Tensor]]:
        """The result of host code without its launches, and the tensors these would write."""
        ...

    @property
    def is_derived(self) -> bool:
        """Whether its gradient is derived where none was registered."""
        ...

    def run_backward(
        self, args: tuple[Any, ...], *gradients: Sequence[torch.Tensor | None]
    ) -> Sequence[torch.Tensor | None]:
        """The derived gradient of each tensor argument, for those of the returned tensors.

        May be followed by gradients of what the arguments that it writes hold afterwards.
        """
        ...

    def run(self, args: tuple[Any, ...]) -> Any:
        """The result of a call: arguments are tensors with memory, gradients are not looked at."""
        ...


@dataclass(frozen=True)
class Outline:
    """Results and effects of calls with arguments of one structure."""

    recipe: Any
    """The result: nested tuples of a kind and what belongs to it."""
    num_new: int
    """How many tensors a call makes."""
    written: frozenset[int]
    """Which tensors among the arguments it writes."""
    num_views: int = 0
    """How many views of arguments it returns: host code gives them, outside of the operator."""
    is_particular: bool = False
    """Whether sizes and numbers of the call may decide what it returns beside tensors."""

    @property
    def is_special(self) -> bool:
        """Whether a call does more than make tensors, always the same ones."""
        return bool(self.written or self.num_views or self.is_particular)

    @cached_property
    def is_plain(self) -> bool:
        """Whether the result is what an operator returns: one new tensor, or a tuple of several."""
        new = tuple((NEW, number) for number in range(self.num_new))
        return self.recipe == (new[0] if len(new) == 1 else ("tuple", new or None))


def outline_call(
    host: KernelHost,
    args: tuple[Any, ...],
    tensors: Sequence[torch.Tensor],
    integers: Sequence[Any] = (),
) -> Outline:
    """Run host code on tensors that need no memory and look at what it returns."""
    versions = [_version(tensor) for tensor in tensors]
    result, launched = _run(host, args)
    written = frozenset(
        i
        for i, tensor in enumerate(tensors)
        if _version(tensor) != versions[i] or _is_written(tensor, launched, tensors)
    )
    _check_apart([tensors[i] for i in written])
    leaves = _Leaves(tensors, integers)
    recipe = leaves.recipe(result)
    _check_aliases(leaves.new)
    if leaves.views and any(_version(t) != version for t, version in zip(tensors, versions)):
        raise NoOperatorError("it returns a view of an argument, and its host code changes one")
    return Outline(recipe, len(leaves.new), written, len(leaves.views), leaves.has_numbers)


def _is_written(
    tensor: torch.Tensor, launched: Sequence[torch.Tensor], given: Sequence[torch.Tensor]
) -> bool:
    """Whether launches write an argument: itself, or its memory through a view of host code."""
    if any(tensor is other for other in launched):
        return True
    views = [other for other in launched if not any(other is argument for argument in given)]
    return any(tensor.untyped_storage() is view.untyped_storage() for view in views)


def _check_apart(written: Sequence[torch.Tensor]) -> None:
    # A graph gives each argument that is written memory of its own, and keeps only one of them.
    for a, b in itertools.combinations(written, 2):
        if a is not b and a.untyped_storage() is b.untyped_storage():
            raise NoOperatorError("it writes two arguments that share memory")


def _run(host: KernelHost, args: tuple[Any, ...]) -> tuple[Any, list[torch.Tensor]]:
    try:
        return host.run_host(args)
    except errors.BaseError:
        raise
    except (RuntimeError, NotImplementedError) as error:
        # Such as `.item()`: what host code does depends on values, which a graph does not have.
        first = str(error).strip().partition("\n")[0]
        raise NoOperatorError(f"its host code needs values of tensors ({first})") from error


def _version(tensor: torch.Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version


class _Leaves:
    """The tensors of a result, told apart by where they come from."""

    def __init__(self, given: Sequence[torch.Tensor], integers: Sequence[Any] = ()) -> None:
        self._given, self._integers = given, integers
        self.new: list[torch.Tensor] = []
        self.views: list[torch.Tensor] = []
        self.has_numbers = False

    def recipe(self, value: Any) -> Any:
        """How to make such a result again."""
        if isinstance(value, torch.Tensor):
            return self._of_tensor(value)
        if isinstance(value, torch.SymInt):
            self.has_numbers = True
            return self._of_size(value)
        if value is None or isinstance(value, (bool, str, int, float, torch.dtype, torch.device)):
            self.has_numbers = True
            return (CONSTANT, value)
        if type(value) is dict:
            return ("dict", tuple(value), tuple(map(self.recipe, value.values())))
        if type(value) in (list, tuple):
            return (type(value).__name__, tuple(map(self.recipe, value)))
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return ("named", type(value), tuple(map(self.recipe, value)))
        raise NoOperatorError(f"it returns a {type(value).__name__}")

    def _of_size(self, value: torch.SymInt) -> tuple[Any, ...]:
        for i, integer in enumerate(self._integers):
            if statically_known_true(value == integer):
                return (NUMBER, i)
        for i, tensor in enumerate(self._given):
            for axis, size in enumerate(tensor.shape):
                if statically_known_true(value == size):
                    return (SIZE, i, axis)
        raise NoOperatorError("it returns a number computed from sizes, which the graph lacks")

    def _of_tensor(self, tensor: torch.Tensor) -> tuple[str, int]:
        for kind, known in ((GIVEN, self._given), (NEW, self.new)):
            for i, other in enumerate(known):
                if other is tensor:
                    return (kind, i)
        storage = tensor.untyped_storage()
        if any(storage is other.untyped_storage() for other in self._given):
            self.views.append(tensor)
            return (VIEW, -len(self.views))
        self.new.append(tensor)
        return (NEW, len(self.new) - 1)


def _check_aliases(new: Sequence[torch.Tensor]) -> None:
    storages = [tensor.untyped_storage() for tensor in new]
    for i, storage in enumerate(storages):
        if any(storage is other for other in storages[:i]):
            raise NoOperatorError(
                "it returns two views of one tensor; return the tensor itself and take views of it "
                "outside"
            )


def made_tensors(result: Any, outline: Outline) -> list[torch.Tensor]:
    """The tensors that a call made, of its result."""
    found = _collect(result, outline.recipe, {})
    return [found[i] for i in range(outline.num_new)]


def views_in(result: Any, outline: Outline) -> list[torch.Tensor]:
    """The views of arguments in a result, in the order in which they stand behind what is new."""
    found = _collect(result, outline.recipe, {})
    return [found[-i] for i in range(outline.num_views, 0, -1)]


def _collect(value: Any, recipe: Any, found: dict[int, torch.Tensor]) -> dict[int, torch.Tensor]:
    kind = recipe[0]
    if kind in (NEW, VIEW):
        found[recipe[1]] = value
    elif kind not in (GIVEN, SIZE, CONSTANT, NUMBER):
        values = value.values() if kind == "dict" else value
        for item, part in zip(values, recipe[-1]):
            _collect(item, part, found)
    return found


def returned_tensors(recipe: Any) -> list[int | None]:
    """For each tensor of a result its number among the new ones; None for what was given."""
    kind = recipe[0]
    if kind in (SIZE, CONSTANT, NUMBER):
        return []
    if kind in (NEW, GIVEN, VIEW):
        return [recipe[1] if kind == NEW else None]
    return [number for item in recipe[-1] for number in returned_tensors(item)]


def result_of(
    recipe: Any, given: Sequence[Any], new: Sequence[Any], integers: Sequence[Any] = ()
) -> Any:
    """A result like the one that was outlined. Dynamo runs this."""
    kind = recipe[0]
    if kind in (NEW, VIEW):
        return new[recipe[1]]
    if kind == GIVEN:
        return given[recipe[1]]
    if kind == SIZE:
        return given[recipe[1]].size(recipe[2])
    if kind == CONSTANT:
        return recipe[1]
    if kind == NUMBER:
        return integers[recipe[1]]
    items = [result_of(item, given, new, integers) for item in recipe[-1]]
    if kind == "dict":
        return dict(zip(recipe[1], items))
    if kind == "named":
        return recipe[1](*items)
    return items if kind == "list" else tuple(items)
