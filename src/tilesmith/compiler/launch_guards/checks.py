"""Checks of a launch, as statements of host code: everything that device code takes for granted.

Inside the process the specialization key answers for arguments. A saved module has no key: it must
refuse another size, stride, element type or constant itself, or it would compute something else.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import combinations
from types import CodeType
from typing import Any, Protocol

from tilesmith.analysis.effects import tensors_written
from tilesmith.artifacts import Artifact
from tilesmith.compiler.launch_guards.launch_sizes import side_checks
from tilesmith.dtypes import F16, F32, F64, DType
from tilesmith.frontend.tracing.guards import Guard, root_of
from tilesmith.ir.function import Function
from tilesmith.ir.traversal import walk_function
from tilesmith.ir.types import INT32_LIMIT, TensorType, TileType

REQUIRE, REQUIRE_TENSOR = "require", "require_tensor"
_PARTS_OF_COMPLEX = (F16, F32, F64)
_MADE_FOR = "this module was made for"
_REQUIRE = f'''
def {REQUIRE}(what, given, expected):
    if given != expected or type(given) is not type(expected):
        raise ValueError(f"{_MADE_FOR} {{what}} = {{expected}}, and was given {{given}}")
'''
_STATIC_TENSOR = f'''
def {REQUIRE_TENSOR}(name, given, dtype, sizes, strides):
    if given.dtype is not dtype or given.shape != sizes or given.stride() != strides:
        shown = f"{{given.dtype}}, sizes {{tuple(given.shape)}}, strides {{given.stride()}}"
        made_for = f"{{name}}: {{dtype}}, sizes {{sizes}}, strides {{strides}}"
        raise ValueError(f"{_MADE_FOR} {{made_for}}; and was given {{shown}}")
'''
_TENSOR = f'''
def {REQUIRE_TENSOR}(name, given, dtype, sizes, strides, max_offset=None):
    """None stands for any size but 0 and 1, and for any stride."""
    counts = len(given.shape) == len(sizes) and all(
        n == size or (size is None and n > 1) for n, size in zip(given.shape, sizes)
    )
    steps = all(stride in (None, s) for s, stride in zip(given.stride(), strides))
    offset = sum((n - 1) * s for n, s in zip(given.shape, given.stride()) if n)
    is_near = max_offset is None or offset <= max_offset
    if not (given.dtype is dtype and counts and steps and is_near):
        shown = f"{{given.dtype}}, sizes {{tuple(given.shape)}}, strides {{given.stride()}}"
        made_for = f"{{name}}: {{dtype}}, sizes {{sizes}}, strides {{strides}}"
        limit = "" if max_offset is None else f", offsets up to {{max_offset}}"
        raise ValueError(f"{_MADE_FOR} {{made_for}}{{limit}}; and was given {{shown}}")
'''


class Trace(Protocol):
    """What checks are made from; a trace has it."""

    @property
    def function(self) -> Function:
        """As it was traced."""
        ...

    @property
    def tensors(self) -> Mapping[str, TensorType]:
        """What was taken for granted of each tensor."""
        ...

    @property
    def covered(self) -> tuple[Guard, ...]:
        """Of values that a key covers."""
        ...

    @property
    def guards(self) -> tuple[Guard, ...]:
        """Of all others."""
        ...

    @property
    def equal_sizes(self) -> tuple[tuple[str, str], ...]:
        """Runtime sizes that are taken for one."""
        ...


@dataclass(frozen=True)
class HostNames:
    """What checks may know of the host code that they stand in."""

    own: Set[str]
    """Its parameters and variables. What has another name is part of the module."""
    literal: Callable[[Any], str | None]
    """Source text of a value, or None where it has none."""
    parameters: Set[str]
    defaults: Mapping[CodeType, str]
    """Functions that are defaults of its parameters, and where they are found."""


@dataclass(frozen=True)
class LaunchChecks:
    """The statements that stand before a launch, and the functions that they call."""

    functions: Mapping[str, str]
    """Their texts. The one with runtime sizes also serves where all sizes are constants."""
    statements: tuple[str, ...]

    @property
    def names(self) -> set[str]:
        """What the functions are called."""
        return {text.partition("(")[0].removeprefix("def ") for text in self.functions.values()}

    def renamed(self, taken: set[str]) -> LaunchChecks:
        """The same under other names where host code has these itself."""
        known = (REQUIRE, REQUIRE_TENSOR)
        new = {name: f"{name}_of_module" if name in taken else name for name in known}

        def put(text: str) -> str:
            name, bracket, rest = text.partition("(")
            return f"{new[name]}{bracket}{rest}"

        functions = {
            name: f"def {put(text.removeprefix('def '))}" for name, text in self.functions.items()
        }
        return LaunchChecks(functions, tuple(map(put, self.statements)))


def launch_checks(
    artifact: Artifact, trace: Trace, host: HostNames, extra: Sequence[str] = ()
) -> LaunchChecks:
    """The checks of one trace under one config.

    Args:
        artifact: the code that will run.
        trace: what it was made from.
        host: the code around it.
        extra: further statements that call ``require``.
    """
    launched = {parameter.source for parameter in artifact.parameters}
    tensors = {
        source: kind
        for source, kind in trace.tensors.items()
        if source in launched or root_of(source) in host.own
    }
    lines = [
        *(_tensor_check(source, kind) for source, kind in tensors.items()),
        *_device_check([source for source in tensors if source in launched and not artifact.llvm]),
        *_value_checks(_guards(trace, host.own, list(tensors)), host),
        *_size_checks(trace),
        *side_checks(artifact, REQUIRE),
        *_memory_checks(artifact, {s: k for s, k in tensors.items() if s in launched}),
        *_overlap_checks(
            trace, {s: k for s, k in tensors.items() if root_of(s) in host.parameters}
        ),
        *extra,
    ]
    is_static = all(_is_static(kind) for kind in tensors.values())
    functions = {REQUIRE_TENSOR: _STATIC_TENSOR if is_static else _TENSOR} if tensors else {}
    if any(line.startswith(f"{REQUIRE}(") for line in lines):
        functions[REQUIRE] = _REQUIRE
    return LaunchChecks({n: text.strip() for n, text in functions.items()}, tuple(lines))


def _is_static(kind: TensorType) -> bool:
    return all(isinstance(extent, int) for extent in (*kind.shape, *kind.strides))


def _tensor_check(source: str, kind: TensorType) -> str:
    sizes, strides = (
        tuple(extent if isinstance(extent, int) else None for extent in extents)
        for extents in (kind.shape, kind.strides)
    )
    # Sizes that are constants say how far offsets reach.
    limit = "" if kind.wide or _is_static(kind) else f", {INT32_LIMIT}"
    return (
        f"{REQUIRE_TENSOR}({source!r}, {source}, {torch_name(kind.dtype)}, {sizes}, {strides}"
        f"{limit})"
    )


def torch_name(dtype: DType) -> str:
    """An element type as source text."""
    return f"torch.{dtype.long_name}"


def _device_check(sources: Sequence[str]) -> Iterator[str]:
    if len(sources) > 1:
        devices = ", ".join(f"{source}.device" for source in sources)
        first = f"({sources[0]}.device,) * {len(sources)}"
        yield f"{REQUIRE}('tensors on one device', ({devices}), {first})"


def _guards(trace: Trace, own: Set[str], tensors: Sequence[str]) -> Iterator[Guard]:
    """Those that host code can answer for and that checks of tensors do not cover."""
    sizes = {f"({left}) == ({right})" for left, right in trace.equal_sizes}
    for guard in (*trace.covered, *trace.guards):
        names = {n.id for n in ast.walk(ast.parse(guard.expression)) if isinstance(n, ast.Name)}
        is_here = "__constants__" not in names and bool(names & own)
        if is_here and guard.expression not in sizes and not _is_of_tensor(guard, tensors):
            yield guard


def _is_of_tensor(guard: Guard, tensors: Sequence[str]) -> bool:
    """Whether it is a guard of a tensor's type."""
    return any(
        guard.expression in (f"{source}.__class__", f"{source}.dtype")
        or guard.expression.removeprefix("dynamic_form").startswith(f"({source}.shape, ")
        for source in tensors
    )


