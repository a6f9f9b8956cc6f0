"""The mistakes of one kernel: those of its definition, its source and the names in it.

Where the compiler has the check, it is the compiler's that runs, on a function that is made from
the text. What it learns only by running device code is looked up here: functions of the language
and of torch that there are not, and names that nothing binds.
"""

from __future__ import annotations

import ast
import builtins
import difflib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from types import FunctionType
from typing import Any

import torch
from torch.overrides import get_testing_overrides

import tilesmith.exc as errors
from tilesmith import language
from tilesmith.diagnostics.catalogue import BaseError
from tilesmith.diagnostics.location import SourceLocation, location_of_node
from tilesmith.frontend.advice.torch_names import suggested_names
from tilesmith.frontend.device_forms import DEVICE_BUILTINS
from tilesmith.frontend.functions.creation import FACTORIES
from tilesmith.frontend.functions.random import RANDOM_FACTORIES
from tilesmith.frontend.functions.torch_functions import METADATA, TORCH_FUNCTIONS, unsupported
from tilesmith.frontend.source.kernel_source import called_name
from tilesmith.frontend.source.names import find_names, nested_codes
from tilesmith.jit.definition import KernelDefinition
from tilesmith.jit.kernel import Kernel
from tilesmith.lint.module_names import UNKNOWN, literal, resolve
from tilesmith.schedule.config import Config, is_reserved, keep_known
from tilesmith.settings import SettingError, Settings

_ON_HOST = {
    "specialize": lambda loc: errors.SpecializeOnDevice(loc=loc),
    "register_block_size": lambda loc: errors.RegisterOnDevice(
        function="hl.register_block_size", loc=loc
    ),
    "register_tunable": lambda loc: errors.RegisterOnDevice(
        function="hl.register_tunable", loc=loc
    ),
}  # fmt: skip
"""Functions of the language that device code may not call, and what they raise there."""
_ON_DEVICE = frozenset(
    {"arange", "atomic_add", "cumprod", "cumsum", "device_print", "dot", "join", "load", "rand",
     "randint", "reduce", "split", "store", "subscript", "tile_index"}
)  # fmt: skip
"""Those that host code may not call."""
_CONFIGS = ("config", "configs")


@dataclass(frozen=True)
class Mistake:
    """What would be raised, and where."""

    loc: SourceLocation
    kind: str
    text: str
    """The whole message, with the lines of the source."""


@dataclass(frozen=True)
class Place:
    """A kernel as it stands in its file."""

    tree: ast.FunctionDef
    decorator: ast.expr
    function: FunctionType
    file: str
    names: Mapping[str, Any]

    def location(self, node: ast.AST) -> SourceLocation:
        """Where a node of the kernel stands."""
        return location_of_node(node, self.file, self.tree.name)


def check_kernel(place: Place) -> Iterator[Mistake]:
    """Everything that is wrong with a kernel, as far as its text tells."""
    yield from _decorator_mistakes(place)
    loops: list[ast.stmt] = []
    mistake = _caught(place, lambda: loops.extend(_device_loops(place)))
    if mistake is not None:
        yield mistake
        return
    yield from _name_mistakes(place, loops)


def _caught(place: Place, check: Callable[[], object]) -> Mistake | None:
    try:
        check()
    except BaseError as error:
        return as_mistake(error, place.location(place.tree))
    return None


def as_mistake(error: BaseError, otherwise: SourceLocation) -> Mistake:
    """An error of ours; one without a place is about the whole kernel."""
    placed = error.located(otherwise)
    return Mistake(placed.loc or otherwise, type(error).__name__, str(placed))


def _device_loops(place: Place) -> list[ast.stmt]:
    """The device loops of a kernel that the compiler's own checks let pass."""
    definition = KernelDefinition(place.function, (), Settings.from_environment({}, {}), None)
    kernel = Kernel(definition)
    if kernel.staged is None:
        return definition.split.source.loops
    return [loop for stage in kernel.staged.kernels for loop in stage.definition.split.source.loops]


def _decorator_mistakes(place: Place) -> Iterator[Mistake]:
    call = place.decorator
    if not isinstance(call, ast.Call):
        return
    for keyword in call.keywords:
        value = literal(keyword.value)
        if keyword.arg in _CONFIGS:
            yield from _config_mistakes(place, keyword.value)
        elif keyword.arg not in (None, "key", "settings", "batch"):
            yield from _setting_mistakes(place, keyword, value)
    named = [keyword.arg for keyword in call.keywords]
    if all(name in named for name in _CONFIGS):
        error = errors.ConflictingArguments(first="config", second="configs")
        yield as_mistake(error, place.location(call))


def _setting_mistakes(place: Place, keyword: ast.keyword, value: Any) -> Iterator[Mistake]:
    name = str(keyword.arg)
    try:
        if value is UNKNOWN:
            Settings.from_environment({} if hasattr(Settings, name) else {name: None}, {})
        else:
            Settings.from_environment({name: value}, {})
    except SettingError as error:
        loc = place.location(keyword)
        yield Mistake(loc, type(error).__name__, str(error))


