"""Kernels of several launches: host code around and between runs of adjacent device loops.

Each run is one stage: a kernel of its own, whose parameters are the host variables that its loops
use. Host code calls it where the loops stood, so anything Python can say decides how often.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from types import CodeType, FunctionType
from typing import Any

from typing_extensions import override

import tilesmith.exc as errors
from tilesmith.frontend.source.functionalise import statement_at
from tilesmith.frontend.source.kernel_source import (
    KernelSource,
    is_barrier,
    is_barrier_statement,
    is_device_loop,
    is_language_call,
    parse_text,
    refuse_nested_loops,
    without_reversed,
)
from tilesmith.frontend.source.names import (
    LOOPS,
    SCOPES,
    bound_names,
    declared_globals,
    definitely_bound,
    read_names,
)
from tilesmith.frontend.source.split_kernel import (
    LAUNCH,
    compile_function,
    make_function,
    on_device,
)

_BLOCKS = ("body", "orelse", "finalbody")


@dataclass(frozen=True, eq=False)
class StageSource(KernelSource):
    """One run of device loops as a function of the host variables that it uses."""

    @override
    def fresh(self) -> KernelSource:
        """The same with a tree of its own."""
        return replace(self, tree=deepcopy(self.tree))

    @property
    @override
    def name(self) -> str:
        """The kernel's name, as users know it; the stages of one kernel share it."""
        return self.function.__name__

    @property
    def line(self) -> int:
        """Where the run begins."""
        return self.tree.body[0].lineno

    @property
    def num_blocks(self) -> int:
        """How many block sizes its loops take from a config, as far as the text tells."""
        loops = [node for node in ast.walk(self.tree) if isinstance(node, ast.For)]
        return sum(_num_blocks(loop, self.function) for loop in loops)


@dataclass(frozen=True, eq=False)
class StagedSource:
    """A kernel whose device loops are several launches, or stand inside host statements."""

    source: KernelSource
    """The whole function. It has no statements ``before``, ``loops`` and ``after``."""
    stages: tuple[StageSource, ...]
    host_code: CodeType

    def host_function(self) -> FunctionType:
        """Host code as ``f(launch, *arguments)``; ``launch.stages[i]`` is called for stage i."""
        return make_function(self.host_code, self.source, self.source.function.__globals__)


@dataclass(frozen=True)
class Run:
    """Adjacent device loops, and the outermost host loop around them."""

    statements: list[ast.stmt]
    around: ast.stmt | None


Replace = Callable[[Run], list[ast.stmt]]


def find_stages(source: KernelSource) -> StagedSource | None:
    """The stages of a kernel; None for one whose device loops are a single launch."""
    body = source.tree.body
    runs = _runs(body, source.function)
    if not runs or (len(runs) == 1 and any(s is runs[0].statements[0] for s in body)):
        return None
    tree = parse_text(source.text, source.function, is_unrolled=False)
    return _make_stages(replace(source, tree=tree))


def _runs(statements: Sequence[ast.stmt], function: Callable[..., Any]) -> list[Run]:
    found: list[Run] = []

    def note(run: Run) -> list[ast.stmt]:
        found.append(run)
        return run.statements

    replace_runs(list(statements), function, note)
    return found


def replace_runs(
    statements: list[ast.stmt],
    function: Callable[..., Any],
    replace_run: Replace,
    around: ast.stmt | None = None,
) -> list[ast.stmt]:
    """The statements, changed in place, with something else where runs of device loops stood."""
    result: list[ast.stmt] = []
    position = 0
    while position < len(statements):
        length = _run_length(statements[position:], function)
        if length:
            result += replace_run(Run(statements[position : position + length], around))
        else:
            statement = statements[position]
            outermost = statement if around is None and isinstance(statement, LOOPS) else around
            _replace_inside(statement, function, replace_run, outermost)
            result.append(statement)
        position += length or 1
    return result


def _replace_inside(
    statement: ast.AST, function: Callable[..., Any], replace_run: Replace, around: ast.stmt | None
) -> None:
    if isinstance(statement, SCOPES):
        return
    for name in _BLOCKS:
        block = getattr(statement, name, None)
        if isinstance(block, list) and block:
            setattr(statement, name, replace_runs(block, function, replace_run, around))
    for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        _replace_inside(part, function, replace_run, around)


def _run_length(statements: Sequence[ast.stmt], function: Callable[..., Any]) -> int:
    """How many statements from here are device loops, and barriers between two of them."""
    length = 0
    for count, statement in enumerate(statements, 1):
        if is_device_loop(statement, function):
            length = count
        elif not (length and is_barrier_statement(statement, function)):
            break
    return length


