"""The user's functions that host code calls for a trace are not called again by the same call.

A trace needs what ``n = count(x)`` gives, so ``count`` runs when a first call is traced. Host code
then runs as a whole, and takes what was given. Only where that is certainly the same: nothing else
in host code has effects that functions might see, the arguments are as they were, and neither
tensors nor random numbers were changed meanwhile. In doubt the function runs again.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

import torch
from typing_extensions import override

from tilesmith.frontend.containers import items_of, rebuilt
from tilesmith.frontend.source.functionalise import placed
from tilesmith.frontend.source.kernel_source import KernelSource
from tilesmith.frontend.source.names import SCOPES, bound_names, parameter_names
from tilesmith.frontend.source.rewriting.quiet_host import (
    find_effects,
    is_of_language,
    is_speech,
    leave_out,
)
from tilesmith.frontend.source.split_kernel import LAUNCH, SplitKernel, make_function

Call = Callable[..., Any]
Site = tuple[int, int]
"""Line and column of a call."""
_SIMPLE = (bool, int, float, str, type(None), torch.dtype, torch.device)
_KEEPING = (
    *(ast.Assign, ast.AugAssign, ast.AnnAssign, ast.For, ast.While, ast.If, ast.Assert, ast.Pass),
    *(ast.Return, ast.Break, ast.Continue, ast.FunctionDef),
)
"""Statements whose own effects stay in host code, if their targets are its names."""


def trial_host(
    kernel: SplitKernel, arguments: Sequence[Any], *, is_whole: bool = False
) -> FunctionType:
    """Host code for a run that ends at the launch point, by default without visible effects."""
    quiet = None if is_whole else kernel.quiet_host_function(_plain_names(kernel, arguments))
    return quiet or kernel.host_function()


def traced_host(kernel: SplitKernel, arguments: Sequence[Any], *, is_whole: bool) -> FunctionType:
    """The same for a trace: its launch makes calls, where ``recorded_host`` says so."""
    recorded = recorded_host(kernel, None if is_whole else _plain_names(kernel, arguments))
    return recorded or trial_host(kernel, arguments, is_whole=is_whole)


def _plain_names(kernel: SplitKernel, arguments: Sequence[Any]) -> frozenset[str]:
    """Parameters of whose arguments a function can change the elements at most."""
    named = zip(parameter_names(kernel.source.tree), arguments)
    return frozenset(name for name, value in named if isinstance(value, (*_SIMPLE, torch.Tensor)))


def recorded_host(kernel: SplitKernel, plain: frozenset[str] | None = None) -> FunctionType | None:
    """Host code whose launch makes the calls of functions of the user's; None where it has none.

    Also where other statements may change what these functions see. With ``plain`` it is without
    effects, as for a trace.
    """
    codes = kernel.recorded_codes
    if plain not in codes and not _CallMarker(kernel.source).finds_calls():
        codes[plain] = None
    elif plain not in codes:
        codes[plain] = kernel.changed_host_code(lambda source: _mark_calls(source, plain))
    code, scope = codes[plain], kernel.source.function.__globals__
    return None if code is None else make_function(code, kernel.source, scope)


def _mark_calls(source: KernelSource, plain: frozenset[str] | None) -> bool:
    marker = _CallMarker(source)
    if not all(map(marker.is_keeping, source.before)):
        return False
    if plain is not None:
        leave_out(find_effects(source, plain), source)
    source.tree.body[: source.num_before] = [marker.visit(s) for s in source.before]
    return marker.num_marked > 0


class _CallMarker(ast.NodeTransformer):
    def __init__(self, source: KernelSource) -> None:
        self._before = source.before
        self._module: dict[str, Any] = source.function.__globals__
        self._local = {*parameter_names(source.tree), *bound_names(source.before)}
        self.num_marked = 0

    def finds_calls(self) -> bool:
        """Whether there may be something to mark; most kernels have nothing, and pay little."""
        nodes = (node for statement in self._before for node in ast.walk(statement))
        return any(isinstance(n, ast.Call) and _is_users(self._called(n.func)) for n in nodes)

    def is_keeping(self, statement: ast.stmt) -> bool:
        """Whether a statement has no effects but names of host code, and words."""
        if isinstance(statement, ast.Expr):
            value = statement.value
            is_call = isinstance(value, ast.Call)
            return not is_call or is_speech(value, self._module, self._local)
        if not isinstance(statement, _KEEPING):
            return False
        inner = [node for node in ast.iter_child_nodes(statement) if isinstance(node, ast.stmt)]
        places = (ast.Attribute, ast.Subscript)
        stored = [node for node in ast.walk(statement) if isinstance(node, places)]
        is_own = all(isinstance(node.ctx, ast.Load) for node in stored)
        return isinstance(statement, SCOPES) or (is_own and all(map(self.is_keeping, inner)))

    @override
    def visit(self, node: ast.AST) -> Any:
        return node if isinstance(node, SCOPES) else super().visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """The call, made by the launch if it is of a function of the user's."""
        self.generic_visit(node)
        if not _is_users(self._called(node.func)):
            return node
        self.num_marked += 1
        maker = placed(ast.parse(f"{LAUNCH}.call", mode="eval").body, node)
        line_and_column = ast.parse(f"({node.lineno}, {node.col_offset})", mode="eval").body
        site = placed(line_and_column, node)
        return ast.copy_location(
            ast.Call(maker, [site, node.func, *node.args], node.keywords), node
        )

    def _called(self, function: ast.expr) -> Any:
        """What a global name, or one of a module, stands for."""
        if isinstance(function, ast.Attribute):
            owner = self._called(function.value)
            return getattr(owner, function.attr, None) if isinstance(owner, ModuleType) else None
        name = function.id if isinstance(function, ast.Name) else ""
        return None if name in self._local else self._module.get(name)


