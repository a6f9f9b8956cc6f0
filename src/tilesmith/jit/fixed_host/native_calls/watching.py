"""What a native call looks at again in each call: names of modules whose objects may be others.

An object that is the same is compared in a few nanoseconds; a number has its value for good, a
function may be given other code.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from types import CodeType, FunctionType
from typing import Any

from tilesmith.frontend.tracing.guards import is_moving
from tilesmith.jit.fixed_host.native_calls.steps import STEADY, StepFolder

Watched = tuple[dict[str, Any], str, Any, CodeType | None]
"""A module's names, one of them, what it must stand for, and of a function its code."""
HELD_MODULES = "__constants__"
"""The name of modules of helper functions in guards."""
_HELD = re.compile(rf"{HELD_MODULES}\[(\d+)\]\['(\w+)'\]")
_CODE = re.compile(rf"id\(getattr\({_HELD.pattern}, '__code__', None\)\)")


def find_watched(
    guards: Sequence[tuple[Any, ...]], folder: StepFolder, modules: Sequence[Any]
) -> tuple[Watched, ...] | None:
    """What to watch so that these guards hold; None where one needs more than that.

    Numbers of the kernel's own module are noted in the folder.
    """
    found: list[Watched] = []
    for guard in guards:
        if is_moving(guard):
            return None
        for place in _held(guard[0], modules):
            if place is None:
                return None
            found.append(place)
        names = names_of(guard[0]) - {HELD_MODULES, "id", "getattr"}
        if not all(name in folder.known or folder.watch(name) for name in names):
            return None
    return tuple(found)


def _held(expression: str, modules: Sequence[Any]) -> Iterator[Watched | None]:
    """What an expression reads of modules; None for what cannot be watched."""
    is_code = _CODE.fullmatch(expression) is not None
    for match in _HELD.finditer(expression):
        module, name = modules[int(match[1])], match[2]
        value = module.get(name) if type(module) is dict else None
        if is_code and isinstance(value, FunctionType):
            yield module, name, value, value.__code__
        else:
            yield (module, name, value, None) if type(value) in STEADY else None
    if HELD_MODULES in _HELD.sub("", expression):
        yield None


def of_module(scope: dict[str, Any], values: Mapping[str, Any]) -> tuple[Watched, ...]:
    """Numbers of the kernel's own module."""
    return tuple((scope, name, value, None) for name, value in values.items())


def names_of(expression: str) -> set[str]:
    """All names in an expression."""
    nodes = ast.walk(ast.parse(expression, mode="eval"))
    return {node.id for node in nodes if isinstance(node, ast.Name)}
