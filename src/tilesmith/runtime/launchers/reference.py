"""Runs a function with the reference interpreter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import torch

from tilesmith.interpreter.prepare import prepare_function
from tilesmith.interpreter.run import run_prepared
from tilesmith.ir.function import Function
from tilesmith.runtime.arguments import compile_reader


def reference_launcher(
    function: Function,
    sizes: Mapping[str, int],
    captured: Sequence[str],
    constants: Sequence[Any],
    *,
    races: bool = False,
) -> Callable[..., None]:
    """A function of the captured values that runs the kernel on them."""
    names = [parameter.value.name for parameter in function.parameters]
    read = compile_reader(captured, [p.source for p in function.parameters], constants)
    prepared = prepare_function(function)

    def launch(*values: Any) -> None:
        arguments = dict(zip(names, read(*values)))
        complete = {**{size.name: arguments[size.name] for size in function.sizes}, **sizes}
        with torch.no_grad(), _without_autocast():
            run_prepared(prepared, arguments, complete, races=races)

    return launch


def _without_autocast() -> AbstractContextManager[Any]:
    """A kernel says which types it computes in; the caller's autocast must not change them."""
    kinds = [kind for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind)]
    stack = ExitStack()
    for kind in kinds:
        stack.enter_context(torch.autocast(kind, enabled=False))
    return stack
