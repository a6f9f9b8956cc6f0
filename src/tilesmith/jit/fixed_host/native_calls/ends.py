"""What a kernel returns: names, or what a function makes of them.

A result that is returned as a view of other sizes is made with these sizes from the start: nobody
else has the tensor itself.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import torch

from tilesmith.frontend.source.names import declared_globals, parameter_names
from tilesmith.frontend.source.split_kernel import (
    LAUNCH,
    SplitKernel,
    compile_function,
    make_function,
    on_device,
)
from tilesmith.jit.fixed_host.folding import NotFixedError
from tilesmith.jit.fixed_host.native_calls.steps import Step, StepFolder


@dataclass(frozen=True)
class End:
    """What is returned, or handed to a function that makes it."""

    names: tuple[str, ...]
    is_tuple: bool = False
    after: Callable[..., Any] | None = None
    """A function of ``LAUNCH`` and the names."""
    forms: Mapping[str, torch.Tensor] = field(default_factory=dict[str, torch.Tensor])
    """Of names that are returned as views."""


def find_end(split: SplitKernel, folder: StepFolder, steps: Sequence[Step]) -> End:
    """The end of host code after these steps; NotFixedError where it needs other names."""
    names = {*parameter_names(split.source.tree), *(step.name for step in steps)}
    after = split.source.after
    if not after:
        return End(())
    if len(after) == 1 and isinstance(after[0], ast.Return):
        found = _returned(after[0].value, folder, steps)
        if found is not None and all(name in names for name in found.names):
            return found
    return _by_function(split, names)


def _returned(value: ast.expr | None, folder: StepFolder, steps: Sequence[Step]) -> End | None:
    items = value.elts if isinstance(value, ast.Tuple) else [] if value is None else [value]
    names: list[str] = []
    forms: dict[str, torch.Tensor] = {}
    for item in items:
        owner = _viewed(item)
        if not isinstance(owner, ast.Name):
            return None
        names.append(owner.id)
        if owner is not item:
            form = folder.form_of(item)
            if form is None or not _is_own(owner.id, form, steps):
                return None
            forms[owner.id] = form
    # Whoever has it under another name, or asks for its sizes, has it in its own form.
    if any(sum(_reads(item, _names_of(name, steps)) for item in items) > 1 for name in forms):
        return None
    return End(tuple(names), isinstance(value, ast.Tuple), None, forms)


def _viewed(item: ast.expr) -> ast.expr:
    """What a view is of; the expression itself where it is none."""
    match item:
        case ast.Call(ast.Attribute(ast.Name() as owner, "view" | "reshape")):
            return owner
        case _:
            return item


def _is_own(name: str, form: torch.Tensor, steps: Sequence[Step]) -> bool:
    """Whether it is a tensor that is made here, with the same elements in this form."""
    found = [step for step in steps if step.name == name]
    if len(found) != 1 or not found[0].is_new:
        return False
    whole: torch.Tensor = found[0].value
    is_whole = form.numel() == whole.numel() and form.dtype == whole.dtype
    return is_whole and whole.is_contiguous() and form.is_contiguous()


def _names_of(name: str, steps: Sequence[Step]) -> set[str]:
    """All names of a tensor."""
    names = {name}
    for step in steps:
        if step.same_as in names:
            names.add(step.name)
    return names


def _reads(item: ast.expr, names: Collection[str]) -> int:
    return sum(isinstance(node, ast.Name) and node.id in names for node in ast.walk(item))


def _by_function(split: SplitKernel, bound: Collection[str]) -> End:
    source = split.source
    local = {*parameter_names(source.tree), *source.names_before.bound}
    names = tuple(name for name in source.names_after.read if name in local)
    if any(name not in bound for name in names) or declared_globals(source.after):
        raise NotFixedError
    scope = source.function.__globals__
    body = on_device(source.fresh().after, scope, f"{LAUNCH}.device")
    tree = copy(source.tree)
    tree.args = ast.arguments([], [ast.arg(name) for name in names], None, [], [], None, [])
    code = compile_function(tree, body, source)
    return End(names, after=make_function(code, source, scope))
