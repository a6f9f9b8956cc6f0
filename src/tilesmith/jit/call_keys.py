"""The key of a call: what must be equal for a compiled kernel to be used again.

Made by one generated expression per combination of argument types: every call pays for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from types import FunctionType
from typing import Any

import torch

from tilesmith.frontend.language.host_functions import constexpr
from tilesmith.frontend.tracing.host_run import marked_sizes
from tilesmith.ir.types import dynamic_form, find_overlap
from tilesmith.jit.definition import KernelDefinition
from tilesmith.jit.specialization_key import (
    INT32_RANGE,
    KeyMaker,
    alias_pattern,
    check_layouts,
    has_marked_sizes,
)

Types = tuple[type, ...]
Match = Callable[..., bool]
COMPARED = (bool, str, torch.dtype, torch.device, type(None))
"""Types whose values are part of the key."""
PLAIN = (*COMPARED, int, float)
"""Types that hold nothing else; of integers the key has the width, of floats nothing."""
_HELD = ("__closure__", "__defaults__", "__kwdefaults__")
"""Where functions hold values of their own."""
MAX_WRITTEN = 3
"""With more tensors that are written it is quicker to compare storages than bytes."""


class CallKeys:
    """Computes the keys of one kernel's calls."""

    def __init__(
        self, definition: KernelDefinition, user_key: Callable[..., Hashable] | None
    ) -> None:
        self._definition = definition
        self._user_key = user_key
        self._keys = KeyMaker(static_shapes=definition.settings.static_shapes)
        self.reset()

    def key(self, args: tuple[Any, ...]) -> Hashable:
        """What makes two calls share a compiled kernel."""
        types = tuple(map(type, args))
        # Taken before a function is made: one made by older rules must not end up in a newer table.
        functions = self._functions
        function = functions.get(types)
        if function is None:
            function = functions[types] = self._compile(types)
        try:
            key = function(*args)
            hash(key)  # of symbols it fails
        except (RuntimeError, TypeError):
            self.check(*args)
            raise
        return key

    def check(self, *args: Any) -> None:
        """Raise for tensors without strides, or with symbols for sizes: they have no key."""
        check_layouts(args, self._definition.parameters)

    @property
    def is_alias_sensitive(self) -> bool:
        """Whether it matters which arguments share storage: the kernel writes some."""
        return self._is_alias_sensitive

    @property
    def are_forms(self) -> bool:
        """Whether sizes, strides and types decide, and nothing that is computed from arguments."""
        is_computed = self._extractors or self._user_key or self._definition.constexprs
        return not (is_computed or self._reads_marks)

    @property
    def are_sizes_fixed(self) -> bool:
        """Whether every size and stride counts, not only which of them are 0 or 1."""
        return self._definition.settings.static_shapes

    def extend(self, extractors: Sequence[Callable[..., int]], *, writes_arguments: bool) -> bool:
        """Learn what else decides; True when keys made so far lack something."""
        is_sensitive = self._is_alias_sensitive or writes_arguments
        is_new = len(extractors) > len(self._extractors)
        if not is_new and is_sensitive == self._is_alias_sensitive:
            return False
        if is_new:
            self._extractors = extractors
        self._is_alias_sensitive = is_sensitive
        self._functions = {}
        return True

    def notice_marks(self, args: tuple[Any, ...]) -> bool:
        """Look for sizes marked as static; True for the first ones, which keys so far lack."""
        if self._reads_marks or self.are_sizes_fixed or not has_marked_sizes(args):
            return False
        self._reads_marks, self._functions = True, {}
        return True

    def reset(self) -> None:
        """Forget what was learned."""
        self._extractors: Sequence[Callable[..., int]] = ()
        self._is_alias_sensitive = self._reads_marks = False
        # Marked as static are sizes: once such tensors were seen, all are asked.
        self._functions: dict[Types, Callable[..., Hashable]] = {}

    def _compile(self, types: Types) -> Callable[..., Hashable]:
        names, key = self.expression(types)
        return eval(f"lambda {', '.join(names)}: {key}", self.scope(types))

    def scope(self, types: Types) -> dict[str, Any]:
        """What the names in ``expression`` stand for."""
        return {
            "types": types,
            "form": dynamic_form,
            "find_overlap": find_overlap,
            "key": self._keys.key,
            "constant_key": self._keys.constants.key,
            "alias_pattern": alias_pattern,
            "marked_sizes": marked_sizes,
            "user_key": self._user_key,
            "extractors": tuple(self._extractors),
        }

    def expression(self, types: Types) -> tuple[list[str], str]:
        """Names of arguments, and their key as an expression over them."""
        names = [f"a{position}" for position in range(len(types))]
        listed = ", ".join(names)
        parts = ["types"]
        for position, (name, kind) in enumerate(zip(names, types)):
            if self._definition.is_host_object(position, kind):
                continue  # all that counts is its type, and guards
            is_constant = position in self._definition.constexprs
            parts += self._parts(name, kind, self._definition.parameters[position], is_constant)
        parts += [f"extractors[{i}]({listed})" for i in range(len(self._extractors))]
        if self._is_alias_sensitive:
            parts += self._overlap_parts(names, types)
            parts.append(_alias_expression(names, types))
        if self._user_key is not None:
            parts.append(f"user_key({listed})")
        return names, f"({', '.join(parts)},)"

    def _overlap_parts(self, names: Sequence[str], types: Types) -> list[str]:
        """Whether two elements of a tensor are one; fixed strides tell it already."""
        if self.are_sizes_fixed:
            return []
        tensors = [name for name, kind in zip(names, types) if issubclass(kind, torch.Tensor)]
        return [f"find_overlap({name}.shape, {name}.stride())" for name in tensors]

    def _parts(self, name: str, kind: type, spelling: str, is_constant: bool) -> list[str]:
        if issubclass(kind, torch.Tensor):
            form = f"{name}.shape, {name}.stride()"
            marks = [f"marked_sizes({name})"] if self._reads_marks else []
            form = form if self.are_sizes_fixed else f"form({form})"
            return [f"{name}.dtype, {name}.device, {form}", *marks]
        if kind in COMPARED:
            return [name]
        if is_constant:
            value = f"{name}.value" if issubclass(kind, constexpr) else name
            return [f"constant_key({value}, {spelling!r})"]
        if kind is int:
            return [is_short(name)]
        return [] if kind is float else [f"key({name}, {spelling!r})"]


