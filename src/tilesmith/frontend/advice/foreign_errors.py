"""Exceptions of Python and of other libraries in device code, in words about the user's line.

An exception goes in that no rule of ours raised, an error of the catalogue comes out: a call that
does not fit a function's signature shows the signature, a missing attribute what there is.
"""

from __future__ import annotations

import difflib
import inspect
import re
import sys
from collections.abc import Iterable
from types import FrameType, TracebackType
from typing import Any

import torch

import tilesmith.exc as errors
from tilesmith.diagnostics.location import SourceLocation, location_of_traceback

LIBRARIES = ("triton", "numpy")
"""Libraries beside torch whose own lines tell a user nothing."""
OWN = "tilesmith."
TILE_PARTS = ("begin", "end", "index", "id", "block_size", "count")
_UNPACKING = r"values to unpack \(expected (?P<needed>\d+)(, got (?P<given>\d+))?\)"
"""What Python says when the numbers of names and values differ."""
_NO_TRITON = (
    "triton.language works in @triton.jit functions only; use torch and hl functions here,\n"
    "or hl.inline_triton and hl.triton_kernel"
)
_NONE_INDEXED = "'NoneType' object is not subscriptable"
_MISFITS = ("missing", "got", "takes")
"""How Python begins to say that a call does not fit a signature."""
_CALLED = re.compile(r"[\w.]+(?=\()")
_KEYWORD = re.compile(r"unexpected keyword argument '(\w+)'")
_NO_ATTRIBUTE = re.compile(r"'Tile' object has no attribute '(\w+)'")


def place_in_user_code(traceback: TracebackType | None) -> SourceLocation:
    """The innermost frame of a traceback that is neither ours nor a library's."""
    return location_of_traceback(traceback, *_library_folders())


def _library_folders() -> list[str]:
    loaded = (sys.modules.get(name) for name in LIBRARIES)
    return [path for module in (torch, *loaded) for path in getattr(module, "__path__", ())]


def explained(error: Exception) -> errors.BaseError:
    """The error of the catalogue for an exception that device code raised."""
    loc = place_in_user_code(error.__traceback__)
    counts = re.search(_UNPACKING, str(error))
    if counts is not None:
        return errors.FailedToUnpackTupleAssign(
            needed=counts["needed"], given=counts["given"] or "more", loc=loc
        )
    parts = _parts(error, loc)
    _, call, problem = str(error).partition("() ")
    if call and "expected" in parts and problem.startswith(_MISFITS):
        # Python names the function behind the name that users know.
        error = type(error)(f"{parts['expected'].partition('(')[0]}() {problem}")
    return errors.TorchOpTracingError.wrapping(
        error, function=loc.function or "device code", loc=loc, **parts
    )


def undefined(name: str, loc: SourceLocation) -> errors.BaseError:
    """The error for a name without a value, with one like it."""
    code = loc.code
    known = {*code.co_varnames, *code.co_freevars, *code.co_names} - {name} if code else set()
    near = difflib.get_close_matches(name, sorted(known), n=1)
    fix = f"did you mean `{near[0]}`?" if near else ""
    return errors.UndefinedVariable(name=name, fix=fix, loc=loc)


def _parts(error: Exception, loc: SourceLocation) -> dict[str, str]:
    frames = list(_frames(error.__traceback__))
    if frames and frames[-1].f_globals.get("__name__", "").startswith("triton."):
        return {"fix": _NO_TRITON, "note": ""}
    missing = _NO_ATTRIBUTE.search(str(error))
    if isinstance(error, AttributeError) and missing is not None:
        return {"fix": _fix_of_attribute(missing[1]), "note": ""}
    if not isinstance(error, TypeError):
        return {}
    if str(error) == _NONE_INDEXED:
        return {"fix": "pass a tensor instead of None, or guard the line: `if x is not None:`"}
    function = _called_function(loc, frames)
    return {} if function is None else _parts_of_call(*function, str(error))


def _fix_of_attribute(name: str) -> str:
    known = {"start": "begin", "stop": "end", "size": "block_size", "idx": "index"}
    near = known.get(name) or next(iter(difflib.get_close_matches(name, TILE_PARTS, n=1)), "")
    if near:
        return f"did you mean tile.{near}?"
    return f"a tile has {', '.join(f'tile.{part}' for part in TILE_PARTS)}"


def _frames(traceback: TracebackType | None) -> Iterable[FrameType]:
    while traceback is not None:
        yield traceback.tb_frame
        traceback = traceback.tb_next


def _called_function(loc: SourceLocation, frames: list[FrameType]) -> tuple[str, Any] | None:
    """The function of ours that the user's line calls, with its name there; None: another's."""
    called = _CALLED.match(loc.text)
    frame = next((f for f in reversed(frames) if f.f_code is loc.code), None)
    if called is None or frame is None:
        return None
    first, *rest = called[0].split(".")
    found: Any = frame.f_locals.get(first, frame.f_globals.get(first))
    for part in rest:
        found = getattr(found, part, None)
    is_ours = getattr(found, "__module__", None) or ""
    return (called[0], found) if callable(found) and is_ours.startswith(OWN) else None


def _parts_of_call(name: str, function: Any, problem: str) -> dict[str, str]:
    parameters = inspect.signature(function).parameters
    shown = [str(item.replace(annotation=item.empty)) for item in parameters.values()]
    given = _KEYWORD.search(problem)
    near = difflib.get_close_matches(given[1], parameters, n=1, cutoff=0.4) if given else []
    fix = {"fix": f"did you mean `{near[0]}`?"} if near else {}
    return {"expected": f"{name}({', '.join(shown)})", "note": "", **fix}