def _make_stages(source: KernelSource) -> StagedSource:
    host = _without_runs(source)
    refuse_nested_loops(host, source.function)
    for node in (part for statement in host for part in ast.walk(statement)):
        if is_barrier(node, source.function):
            raise errors.BarrierOnlyAllowedAtTopLevel(loc=source.location(node))
    bound = bound_names(host)
    stages: list[StageSource] = []
    used: list[str] = []

    def call_stage(run: Run) -> list[ast.stmt]:
        names = _parameters(run, source, bound)
        text = f"{LAUNCH}.stages[{len(stages)}]({', '.join(names)})"
        call = statement_at(run.statements[0], text)
        stages.append(_stage(run, source, names, frozenset(bound), len(stages)))
        used.extend(names)
        return [call]

    tree = parse_text(source.text, source.function, is_unrolled=False)
    tree.body = replace_runs(tree.body, source.function, call_stage)
    _check_reads(host, bound, stages, source)
    arguments = {arg.arg for arg in tree.args.args}
    before = [statement for statement in host if statement.lineno < stages[0].line]
    known = arguments | definitely_bound(before) | declared_globals(host)
    # As for kernels of one launch: a name that no branch has bound yet must not stop a launch.
    unsure = [name for name in dict.fromkeys(used) if name not in known]
    defaults = [statement_at(tree, f"{name} = None") for name in unsure]
    filled = on_device(tree.body, source.function.__globals__, f"{LAUNCH}.device")
    code = compile_function(tree, [*defaults, *filled], source)
    return StagedSource(source, tuple(stages), code)


def _num_blocks(loop: ast.For, function: Callable[..., Any]) -> int:
    iterator = without_reversed(loop.iter)
    if not is_language_call(iterator, ("tile", "jagged_tile"), function):
        return 0
    assert isinstance(iterator, ast.Call)
    if any(keyword.arg == "block_size" for keyword in iterator.keywords):
        return 0
    extents = [*iterator.args, *(keyword.value for keyword in iterator.keywords)][:1]
    lists = [part for part in (loop.target, *extents) if isinstance(part, (ast.Tuple, ast.List))]
    return len(lists[0].elts) if lists else 1


def _without_runs(source: KernelSource) -> list[ast.stmt]:
    """Host code with ``pass`` for each run."""
    tree = parse_text(source.text, source.function, is_unrolled=False)
    return replace_runs(
        tree.body, source.function, lambda run: [ast.copy_location(ast.Pass(), run.statements[0])]
    )


def _parameters(run: Run, source: KernelSource, bound: dict[str, ast.AST]) -> list[str]:
    """Host names that the run uses and that may be bound when it begins."""
    start = run.statements[0].lineno
    # What a host loop binds below the run is bound in its next turn.
    end = (run.around.end_lineno or start) if run.around is not None else start
    arguments = [arg.arg for arg in source.tree.args.args]
    seen = [name for name, place in bound.items() if getattr(place, "lineno", 0) <= end]
    wanted = {*read_names(run.statements), *bound_names(run.statements)}
    return [name for name in dict.fromkeys([*arguments, *seen]) if name in wanted - {"_"}]


def _stage(
    run: Run, source: KernelSource, names: list[str], bound: frozenset[str], number: int
) -> StageSource:
    name = f"{source.tree.name}_{number + 1}"
    text = f"def {name}({', '.join(names)}): pass"
    tree = statement_at(source.tree, text)
    assert isinstance(tree, ast.FunctionDef)
    tree.body = run.statements
    scope: dict[str, Any] = {}
    exec(compile(text, source.file, "exec"), scope)
    line = source.function.__code__.co_firstlineno
    code = scope[name].__code__.replace(co_firstlineno=line, co_name=source.tree.name)
    function = FunctionType(code, source.function.__globals__, source.function.__name__)
    function.__module__ = source.function.__module__
    computed = bound & set(names)
    return StageSource(function, source.text, tree, 0, len(run.statements), computed)


def _check_reads(
    host: Sequence[ast.stmt],
    bound: dict[str, ast.AST],
    stages: Sequence[StageSource],
    source: KernelSource,
) -> None:
    """Device values are not there for host code."""
    known = {*bound, *(arg.arg for arg in source.tree.args.args)}
    device = {name for stage in stages for name in bound_names(stage.loops)}
    for name, place in read_names(host).items():
        if name in device and name not in known:
            raise errors.CannotReadDeviceVariableOnHost(name=name, loc=source.location(place))
