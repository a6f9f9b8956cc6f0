"""Attributes of objects and classes that device code reads: what they hold is part of the trace.

Device code that names an object may hand it on, so which of its attributes are read where cannot be
told from one function. When a trace is done it is known which functions ran: every attribute counts
that an object has and that any of them names. That is one too many at times, which costs a trace
when such an attribute changes, and none too few but for names that are made at run time. What runs
just then for other reasons (``_Calls``) does not count.
"""

from __future__ import annotations

import enum
import gc
import inspect
import operator
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from threading import get_ident
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any, Protocol, cast

import torch

from tilesmith.frontend.containers import items_of, plain_number
from tilesmith.frontend.language.host_functions import constexpr
from tilesmith.frontend.source.functionalise import RUNTIME
from tilesmith.frontend.source.names import is_library, nested_codes
from tilesmith.frontend.tracing.guards import GuardList
from tilesmith.frontend.tracing.host_session import BlockSizeInt

_OPERATORS = [name.strip("_") for name in dir(operator) if name.startswith("__")]
_CALLED_UNNAMED = frozenset(
    (
        *(f"__{prefix}{name}__" for name in _OPERATORS for prefix in ("", "r")),
        *("__bool__", "__enter__", "__exit__", "__getattr__", "__iter__", "__len__", "forward"),
    )
)
"""Methods that code runs without naming them."""
_MISSING = object()
_MAX_OBJECTS = 1000
"""Objects that make up attributes as they are asked for have no end of them."""
_OF_NO_PARTS = (
    *(torch.Tensor, constexpr, enum.Enum, bool, int, float, complex, str, bytes, type(None)),
    *(FunctionType, MethodType, BuiltinFunctionType, ModuleType, partial),
)
"""What has a note of its own, or never changes."""


class _Notes(Protocol):
    """What a trace depends on (``CapturedValues``)."""

    def note(self, value: Any, source: str) -> Any: ...

    def note_globals(self, code: CodeType, scope: dict[str, Any]) -> None: ...


class Attributes:
    """Objects that device code of one trace reaches, and what it read of them."""

    def __init__(self, notes: _Notes, guards: GuardList) -> None:
        self._notes = notes
        self._guards = guards
        self.reader: CodeType | None = None
        """The function whose reads are noted; None for device code of the kernel itself."""
        self._reached: list[tuple[CodeType | None, Any, str]] = []
        self._codes: dict[CodeType, dict[str, Any]] = {}
        """The user's code that ran, and the names of its module."""

    def reach(self, value: Any, source: str) -> None:
        """The function that is looked at reaches an object, found by the launcher at ``source``."""
        if _has_parts(value):
            self._reached.append((self.reader, value, source))

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Device code runs within."""
        if not self._reached:
            yield
            return
        if sys.getprofile() is not None:
            yield
            # Under a profiler all functions that can be reached count as run.
            self._codes.update((code, {}) for code, _, _ in self._reached if code is not None)
            return
        with _Calls(self._codes).watched():
            yield

    def settle(self, device_code: CodeType) -> None:
        """Guards stand for what device code read of objects when it ran."""
        codes = {device_code: {}, **self._codes}
        ran = {_key(code) for code in codes}
        for code, names in codes.items():
            # Methods that nothing names ran too: those that make objects.
            self._notes.note_globals(code, names if RUNTIME not in names else {})
        named = dict.fromkeys(sorted({name for code in codes for name in _names_in(code)}))
        names = [*named, *(name for name in _CALLED_UNNAMED if name not in named)]
        known: dict[int, str] = {}
        for reader, value, source in self._reached:  # which grows
            if (reader is not None and _key(reader) not in ran) or len(known) >= _MAX_OBJECTS:
                continue
            if id(value) in known:
                self._guards.same(known[id(value)], source)
                continue
            known[id(value)] = source
            if not isinstance(value, type):
                self._guards.require_moving(f"{source}.__class__", value=type(value))
            for held, where in (found for name in names for found in _held(value, source, name)):
                if not isinstance(held, FunctionType) or _key(held.__code__) in ran:
                    self._note_attribute(held, where)

    def _note_attribute(self, held: Any, source: str) -> None:
        if isinstance(held, BlockSizeInt):
            return  # every config has its own
        self._guards.moving.add(source)
        self.reader = None
        self._notes.note(held, source)


class _Calls:
    """The user's functions that this thread calls for device code.

    Not those called meanwhile, and what these call: by the collector of garbage, to end an object
    or for one that is gone, by a signal.
    """

    def __init__(self, codes: dict[CodeType, dict[str, Any]]) -> None:
        self._codes = codes
        self._thread = get_ident()
        self._is_collecting = False
        self._aside: FrameType | None = None
        """The outermost function that runs meanwhile."""

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Calls within are seen."""
        # The first and the last of the callbacks: other ones run meanwhile as well.
        gc.callbacks.insert(0, self._begin_collection)
        gc.callbacks.append(self._end_collection)
        sys.setprofile(self._see)
        try:
            yield
        finally:
            sys.setprofile(None)
            for callback in (self._begin_collection, self._end_collection):
                with suppress(ValueError):  # code that ran has removed it
                    gc.callbacks.remove(callback)

    def _begin_collection(self, phase: str, _: object) -> None:
        self._is_collecting |= phase == "start" and get_ident() == self._thread

    def _end_collection(self, phase: str, _: object) -> None:
        self._is_collecting &= phase == "start" or get_ident() != self._thread

    def _see(self, frame: FrameType, event: str, _: object) -> None:
        if self._aside is not None:
            if event == "return" and frame is self._aside:
                self._aside = None
        elif event == "call" and not self._is_collecting and frame.f_code not in self._codes:
            if frame.f_code.co_name == "__del__" or frame.f_code is _END_OF_AN_OBJECT:
                self._aside = frame
            elif _is_users(frame.f_globals):
                if any(map(_is_of_an_interruption, frame.f_locals.values())):
                    self._aside = frame
                else:
                    self._codes[frame.f_code] = frame.f_globals


