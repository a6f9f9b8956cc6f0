"""The key of a call: what must be equal for a compiled kernel to be used again.

Made by one generated expression per combination of argument types: every call pays for it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from operator import attrgetter, itemgetter
from types import FunctionType
from typing import Any, cast

import torch

from tilesmith.frontend.language.host_functions import constexpr
from tilesmith.frontend.tracing.host_run import marked_sizes
from tilesmith.ir.types import dynamic_form, find_overlap
from tilesmith.jit.definition import KernelDefinition
from tilesmith.jit.exact_forms import where_possible
from tilesmith.jit.forms.matches import COMPARED, PLAIN, is_short, storages_differ
from tilesmith.jit.specialization_key import (
    KeyMaker,
    alias_pattern,
    check_layouts,
    has_marked_sizes,
)

Types = tuple[type, ...]
MAX_EXTRACTORS = 32
"""Numbers that host code specialises in all of its ways; of more only guards know."""


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
        """Whether sizes, strides, types and constants decide, and nothing that is computed."""
        return self.are_exact_forms and not self._extractors

    @property
    def are_exact_forms(self) -> bool:
        """Whether what else decides is computed from sizes, strides and numbers."""
        return not (self._user_key or self._reads_marks)

    @property
    def are_sizes_fixed(self) -> bool:
        """Whether every size and stride counts, not only which of them are 0 or 1."""
        return self._definition.settings.static_shapes

    def extend(self, extractors: Sequence[Callable[..., int]], *, writes_arguments: bool) -> bool:
        """Learn what else decides; True when keys made so far lack something."""
        is_sensitive = self._is_alias_sensitive or writes_arguments
        # Host code may take another way for other arguments, and specialise other numbers there.
        known = {_recipe(extractor): extractor for extractor in self._extractors}
        known |= {_recipe(extractor): extractor for extractor in extractors}
        is_new = len(self._extractors) < len(known) <= MAX_EXTRACTORS
        if not is_new and is_sensitive == self._is_alias_sensitive:
            return False
        if is_new:
            self._extractors = tuple(known.values())
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
            "extractors": tuple(map(where_possible, self._extractors)),
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


def _recipe(value: Any) -> Hashable:
    """What ways to compute the same number have in common: code, and what it holds."""
    if isinstance(value, FunctionType):
        return value.__code__, *(_recipe(cell.cell_contents) for cell in value.__closure__ or ())
    if isinstance(value, (list, tuple)):
        return tuple(map(_recipe, cast("Sequence[Any]", value)))
    return value.__reduce__() if isinstance(value, (itemgetter, attrgetter)) else value


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