def _alias_expression(names: Sequence[str], types: Types) -> str:
    """Which tensors share storage; True where none do, which is quickly seen."""
    pattern = f"alias_pattern(({', '.join(names)},))"
    tensors = [name for name, kind in zip(names, types) if issubclass(kind, torch.Tensor)]
    if len(tensors) + sum(kind in PLAIN for kind in types) < len(types):
        return pattern
    return f"{storages_differ(tensors)} or {pattern}" if tensors[1:] else "True"


def first_tensor(types: Sequence[type]) -> int | None:
    """The position of the first tensor, where arguments of these types may match others."""
    simple = (*PLAIN, FunctionType)
    if not all(issubclass(kind, torch.Tensor) or kind in simple for kind in types):
        return None
    return next((i for i, kind in enumerate(types) if issubclass(kind, torch.Tensor)), None)


def is_readable(argument: Any) -> bool:
    """Whether native code can tell an argument of this form from others."""
    kind = type(argument)
    if kind is dict:
        return all(type(key) is str and is_readable(held) for key, held in argument.items())
    if kind in (list, tuple):
        return all(map(is_readable, argument))
    if kind is FunctionType:
        return not any(getattr(argument, held) for held in _HELD)
    return kind in PLAIN or kind in (torch.Tensor, torch.nn.Parameter)


def is_short(name: str) -> str:
    """An expression that tells whether an integer has 32 bits in device code."""
    low, high = INT32_RANGE
    return f"{low} <= {name} <= {high}"


