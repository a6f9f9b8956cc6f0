"""The errors that most rules raise, in few words."""

from __future__ import annotations

from typing import Any

import tilesmith.exc as errors


def invalid_kind(function: str, problem: str, fix: str = "") -> errors.BaseError:
    """A function of the language was given something of another kind than it takes."""
    return errors.InvalidArgumentKind(function=function, problem=problem, fix=fix)


def invalid_value(function: str, problem: str) -> errors.BaseError:
    """A function of the language was given a value that it does not take."""
    return errors.InvalidArgumentValue(function=function, problem=problem)


def unsupported_argument(name: str, argument: str, fix: str = "") -> errors.BaseError:
    """Device code has the torch function, but not with this argument."""
    return errors.UnsupportedTorchArgument(name=name, argument=argument, fix=fix)


def unsupported_axis(operation: str, fix: str, **parts: Any) -> errors.BaseError:
    """No backend does that along such an axis."""
    return errors.BackendUnsupported(
        operation=operation, backend="triton, cpu or reference", fix=fix, **parts
    )
