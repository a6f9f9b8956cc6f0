"""What a kernel returns, as numbers of values, or by a function of them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any

from tilesmith.frontend.source.names import declared_globals, parameter_names
from tilesmith.frontend.source.split_kernel import (
    LAUNCH,
    SplitKernel,
    compile_function,
    make_function,
    on_device,
)
from tilesmith.jit.fixed_host.folding import NotFixedError


@dataclass(frozen=True)
class End:
    """What is returned, or handed to a function that makes it."""

    names: tuple[str, ...]
    is_tuple: bool = False
    after: Callable[..., Any] | None = None
    """A function of ``LAUNCH`` and the names."""


def find_end(split: SplitKernel, values: Mapping[str, Any]) -> End:
    """The end of host code where these names are bound; NotFixedError where it needs others."""
    after = split.source.after
    if not after:
        return End(())
    if len(after) == 1 and isinstance(after[0], ast.Return):
        found = _returned(after[0].value)
        if found is not None and all(name in values for name in found.names):
            return found
    return _by_function(split, values)


def _returned(value: ast.expr | None) -> End | None:
    items = value.elts if isinstance(value, ast.Tuple) else [] if value is None else [value]
    names = tuple(item.id for item in items if isinstance(item, ast.Name))
    return End(names, isinstance(value, ast.Tuple)) if len(names) == len(items) else None


def _by_function(split: SplitKernel, values: Mapping[str, Any]) -> End:
    source = split.source
    local = {*parameter_names(source.tree), *source.names_before.bound}
    names = tuple(name for name in source.names_after.read if name in local)
    if any(name not in values for name in names) or declared_globals(source.after):
        raise NotFixedError
    scope = source.function.__globals__
    body = on_device(source.fresh().after, scope, f"{LAUNCH}.device")
    tree = copy(source.tree)
    tree.args = ast.arguments([], [ast.arg(name) for name in names], None, [], [], None, [])
    code = compile_function(tree, body, source)
    return End(names, after=make_function(code, source, scope))
