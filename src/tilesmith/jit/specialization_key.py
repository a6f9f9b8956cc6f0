"""What of the arguments is baked into a compiled kernel, and so is part of its key."""

from __future__ import annotations

import enum
import functools
from collections.abc import Hashable, Iterator
from types import BuiltinFunctionType, FunctionType
from typing import Any, cast

import torch

import tilesmith.exc as errors
from tilesmith.diagnostics.wording import conversion_of, kind_of
from tilesmith.frontend.containers import cell_contents, items_of, plain_number
from tilesmith.frontend.language.host_functions import constexpr
from tilesmith.frontend.source.names import is_library
from tilesmith.frontend.tracing.host_run import marked_sizes
from tilesmith.ir.types import INT32_LIMIT, dynamic_form
from tilesmith.runtime.arguments import AS_OPERATOR, NO_MEMORY, has_storage

_STATEFUL_NODES = ("call_module", "get_attr")
INT32_RANGE = (-INT32_LIMIT, INT32_LIMIT - (1 << 20))
"""Arguments outside need 64-bit parameters; there is room for an index to run past its end."""


def static_tensor_key(tensor: torch.Tensor) -> Hashable:
    """Sizes and strides are constants."""
    return (tensor.dtype, tensor.device, tensor.shape, tensor.stride())


def dynamic_tensor_key(tensor: torch.Tensor) -> Hashable:
    """Sizes are runtime values, except 0, 1 and marked ones; index width is part of the kernel."""
    form = dynamic_form(tensor.shape, tensor.stride())
    return (tensor.dtype, tensor.device, form, marked_sizes(tensor))


class KeyMaker:
    """Computes the key of one kernel's arguments."""

    def __init__(self, *, static_shapes: bool, are_numbers_constant: bool = False) -> None:
        self._tensor_key = static_tensor_key if static_shapes else dynamic_tensor_key
        self._are_numbers_constant = are_numbers_constant
        self.constants = (
            self
            if are_numbers_constant
            else KeyMaker(static_shapes=static_shapes, are_numbers_constant=True)
        )
        """Keys of values that are compile-time constants: numbers count by value."""

    def key(self, argument: Any, name: str) -> Hashable:
        """The contribution of one argument."""
        if isinstance(argument, torch.Tensor):
            return self._tensor_key(argument)
        kind = type(argument)
        if kind in (int, float):
            if self._are_numbers_constant:
                # By text: it tells 0.0 from -0.0, and one nan is another.
                return (kind, argument if kind is int else repr(argument))
            # A 64-bit value needs another parameter type; otherwise only the kind matters.
            low, high = INT32_RANGE
            return (kind, kind is int and not low <= argument <= high)
        if argument is None or kind in (bool, str, torch.dtype, torch.device):
            return (kind, argument)
        return self._structured_key(argument, name)

    def _structured_key(self, argument: Any, name: str) -> Hashable:
        if isinstance(argument, constexpr):
            return ("constexpr", self.constants.key(argument.value, name))
        if isinstance(argument, FunctionType):
            return self._function_key(argument, name)
        if isinstance(argument, functools.partial):
            return self._partial_key(cast("functools.partial[Any]", argument), name)
        if isinstance(argument, torch.fx.GraphModule):
            return _graph_key(argument)
        home = str(getattr(argument, "__module__", "")) if callable(argument) else ""
        if isinstance(argument, BuiltinFunctionType) or home.startswith("torch"):
            return ("builtin", argument)
        items = items_of(argument)
        if items is not None:
            listed = (self.key(item.value, f"{name}{item.suffix}") for item in items)
            names = tuple(argument) if isinstance(argument, dict) else ()
            return (type(argument), names, *listed)
        return self._leaf_key(argument, name)

    def _leaf_key(self, argument: Any, name: str) -> Hashable:
        """Members and numbers of other kinds by value; as a constant, what can be compared."""
        if plain_number(argument) is not argument:
            return ("numpy", type(argument))  # no kernel has this key: it becomes a plain number
        is_value = isinstance(argument, (int, float, enum.Enum))
        if not is_value and not self._are_numbers_constant:
            fix = conversion_of(argument, name)
            raise errors.UnsupportedArgumentType(argument=name, kind=kind_of(argument), **fix)
        try:
            hash(argument)
        except TypeError:
            raise errors.UnsupportedArgumentType(argument=name, kind=kind_of(argument)) from None
        return (type(argument), argument)

    def _partial_key(self, given: functools.partial[Any], name: str) -> Hashable:
        """The function, and what is bound to it, as if that stood in its closure."""
        place = f"{name} (captured)"
        keywords = tuple((key, self.constants.key(v, place)) for key, v in given.keywords.items())
        args = tuple(self.constants.key(value, place) for value in given.args)
        return ("partial", self.key(given.func, name), args, keywords)

    def _function_key(
        self, function: FunctionType, name: str, callers: tuple[FunctionType, ...] = ()
    ) -> Hashable:
        """Code, and what its closure and defaults hold: numbers in them are constants."""
        if is_library(function) or function in callers:
            return ("function", function)
        held: list[Hashable] = []
        for content in held_values(function):
            if isinstance(content, FunctionType):
                held.append(self._function_key(content, name, (*callers, function)))
            else:
                held.append(self.constants.key(content, f"{name} (captured)"))
        # Equal code may stand in two modules, where its globals differ.
        return (function.__code__, id(function.__globals__), *held)


