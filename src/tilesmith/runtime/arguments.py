"""From the values host code hands over at the launch point to kernel parameters and guard checks.

Launch expressions such as ``x``, ``xs[1]`` or ``x.size(0)`` come from the compiler; they are
compiled once into one function of the captured names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch


def compile_reader(
    captured: Sequence[str], expressions: Sequence[str], constants: Sequence[Any] = ()
) -> Callable[..., tuple[Any, ...]]:
    """A function of the captured values that gives the value of every expression.

    Example:
        >>> compile_reader(["a", "b"], ["b", "a + 1"])(1, 2)
        (2, 2)
    """
    listed = "".join(f"{expression}, " for expression in expressions)
    text = f"lambda {', '.join(captured)}: ({listed})"
    return eval(text, {"__constants__": tuple(constants), "float": float, "torch": torch})


def compile_guard(
    captured: Sequence[str], guards: Sequence[tuple[Any, ...]], constants: Sequence[Any] = ()
) -> Callable[..., bool] | None:
    """A function that tells whether every guarded expression still has its value.

    A guard starts with an expression and its value. None when there is nothing to check.
    """
    if not guards:
        return None
    tests, scope = _condition(guards, constants)
    return eval(f"lambda {', '.join(captured)}: {tests}", scope)


def compile_choice(
    captured: Sequence[str],
    guards: Sequence[tuple[Any, ...]],
    constants: Sequence[Any],
    launcher: Callable[..., None],
    otherwise: Callable[..., None],
) -> Callable[..., None]:
    """``launcher`` where every guarded expression still has its value, else ``otherwise``."""
    if not guards:
        return launcher
    tests, scope = _condition(guards, constants)
    scope |= {"__launcher": launcher, "__otherwise": otherwise}
    listed = ", ".join(captured)
    text = f"lambda {listed}: __launcher({listed}) if {tests} else __otherwise({listed})"
    return eval(text, scope)


def _condition(
    guards: Sequence[tuple[Any, ...]], constants: Sequence[Any]
) -> tuple[str, dict[str, Any]]:
    """An expression that tests all guards, and the names in it."""
    scope: dict[str, Any] = {f"__expected_{i}": guard[1] for i, guard in enumerate(guards)}
    scope["__constants__"] = tuple(constants)
    return " and ".join(f"({g[0]}) == __expected_{i}" for i, g in enumerate(guards)), scope