_END_OF_AN_OBJECT = weakref.finalize.__call__.__code__


def _is_of_an_interruption(argument: object) -> bool:
    """Whether only callbacks get it: that of a weak reference, and of a signal."""
    if type(argument) is tuple:  # *arguments
        return any(map(_is_of_an_interruption, cast("tuple[object, ...]", argument)))
    is_gone = isinstance(argument, weakref.ReferenceType) and argument() is None
    return is_gone or isinstance(argument, FrameType)


def _is_users(names: dict[str, Any]) -> bool:
    """Whether code of a module is neither a library's nor any of ours, which traces it."""
    module = str(names.get("__name__", ""))
    return module.partition(".")[0] != "tilesmith" and not is_library(ModuleType(module))


def _key(code: CodeType) -> tuple[str, str]:
    """What code and its form for devices have in common."""
    return code.co_filename, code.co_name


def _names_in(code: CodeType) -> Iterator[str]:
    """Names that code may read attributes by, those given to ``getattr`` included."""
    for part in nested_codes(code):
        yield from part.co_names
        yield from (text for text in part.co_consts if type(text) is str and text.isidentifier())


def _has_parts(value: Any) -> bool:
    if isinstance(value, type):
        return not is_library(value) and not issubclass(value, torch.Tensor)
    if isinstance(value, torch.nn.Module):
        return True
    kind = type(value)
    package = kind.__module__.partition(".")[0]
    if isinstance(value, _OF_NO_PARTS) or package in ("builtins", "torch", "triton", "numpy"):
        return False
    # Objects of Python's library may be bags of attributes, as those of `types` and `argparse`.
    is_ours = package == "tilesmith" and is_library(kind)
    return not is_ours and plain_number(value) is value


def _held(value: Any, source: str, name: str) -> Iterator[tuple[Any, str]]:
    """What an attribute holds that code can read, and where; nothing if there is none."""
    static = inspect.getattr_static(value, name, _MISSING)
    if name in _CALLED_UNNAMED and not isinstance(static, FunctionType):
        return
    if isinstance(static, property):
        if not isinstance(value, type) and static.fget is not None:
            yield static.fget, f"{source}.__class__.{name}.fget"
        return
    if static is _MISSING and not hasattr(type(value), "__getattr__"):
        return
    if items_of(value) is not None:
        # Items are noted as such, and may be others in device code.
        if name in {item.suffix[1:] for item in items_of(value) or ()}:
            return
        value, source = type(value), f"{source}.__class__"
    try:
        held = getattr(value, name, _MISSING)
        is_steady = held is _MISSING or getattr(value, name) is held
    except Exception:  # whatever attributes raise: device code that reads them will see it
        return
    if isinstance(held, MethodType):
        yield held.__func__, f"{source}.{name}.__func__"
        yield held.__self__, f"{source}.{name}.__self__"
    elif held is not _MISSING and (is_steady or not _has_parts(held)):
        yield held, f"{source}.{name}"