def _graph_key(graph: torch.fx.GraphModule) -> Hashable:
    """The calls of a graph; modules and attributes would be state that no key covers."""
    state = [f"{n.op} {n.target}" for n in graph.graph.nodes if n.op in _STATEFUL_NODES]
    if state:
        raise errors.GraphModuleUnsupportedOps(ops=state)
    return ("graph", graph.code, tuple(node.target for node in graph.graph.nodes))


def held_values(function: FunctionType) -> Iterator[Any]:
    """What the closure cells and the defaults of a function hold."""
    for cell in function.__closure__ or ():
        yield cell_contents(cell)
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()


def leaves(argument: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Everything in an argument that is no container, with its name; functions: what they hold."""
    if isinstance(argument, functools.partial):
        given = cast("functools.partial[Any]", argument)
        for content in (given.func, *given.args, *given.keywords.values()):
            yield from leaves(content, f"{name} (captured)")
        return
    if isinstance(argument, FunctionType) and not is_library(argument):
        for content in held_values(argument):
            if not isinstance(content, FunctionType):
                yield from leaves(content, f"{name} (captured)")
        return
    items = items_of(argument)
    if items is None:
        yield name, argument
        return
    for item in items:
        yield from leaves(item.value, f"{name}{item.suffix}")


def _tensors(
    arguments: tuple[Any, ...], names: tuple[str, ...]
) -> Iterator[tuple[str, torch.Tensor]]:
    for name, argument in zip(names, arguments):
        for place, leaf in leaves(argument, name):
            if isinstance(leaf, torch.Tensor):
                yield place, leaf


def tensors_of(arguments: tuple[Any, ...]) -> list[torch.Tensor]:
    """All tensors in containers, and those that functions hold."""
    return [tensor for _, tensor in _tensors(arguments, ("",) * len(arguments))]


def has_marked_sizes(arguments: tuple[Any, ...]) -> bool:
    """Whether ``torch._dynamo.mark_static`` was called for a tensor among the arguments."""
    return any(map(marked_sizes, tensors_of(arguments)))


def find_device(arguments: tuple[Any, ...]) -> torch.device | None:
    """The first device among the arguments, containers included."""
    for _, leaf in leaves(arguments, ""):
        if isinstance(leaf, torch.Tensor):
            return leaf.device
        if isinstance(leaf, torch.device):
            return leaf
        if isinstance(leaf, torch.nn.Module):
            held = next(iter((*leaf.parameters(), *leaf.buffers())), None)
            if held is not None:
                return held.device
    return None


def check_devices(arguments: tuple[Any, ...], names: tuple[str, ...], device: torch.device) -> None:
    """All tensors must be where the kernel runs."""
    for place, tensor in _tensors(arguments, names):
        if tensor.device != device:
            raise errors.TensorsOnDifferentDevices(
                tensor=place, device=str(tensor.device), kernel_device=str(device)
            )


def check_layouts(arguments: tuple[Any, ...], names: tuple[str, ...]) -> None:
    """All tensors must be dense, and not stand for others."""
    for place, tensor in _tensors(arguments, names):
        _check_layout(tensor, place)


def _check_layout(tensor: torch.Tensor, place: str) -> None:
    expected = "a dense tensor"
    if tensor.is_nested:
        kind = "a nested tensor"
        fix = (
            f"pass its parts: {place}.values() and {place}.offsets() of the jagged layout, or\n"
            f"`{place}.to_padded_tensor(0.0)`"
        )
    elif tensor.layout is not torch.strided:
        kind = f"a tensor of layout {tensor.layout}"
        fix = f"pass `{place}.to_dense()`, or its parts as separate arguments"
    elif tensor.is_neg():
        kind = "a view with its sign flipped lazily"
        expected = "a tensor whose memory holds its values"
        fix = f"pass `{place}.resolve_neg()`"
    elif any(isinstance(n, torch.SymInt) for n in (*tensor.shape, *tensor.stride())):
        kind, expected = "a tensor whose sizes are symbols", "sizes that are numbers"
        fix = "bind to a tensor of one such size; static_shapes=False leaves sizes variable"
    elif has_storage(tensor):
        return
    elif type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        kind = f"a {type(tensor).__name__}, which has no memory itself"
        fix = f"pass the tensors that `{place}` is made of"
    else:
        kind, fix = NO_MEMORY, AS_OPERATOR
    raise errors.UnsupportedArgumentType(argument=place, kind=kind, expected=expected, fix=fix)


def alias_pattern(arguments: tuple[Any, ...]) -> tuple[int, ...]:
    """Which tensors share storage: for each, the position of the first with the same memory."""
    addresses = [tensor.untyped_storage().data_ptr() for tensor in tensors_of(arguments)]
    return tuple(map(addresses.index, addresses))