def _is_users(value: Any) -> bool:
    is_function = isinstance(value, FunctionType) and not value.__module__.startswith("torch")
    return is_function and not is_of_language(value)


@dataclass(frozen=True)
class _Made:
    """One call that was made."""

    function: Any
    given: tuple[Any, ...]
    result: Any

    def fits(self, function: Any, given: tuple[Any, ...]) -> bool:
        """Whether the same call would give the same."""
        pairs = list(zip(self.given, given))
        if function is not self.function or len(self.given) != len(given):
            return False
        is_strict = any(isinstance(leaf, torch.Tensor) for leaf in _leaves(self.result))
        return all(_is_same(old, new, is_strict=is_strict) for old, new in pairs)


class HostCalls:
    """What one call has made of the user's functions, in all its runs of host code."""

    def __init__(self) -> None:
        self._made: dict[Site, list[_Made]] = {}
        self._positions: Counter[Site] = Counter()
        self._is_open = True
        self._has_changed = False

    @property
    def is_waiting(self) -> bool:
        """Whether something was made that the call itself has not come to."""
        return self._is_open and bool(self._made)

    def begin(self) -> None:
        """Host code runs from its beginning."""
        self._positions.clear()

    def close(self) -> None:
        """Everything is called from now on, and nothing kept."""
        self._is_open = False
        self._made.clear()

    def host_of(self, kernel: SplitKernel) -> FunctionType:
        """Host code of the run that comes next."""
        return (self.is_waiting and recorded_host(kernel)) or kernel.host_function()

    def continued(self, kernel: SplitKernel, call: Call, run: Call) -> Call:
        """The call, the first time by ``run(args, host)``, where something was made for it."""
        host = recorded_host(kernel) if self.is_waiting else None
        if host is None:
            return call
        return lambda *args: run(args, host) if self.is_waiting else call(*args)

    def around(self, launch: Callable[..., None]) -> Callable[..., None]:
        """A launch for the run of the call itself: it gives what was made."""

        def launch_again(*values: Any) -> None:
            launch(*values)

        self.begin()
        launch_again.call = self.replay  # type: ignore[attr-defined]
        return launch_again

    def note_change(self) -> None:
        """A tensor is changed in place: whoever did must do so again."""
        self._has_changed = True

    def record(self, site: Site, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a function for a trace, or give what it gave for an earlier attempt."""
        found = self._find(site, function, (*args, *kwargs, *kwargs.values()))
        if found is not None or not self._is_open:
            return found.result if found else function(*args, **kwargs)
        self._has_changed, before = False, _random_states()
        result = function(*args, **kwargs)
        is_plain = all(isinstance(leaf, (*_SIMPLE, torch.Tensor)) for leaf in _leaves(result))
        is_same = not self._has_changed and all(map(torch.equal, before, _random_states()))
        if is_plain and is_same:
            given = (*args, *kwargs, *kwargs.values())
            self._made.setdefault(site, []).append(_Made(function, given, result))
        else:
            self.close()
        return result

    def replay(self, site: Site, function: Any, *args: Any, **kwargs: Any) -> Any:
        """What a function gave for the trace, else what it gives now."""
        found = self._find(site, function, (*args, *kwargs, *kwargs.values()))
        if found is not None:
            return _plain(found.result)
        # From here on functions may see what this one does.
        self.close()
        return function(*args, **kwargs)

    def _find(self, site: Site, function: Any, given: tuple[Any, ...]) -> _Made | None:
        made, position = self._made.get(site, ()), self._positions[site]
        self._positions[site] += 1
        if position >= len(made):
            return None
        if made[position].fits(function, given):
            return made[position]
        self.close()
        return None


def _random_states() -> list[torch.Tensor]:
    """Of torch's generators, which a trace leaves as they were."""
    is_live = torch.cuda.is_available() and torch.cuda.is_initialized()
    return [torch.get_rng_state(), *([torch.cuda.get_rng_state()] if is_live else [])]


def _leaves(value: Any) -> Iterator[Any]:
    items = items_of(value)
    if items is None:
        yield value
    for item in items or ():
        yield from _leaves(item.value)


def _is_same(old: Any, new: Any, *, is_strict: bool) -> bool:
    """Whether a function cannot tell them apart; tensors of one form only if not ``is_strict``."""
    if isinstance(old, torch.Tensor) and isinstance(new, torch.Tensor):
        are_alike = (old.shape, old.stride(), old.dtype) == (new.shape, new.stride(), new.dtype)
        return old is new or (are_alike and not is_strict)
    if isinstance(old, _SIMPLE) and isinstance(new, _SIMPLE):
        return bool(old == new)
    return old is new


def _plain(value: Any) -> Any:
    """Numbers without the marks of a trace."""
    if isinstance(value, (int, float)) and type(value) not in (bool, int, float):
        return int.__int__(value) if isinstance(value, int) else float.__float__(value)
    items = items_of(value)
    return value if not items else rebuilt(value, [_plain(item.value) for item in items])