def compile_match(names: Sequence[str], args: Sequence[Any], written: Collection[int]) -> Match:
    """A function of arguments of the same types.

    Those at the ``written`` positions must not overlap with others.
    """
    scope: dict[str, Any] = {}
    tests: list[str] = []
    for name, argument in zip(names, args):
        if isinstance(argument, torch.Tensor):
            tests += _tensor_tests(name, argument, scope)
        elif isinstance(argument, FunctionType):
            tests += _function_tests(name, argument, scope)
        elif type(argument) is int:
            tests.append(f"({is_short(name)}) is {eval(is_short('n'), {'n': argument})}")
        elif type(argument) is not float:
            scope[f"{name}_value"] = argument
            tests.append(f"{name} == {name}_value")
    tensors = {n: tensor for n, tensor in zip(names, args) if isinstance(tensor, torch.Tensor)}
    lines = [
        f"def match({', '.join(names)}):",
        f"    if not ({' and '.join(tests)}): return False",
        *(f"    {line}" for line in _are_apart(tensors, [names[i] for i in sorted(written)])),
    ]
    exec("\n".join(lines), scope)
    return scope["match"]


def _tensor_tests(name: str, tensor: torch.Tensor, scope: dict[str, Any]) -> list[str]:
    """Tests that sizes, strides, dtype and device are the same; what differs most comes first."""
    scope[f"{name}_shape"], scope[f"{name}_dtype"] = tuple(tensor.shape), tensor.dtype
    tests = [f"{name}.shape == {name}_shape"]
    if tensor.is_contiguous() and min(tensor.shape, default=0) > 1:
        # Only one choice of strides is contiguous, unless a size is 0 or 1.
        tests.append(f"{name}.is_contiguous()")
    else:
        scope[f"{name}_strides"] = tensor.stride()
        tests.append(f"{name}.stride() == {name}_strides")
    tests.append(f"{name}.dtype is {name}_dtype")
    if tensor.is_cpu:
        return [*tests, f"{name}.is_cpu"]
    if tensor.is_cuda:
        # No process has accelerators of two kinds, and what is on none of them has number -1.
        return [*tests, f"{name}.get_device() == {tensor.get_device()}"]
    scope[f"{name}_device"] = tensor.device
    return [*tests, f"{name}.device == {name}_device"]


def _function_tests(name: str, function: FunctionType, scope: dict[str, Any]) -> list[str]:
    """Tests for the same code over the same globals that holds no values of its own."""
    scope[f"{name}_code"], scope[f"{name}_globals"] = function.__code__, function.__globals__
    return [
        f"{name}.__code__ is {name}_code",
        f"{name}.__globals__ is {name}_globals",
        *(f"not {name}.{held}" for held in _HELD),
    ]


def _are_apart(tensors: Mapping[str, torch.Tensor], written: Sequence[str]) -> Iterator[str]:
    """Statements that return whether the written tensors overlap with no other.

    Sizes and strides are known by then, so the address of a tensor tells which bytes it has.
    """
    if len(tensors) < 2 or not written:
        yield "return True"
        return
    if len(written) > MAX_WRITTEN:
        yield f"return {storages_differ(list(tensors))}"
        return
    num_bytes = {name: _num_bytes(tensor) for name, tensor in tensors.items()}
    for name in tensors:
        yield f"{name} = {name}.data_ptr()"
    for name in written:
        yield f"{name}_end = {name} + {num_bytes[name]}"
        others = {num_bytes[other] for other in tensors if other != name}
        yield from (f"{name}_after_{count} = {name} - {count}" for count in sorted(others))
    overlaps = [
        f"{name}_after_{num_bytes[other]} < {other} < {name}_end"
        for name in written
        for other in tensors
        if other != name
    ]
    yield f"return not ({' or '.join(overlaps)})"


def _num_bytes(tensor: torch.Tensor) -> int:
    """From the first to the last element."""
    if not tensor.numel():
        return 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return (last + 1) * tensor.element_size()


def storages_differ(names: Sequence[str]) -> str:
    """An expression that tells whether no two of these tensors share storage."""
    addresses = [f"{name}.untyped_storage().data_ptr()" for name in names]
    if len(names) == 2:
        return f"{addresses[0]} != {addresses[1]}"
    return f"len({{{', '.join(addresses)}}}) == {len(names)}" if names else "True"
