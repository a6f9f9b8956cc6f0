"""Passes as values, pipelines as tuples, and the loop that runs them with observers in between."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tilesmith.ir.function import Function


@dataclass(frozen=True)
class Pass:
    """A named transformation. It gives back the same object when it changed nothing."""

    name: str
    run: Callable[[Function], Function]


Pipeline = tuple[Pass, ...]
Observer = Callable[[Pass, Function], None]
"""Called after each pass with what it gave: verification, dumps and timing hang here."""


def make_pipeline(*functions: Callable[[Function], Function]) -> Pipeline:
    """Passes named after their functions."""
    return tuple(Pass(function.__name__, function) for function in functions)


def run_pipeline(
    function: Function, pipeline: Pipeline, observers: Iterable[Observer] = ()
) -> Function:
    """Run the passes in order."""
    watching = tuple(observers)
    for step in pipeline:
        function = step.run(function)
        for observe in watching:
            observe(step, function)
    return function