def _value_checks(guards: Iterator[Guard], host: HostNames) -> Iterator[str]:
    for guard in guards:
        if guard.value is True:
            yield f"{REQUIRE}({guard.expression!r}, {guard.expression}, True)"
        elif guard.value is not False:  # a number that needed 64 bits leaves room for any other
            given, expected = _comparison(guard, host)
            yield f"{REQUIRE}({given!r}, {given}, {expected})"


def _comparison(guard: Guard, host: HostNames) -> tuple[str, str]:
    """What to ask for, and source text of the answer."""
    expression, value = guard.expression, guard.value
    if isinstance(guard.kept, tuple):
        source = expression.removeprefix("id(getattr(").removesuffix(", '__code__', None))")
        code, name = guard.kept
        if code in host.defaults:
            return f"{source} is {host.defaults[code]}", "True"
        # Two functions of one name are taken for one: their text is no part of the module.
        return f"{source}.__name__", repr(name)
    if expression.startswith("(") and isinstance(value, tuple) and isinstance(value[0], type):
        expression, value = guard.number or expression.rpartition(", ")[2].rstrip(")"), value[1]
    text = host.literal(value)
    if text is not None:
        return expression, text
    name = getattr(value, "__name__", None)
    if isinstance(name, str):
        return f"{expression}.__name__", repr(name)
    return f"repr({expression})", repr(repr(value))