def _config_mistakes(place: Place, node: ast.expr) -> Iterator[Mistake]:
    """Configs that are written out: calls of ``Config`` with constants, and dicts."""
    for part in ast.walk(node):
        if isinstance(part, ast.Call) and resolve(part.func, place.names) is Config:
            given = {item.arg: literal(item.value) for item in part.keywords if item.arg}
        elif isinstance(part, ast.Dict) and part is node:
            given = literal(part)
        else:
            continue
        mistake = None if given is UNKNOWN else _caught(place, partial(_check_config, place, given))
        if mistake is not None:
            yield Mistake(place.location(part), mistake.kind, mistake.text)


def _check_config(place: Place, given: Mapping[str, Any]) -> None:
    Config(**{name: value for name, value in given.items() if value is not UNKNOWN})
    calls = [node for node in ast.walk(place.tree) if called_name(node) == "register_tunable"]
    arguments = [argument for call in calls for argument in getattr(call, "args", [])[:1]]
    tunables = [literal(argument) for argument in arguments]
    unknown = [name for name in given if not is_reserved(name) and name not in tunables]
    if unknown and UNKNOWN not in tunables:
        keep_known(dict.fromkeys(unknown), "", ())


def _name_mistakes(place: Place, loops: Sequence[ast.stmt]) -> Iterator[Mistake]:
    device = {id(node) for loop in loops for node in ast.walk(loop)}
    # Later stages of the compiler work on copies: nodes are the same where they stand.
    spots = {_spot(node) for loop in loops for node in ast.walk(loop) if hasattr(node, "lineno")}
    for node in _unconditional(place.tree.body):
        is_device = id(node) in device or (hasattr(node, "lineno") and _spot(node) in spots)
        if isinstance(node, ast.Attribute):
            yield from _attribute_mistakes(place, node, is_device=is_device)
    # Loops over literals are written out, with names of their own.
    written = {node.id for node in ast.walk(place.tree) if isinstance(node, ast.Name)}
    for name, node in find_names(loops).read.items():
        if name in written and not _is_bound(place, name):
            yield as_mistake(_undefined(place, name, node), place.location(node))


def _unconditional(body: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """All nodes but those in branches, of which constants may decide that they are never run."""
    for node in body:
        yield node
        children = list(ast.iter_child_nodes(node))
        if isinstance(node, (ast.If, ast.IfExp)):
            children = [node.test]
        elif isinstance(node, ast.Match):
            children = [node.subject]
        yield from _unconditional(children)


def _spot(node: Any) -> tuple[type, int, int, int, int]:
    return type(node), node.lineno, node.col_offset, node.end_lineno, node.end_col_offset


def _attribute_mistakes(place: Place, node: ast.Attribute, *, is_device: bool) -> Iterator[Mistake]:
    owner, loc = resolve(node.value, place.names), place.location(node)
    if owner is language:
        if node.attr not in language.__all__:
            near = suggested_names(node.attr, language.__all__)
            error = errors.UnknownLanguageFunction(name=node.attr, suggestions=near)
            yield as_mistake(error, loc)
        elif is_device and node.attr in _ON_HOST:
            yield as_mistake(_ON_HOST[node.attr](loc), loc)
        elif not is_device and node.attr in _ON_DEVICE:
            yield as_mistake(errors.DeviceAPIOnHost(function=f"hl.{node.attr}"), loc)
    elif inspect.ismodule(owner) and owner.__name__.partition(".")[0] == torch.__name__:
        yield from _torch_mistakes(owner, node, loc, is_device=is_device)


def _torch_mistakes(
    owner: Any, node: ast.Attribute, loc: SourceLocation, *, is_device: bool
) -> Iterator[Mistake]:
    found = getattr(owner, node.attr, UNKNOWN)
    if found is UNKNOWN:
        text = f"module {owner.__name__!r} has no attribute {node.attr!r}"
        if not is_device:
            yield Mistake(loc, "AttributeError", text)
            return
        error = errors.TorchOpTracingError.wrapping(
            AttributeError(text), function=loc.function, loc=loc
        )
        yield as_mistake(error, loc)
    elif is_device and _is_computed(found) and not is_known(getattr(found, "__name__", "")):
        yield as_mistake(unsupported(str(found.__name__)), loc)


@cache
def _computed_functions() -> frozenset[Any]:
    """The functions of torch that tensors may answer themselves."""
    return frozenset(get_testing_overrides())


def _is_computed(function: Any) -> bool:
    try:
        return function in _computed_functions()
    except TypeError:
        return False


def is_known(name: str) -> bool:
    """Whether device code may call a function of torch, as far as its name tells."""
    known = (TORCH_FUNCTIONS, METADATA, FACTORIES, RANDOM_FACTORIES)
    return any(name in names for names in known) or name.rstrip("_") in TORCH_FUNCTIONS


def _is_bound(place: Place, name: str) -> bool:
    code = place.function.__code__
    local = {n for part in nested_codes(code) for n in (*part.co_varnames, *part.co_cellvars)}
    known = (local, place.names, vars(builtins), DEVICE_BUILTINS)
    return any(name in names for names in known)


def _undefined(place: Place, name: str, node: ast.AST) -> BaseError:
    code = place.function.__code__
    known = {*code.co_varnames, *code.co_freevars, *code.co_names} - {name}
    near = difflib.get_close_matches(name, sorted(known), n=1)
    fix = f"did you mean `{near[0]}`?" if near else ""
    return errors.UndefinedVariable(name=name, fix=fix, loc=place.location(node))
