"""What host code does before its loops, for arguments of one form: names, and tensors it makes.

Numbers of the module count as fixed here: whoever uses the steps sees that they are the same.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from typing_extensions import override

from tilesmith.frontend.source.kernel_source import KernelSource, called_name
from tilesmith.jit.fixed_host.folding import HostFolder, NotFixedError
from tilesmith.jit.fixed_host.rewriting import also_called

STEADY = (bool, int, float, str)
"""Numbers and texts: as long as they are the same objects they are the same."""
_MAKERS = {
    "empty": torch.empty, "empty_like": torch.empty, "zeros": torch.zeros,
    "zeros_like": torch.zeros, "ones": torch.ones, "ones_like": torch.ones,
}  # fmt: skip
_KEYWORDS = frozenset({"size", "dtype", "device", "memory_format"})
"""What the form of a tensor tells as well."""


@dataclass(frozen=True)
class Step:
    """A name is bound: to a value that is known, to what another name has, or to a new tensor."""

    name: str
    value: Any
    """The value, or a tensor of the form."""
    node: ast.expr

    @property
    def same_as(self) -> str:
        """The name that has the same tensor; empty where a new one is made."""
        return self.node.id if isinstance(self.node, ast.Name) else ""

    @property
    def is_new(self) -> bool:
        """Whether a tensor is made."""
        return isinstance(self.value, torch.Tensor) and not self.same_as

    @property
    def maker(self) -> tuple[Any, tuple[Any, ...], tuple[str, ...]]:
        """What makes such a tensor: a function, arguments, and names of the last ones."""
        function = _MAKERS.get(called_name(self.node))
        assert isinstance(self.node, ast.Call)
        tensor: torch.Tensor = self.value
        if function is None or any(word.arg not in _KEYWORDS for word in self.node.keywords):
            raise NotFixedError
        given: tuple[Any, ...] = (tuple(tensor.size()),)
        if function is torch.empty:
            # Python finds this one sooner: ``empty`` also takes names of axes.
            function, given = torch.empty_strided, (*given, tensor.stride())
        elif tensor.stride() != tensor.new_empty(tensor.size()).stride():
            raise NotFixedError  # of axes of length one torch keeps any stride
        return function, (*given, tensor.dtype, tensor.device), ("dtype", "device")


class StepFolder(HostFolder):
    """Goes through the statements before the loops, and notes what they bind."""

    def __init__(
        self, source: KernelSource, arguments: Mapping[str, Any], *, is_exact: bool
    ) -> None:
        super().__init__(source, arguments)
        self._is_exact = is_exact
        """Whether calls are recognised by the values of numbers too: keys may lack some of those
        that are specialized, if another branch of host code did it when the kernel was bound."""
        self.watched: dict[str, Any] = {}
        """Values of the module that were taken as they are."""
        self._bound: list[tuple[str, Any]] = []
        given = arguments.keys() - source.names_before.bound.keys()
        self._given = {name: arguments[name] for name in given}

    def assignments(self) -> Iterator[tuple[Step, ...]]:
        """What ``fold`` has found, in order; views that only hand an address on are no views.

        Names of one assignment are bound at once: ``x, y = y, x`` swaps them.
        """
        bound = iter(self._bound)
        for assign in _assignments(self._source.before):
            targets, values = assign.targets[0], assign.value
            is_pair = isinstance(targets, ast.Tuple) and isinstance(values, ast.Tuple)
            nodes = values.elts if is_pair and isinstance(values, ast.Tuple) else [values]
            yield tuple(Step(*next(bound), node) for node in nodes)

    def form_of(self, view: ast.expr) -> torch.Tensor | None:
        """A tensor of the form that a view has after the steps; None where that is not known."""
        return self._example(view)

    @override
    def _assigned(self, target: ast.expr, value: ast.expr) -> ast.stmt:
        made = super()._assigned(target, value)
        names = target.elts if isinstance(target, ast.Tuple) else [target]
        for node in names:
            assert isinstance(node, ast.Name)
            if node.id not in self.known:
                raise NotFixedError  # a number that may change from call to call
            self._bound.append((node.id, self.known[node.id]))
        return made

    @override
    def _unread_views(self, before: list[ast.stmt]) -> dict[str, str]:
        """Forms of tensors are taken from examples: only what comes after the loops reads views."""
        later = also_called(self._source.names_after.read, before)
        once = {name for name, count in self._num_bound.items() if count == 1 and name not in later}
        return {name: base for name, base in self._same.items() if name in once}

    @override
    def _is_fixed(self, node: ast.AST | None) -> bool:
        if super()._is_fixed(node) or (isinstance(node, ast.Name) and self.watch(node.id)):
            return True
        return isinstance(node, ast.Call) and self._is_specialized(node)

    def _is_specialized(self, call: ast.Call) -> bool:
        """Whether it is a number of an argument by which calls are recognised."""
        is_asked_for = called_name(call) == "specialize" and self._is_of_module(call.func)
        if not (self._is_exact and is_asked_for):
            return False
        nodes = [node for item in call.args for node in ast.walk(item)]
        names = {node.id for node in nodes if isinstance(node, ast.Name)}
        kinds = (ast.Name, ast.Attribute, ast.Load)
        are_known = names <= self._given.keys() and not call.keywords
        return are_known and all(isinstance(node, kinds) for node in nodes)

    @override
    def _value(self, node: ast.expr) -> Any:
        if node not in self._values:
            code = compile(ast.fix_missing_locations(ast.Expression(node)), "<host>", "eval")
            self._values[node] = eval(code, self._scope, {**self._given, **self.known})
        return self._values[node]

    def watch(self, name: str) -> bool:
        """Whether a name of the module has a value that can be watched; it is, from now on."""
        value = self._scope.get(name)
        if name in self._local or type(value) not in STEADY:
            return False
        self.watched.setdefault(name, value)
        return True


def _assignments(statements: list[ast.stmt]) -> Iterator[ast.Assign]:
    """Those that run, in order."""
    for statement in statements:
        if isinstance(statement, ast.Assign):
            yield statement
        elif isinstance(statement, ast.If):
            yield from _assignments(statement.body)
