"""The key of a call: what must be equal for a compiled kernel to be used again.

Made by one generated expression per combination of argument types: every call pays for it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch

from tilesmith.frontend.language.host_functions import constexpr
from tilesmith.ir.types import dynamic_form
from tilesmith.jit.call_matches import COMPARED, PLAIN, is_short, storages_differ
from tilesmith.jit.definition import KernelDefinition
from tilesmith.jit.specialization import (
    KeyMaker,
    alias_pattern,
    check_layouts,
)

Types = tuple[type, ...]


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
        self._functions: dict[Types, Callable[..., Hashable]] = {}

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
            self.check(*args)
            raise

    def check(self, *args: Any) -> None:
        """Raise for tensors without strides: they have no key."""
        check_layouts(args, self._definition.parameters)

    @property
    def is_alias_sensitive(self) -> bool:
        """Whether it matters which arguments share storage: the kernel writes some."""
        return self._is_alias_sensitive

    @property
    def are_forms(self) -> bool:
        """Whether sizes, strides and types decide, and nothing that is computed from arguments."""
        return not (self._extractors or self._user_key or self._definition.constexprs)

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

    def reset(self) -> None:
        """Forget what was learned."""
        self._extractors, self._is_alias_sensitive = (), False
        self._functions = {}

    def _compile(self, types: Types) -> Callable[..., Hashable]:
        names, key = self.expression(types)
        return eval(f"lambda {', '.join(names)}: {key}", self.scope(types))

    def scope(self, types: Types) -> dict[str, Any]:
        """The names in ``expression``."""
        return {
            "types": types,
            "form": dynamic_form,
            "key": self._keys.key,
            "constant_key": self._keys.constants.key,
            "alias_pattern": alias_pattern,
            "user_key": self._user_key,
            "extractors": tuple(self._extractors),
        }

    def expression(self, types: Types) -> tuple[list[str], str]:
        """Names of arguments, and their key as an expression over them."""
        names = [f"a{position}" for position in range(len(types))]
        listed = ", ".join(names)
        parts = ["types"]
        for position, (name, kind) in enumerate(zip(names, types)):
            is_constant = position in self._definition.constexprs
            parts += self._parts(name, kind, self._definition.parameters[position], is_constant)
        parts += [f"extractors[{i}]({listed})" for i in range(len(self._extractors))]
        if self._is_alias_sensitive:
            parts.append(_alias_expression(names, types))
        if self._user_key is not None:
            parts.append(f"user_key({listed})")
        return names, f"({', '.join(parts)},)"

    def _parts(self, name: str, kind: type, spelling: str, is_constant: bool) -> list[str]:
        """Expressions that tell arguments of one type apart."""
        if issubclass(kind, torch.Tensor):
            form = f"{name}.shape, {name}.stride()"
            is_static = self._definition.settings.static_shapes
            return [f"{name}.dtype, {name}.device, {form if is_static else f'form({form})'}"]
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