def _size_checks(trace: Trace) -> Iterator[str]:
    """What the trace took for granted about runtime sizes: nothing else would notice."""
    names = {parameter.source: parameter.value.name for parameter in trace.function.parameters}
    used = _size_symbols(trace.function)
    for left, right in trace.equal_sizes:
        if "__" not in left + right and (left not in names or names[left] in used):
            yield f"{REQUIRE}({left!r}, {left}, {right})"


def _size_symbols(function: Function) -> set[str]:
    """The symbols that tiles have as sizes; a size that is only a loop bound assumes nothing."""
    tiles = [v.type for op in walk_function(function) for v in op.results]
    shapes = [tile.shape for tile in tiles if isinstance(tile, TileType)]
    return {symbol for shape in shapes for dim in shape for symbol in dim.symbols}


def _memory_checks(artifact: Artifact, arguments: Mapping[str, TensorType]) -> Iterator[str]:
    """Descriptors want tensors to start at a multiple of 16 bytes; no code undoes a lazy sign."""
    sources = {parameter.name: parameter.source for parameter in artifact.parameters}
    for name in dict.fromkeys(item.tensor for item in artifact.descriptions):
        yield f"{REQUIRE}('{sources[name]}.data_ptr() % 16', {sources[name]}.data_ptr() % 16, 0)"
    for source, tensor in arguments.items():
        if _may_be_negated(tensor):
            yield f"{REQUIRE}('{source}.is_neg()', {source}.is_neg(), False)"


def _may_be_negated(tensor: TensorType) -> bool:
    """Whether it may be the imaginary part of a conjugate, whose sign torch flips lazily.

    Parts of complex numbers lie two apart, so no stride of theirs is odd, but for axes of one
    element.
    """
    has_odd_stride = any(
        isinstance(stride, int) and stride % 2 and not (isinstance(size, int) and size <= 1)
        for size, stride in zip(tensor.shape, tensor.strides)
    )
    return tensor.dtype in _PARTS_OF_COMPLEX and not has_odd_stride


def _overlap_checks(trace: Trace, arguments: Mapping[str, TensorType]) -> Iterator[str]:
    """Arguments that are written had memory of their own, unless they shared it when traced."""
    names = {parameter.source: parameter.value.name for parameter in trace.function.parameters}
    written = set(tensors_written(trace.function))
    for first, second in combinations(arguments, 2):
        is_written = bool({names.get(first), names.get(second)} & written)
        if is_written and arguments[first].alias != arguments[second].alias:
            places = [f"{source}.untyped_storage().data_ptr()" for source in (first, second)]
            what = f"{first} and {second} in memory of their own"
            # Empty tensors have no memory, all at the same place.
            test = f"{' != '.join(places)} or {first}.numel() == 0"
            yield f"{REQUIRE}({what!r}, {test}, True)"
