"""Objects that cannot be kernels: what they are, and at which line."""

from __future__ import annotations

import inspect
import linecache
from types import CodeType, FunctionType
from typing import Any

import tilesmith.exc as errors
from tilesmith.diagnostics.location import SourceLocation
from tilesmith.diagnostics.wording import kind_of


def plain_function(function: Any) -> FunctionType:
    """The object itself, if it is a function that runs when it is called."""
    if not isinstance(function, FunctionType):
        raise errors.NotAKernelFunction(kind=kind_of(function))
    code = function.__code__
    if function.__name__ == "<lambda>":
        place = SourceLocation(code.co_filename, code.co_firstlineno)
        raise errors.NotAKernelFunction(kind="a lambda", loc=place)
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        place = SourceLocation(code.co_filename, definition_line(code), function.__name__)
        raise errors.NotAKernelFunction(kind="an async function", loc=place)
    return function


def closure_error(function: FunctionType) -> errors.BaseError:
    """What is wrong with a function that has variables of another: often it is a decorator's."""
    code = function.__code__
    inner = inspect.unwrap(function).__code__
    if inner is code:
        loc = SourceLocation(code.co_filename, definition_line(code), function.__name__)
        return errors.ClosuresNotSupported(
            function=function.__name__, names=code.co_freevars, loc=loc
        )
    line = definition_line(inner) - 1
    text = linecache.getline(inner.co_filename, line).strip().removeprefix("@")
    loc = SourceLocation(inner.co_filename, line, function.__name__)
    return errors.DecoratorAfterHelionKernelDecorator(
        decorator=text or code.co_name, function=function.__name__, loc=loc
    )


def definition_line(code: CodeType) -> int:
    """The line of ``def``; Python counts the decorators above it to the function."""
    line = code.co_firstlineno
    while linecache.getline(code.co_filename, line).lstrip().startswith("@"):
        line += 1
    return line
