"""The key of a call: what must be equal for a compiled kernel to be used again.

Made by one generated expression per combination of argument types: every call pays for it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch

from tilesmith.frontend.host_functions import constexpr
from tilesmith.jit.definition import KernelDefinition
from tilesmith.jit.specialization import (
    INT32_RANGE,
    KeyMaker,
    alias_pattern,
    check_layouts,
    dynamic_form,
)

_PLAIN = (bool, str, torch.dtype, torch.device, type(None))


class CallKeys:
    """Computes the keys of one kernel's calls."""

    def __init__(
        self, definition: KernelDefinition, user_key: Callable[..., Hashable] | None
    ) -> None:
        self._definition = definition
        self._user_key = user_key
        self._keys = KeyMaker(static_shapes=definition.settings.static_shapes)
        self._extractors: Sequence[Callable[..., int]] = ()
        self._is_alias_sensitive = False
        """Whether the kernel writes its arguments: then it matters which of them share storage."""
        self._functions: dict[tuple[type, ...], Callable[..., Hashable]] = {}

    def key(self, args: tuple[Any, ...]) -> Hashable:
        """What makes two calls share a compiled kernel."""
        types = tuple(map(type, args))
        # Taken before a function is made: one made by older rules must not end up in a newer table.
        functions = self._functions
        function = functions.get(types)
        if function is None:
            function = functions[types] = self._compile(types)
        try:
            return function(*args)
        except RuntimeError:
            # Tensors without strides have no key.
            check_layouts(args, self._definition.parameters)
            raise

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

    def reset(self) -> None:
        """Forget what was learned."""
        self._extractors, self._is_alias_sensitive = (), False
        self._functions = {}

    def _compile(self, types: tuple[type, ...]) -> Callable[..., Hashable]:
        names = [f"a{position}" for position in range(len(types))]
        listed = ", ".join(names)
        parts = ["types"]
        for position, (name, kind) in enumerate(zip(names, types)):
            is_constant = position in self._definition.constexprs
            parts += self._parts(name, kind, self._definition.parameters[position], is_constant)
        scope: dict[str, Any] = {
            "types": types,
            "form": dynamic_form,
            "key": self._keys.key,
            "constant_key": self._keys.constants.key,
            "alias_pattern": alias_pattern,
            "user_key": self._user_key,
            "extractors": tuple(self._extractors),
        }
        parts += [f"extractors[{i}]({listed})" for i in range(len(self._extractors))]
        if self._is_alias_sensitive:
            parts.append(f"alias_pattern(({listed},))")
        if self._user_key is not None:
            parts.append(f"user_key({listed})")
        return eval(f"lambda {listed}: ({', '.join(parts)},)", scope)

    def _parts(self, name: str, kind: type, spelling: str, is_constant: bool) -> list[str]:
        """Expressions that tell arguments of one type apart."""
        if issubclass(kind, torch.Tensor):
            form = f"{name}.shape, {name}.stride()"
            is_static = self._definition.settings.static_shapes
            return [f"{name}.dtype, {name}.device, {form if is_static else f'form({form})'}"]
        if kind in _PLAIN:
            return [name]
        if is_constant:
            value = f"{name}.value" if issubclass(kind, constexpr) else name
            return [f"constant_key({value}, {spelling!r})"]
        if kind is int:
            low, high = INT32_RANGE
            return [f"{low} <= {name} <= {high}"]
        return [] if kind is float else [f"key({name}, {spelling!r})"]
