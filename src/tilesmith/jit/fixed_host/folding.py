"""Host code with everything worked out that follows from the forms of its arguments alone.

Where sizes are part of a kernel's key, ``x.size(0)``, ``torch.promote_types(x.dtype, y.dtype)`` and
the like have one value in all calls, and what factories make one form. Allocations stay: they are
calls of torch as the user wrote them, with constants in the place of expressions.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from typing_extensions import override

from tilesmith.frontend.source.kernel_source import KernelSource, called_name
from tilesmith.frontend.source.names import parameter_names
from tilesmith.frontend.source.split_kernel import LAUNCH
from tilesmith.jit.fixed_host.rewriting import loaded_names, skip_views, written_out

FIXED_TYPES = (type(None), bool, str, torch.dtype, torch.Tensor, torch.nn.Parameter)
"""Arguments of these types count by value, tensors by form."""
_ATTRIBUTES = frozenset({"device", "dtype", "itemsize", "ndim", "shape"})
_METHODS = frozenset({"dim", "element_size", "is_contiguous", "numel", "size", "stride"})
_FUNCTIONS = frozenset({"cdiv", "next_power_of_2", "promote_types", "register_block_size",
                        "specialize", "sqrt"})  # fmt: skip
_PLAIN = frozenset({"float", "int", "len", "max", "min"})
_MAKING = frozenset({"empty", "full", "ones", "zeros"})
_LIKE = frozenset({"empty_like", "full_like", "ones_like", "zeros_like"})
_VIEWS = frozenset({"contiguous", "reshape", "transpose", "view"})
_MODULES = frozenset({"torch", "tilesmith", "math"})
_OPERATIONS = (ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.IfExp, ast.Tuple, ast.Subscript,
               ast.Slice)  # fmt: skip
_CONSTANTS = (type(None), bool, int, float, str)


class NotFixedError(Exception):
    """Host code has something that is not worked out ahead."""


class KnownForms:
    """What follows from the forms of arguments, and from what was bound since."""

    def __init__(self, source: KernelSource, arguments: Mapping[str, Any]) -> None:
        self._source = source
        self._scope: dict[str, Any] = source.function.__globals__
        self._local = {*parameter_names(source.tree), *source.names_before.bound}
        self.known = {n: x for n, x in arguments.items() if type(x) in FIXED_TYPES}
        """Values by name, and examples of tensors whose form is fixed."""
        self._values: dict[ast.expr, Any] = {}
        """Of expressions: a block size is registered once."""

    def _value(self, node: ast.expr) -> Any:
        if node not in self._values:
            code = compile(ast.fix_missing_locations(ast.Expression(node)), "<host>", "eval")
            self._values[node] = eval(code, self._scope, self.known)
        return self._values[node]

    def _is_fixed(self, node: ast.AST | None) -> bool:
        """Whether an expression is a number, type or the like that follows from the forms."""
        if node is None or isinstance(node, ast.Constant):
            return True
        if isinstance(node, ast.Name):
            return node.id in self.known and not isinstance(self.known[node.id], torch.Tensor)
        if isinstance(node, ast.Attribute):
            if node.attr in _ATTRIBUTES and isinstance(node.value, ast.Name):
                return isinstance(self.known.get(node.value.id), torch.Tensor)
            return self._is_of_module(node) and isinstance(self._value(node), torch.dtype)
        if isinstance(node, ast.Call):
            return self._is_fixed_call(node)
        if isinstance(node, _OPERATIONS):
            inner = [item for item in ast.iter_child_nodes(node) if isinstance(item, ast.expr)]
            return all(map(self._is_fixed, inner))
        return False

    def _is_fixed_call(self, call: ast.Call) -> bool:
        function = call.func
        if not all(map(self._is_fixed, _given(call))):
            return False
        if isinstance(function, ast.Name):
            own = function.id in self._local or function.id in self._scope
            return function.id in _PLAIN and not own
        if not isinstance(function, ast.Attribute):
            return False
        if function.attr in _METHODS and isinstance(function.value, ast.Name):
            return isinstance(self.known.get(function.value.id), torch.Tensor)
        return function.attr in _FUNCTIONS and self._is_of_module(function)

    def _is_of_module(self, function: ast.expr) -> bool:
        """Whether it is an attribute of torch or of the language, by a name of the module."""
        root = function
        while isinstance(root, ast.Attribute):
            root = root.value
        if not isinstance(root, ast.Name) or root.id in self._local:
            return False
        name = str(getattr(self._scope.get(root.id), "__name__", ""))
        return name.partition(".")[0] in _MODULES

    def _example(self, node: ast.expr) -> torch.Tensor | None:
        """A tensor of the form that an expression always makes; None where that is not known."""
        if isinstance(node, ast.Name):
            found = self.known.get(node.id)
            return found if isinstance(found, torch.Tensor) else None
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            return None
        name, given = called_name(node), list(_given(node))
        if name in _VIEWS and self._example(node.func.value) is not None:
            is_fixed = all(map(self._is_size, given))
        elif self._is_of_module(node.func) and name in _LIKE | _MAKING:
            rest = given[1:] if name in _LIKE else given
            typed = name in _LIKE or any(map(self._names_type, node.keywords))
            like = name in _MAKING or (bool(given) and self._example(given[0]) is not None)
            is_fixed = typed and like and all(map(self._is_size, rest))
        else:
            return None
        return self._value(node) if is_fixed else None

    def _names_type(self, keyword: ast.keyword) -> bool:
        """Whether it says which type a tensor has; None means torch's default, which may change."""
        is_type = keyword.arg == "dtype" and self._is_fixed(keyword.value)
        return is_type and self._value(keyword.value) is not None

    def _is_size(self, node: ast.expr) -> bool:
        if isinstance(node, ast.List):
            return all(map(self._is_size, node.elts))
        return self._is_fixed(node.value if isinstance(node, ast.Starred) else node)


class HostFolder(KnownForms, ast.NodeTransformer):
    """Goes through the statements before the loops in order, for arguments of one form."""

    def __init__(
        self, source: KernelSource, arguments: Mapping[str, Any], *, keeps_views: bool = False
    ) -> None:
        super().__init__(source, arguments)
        self._keeps_views = keeps_views
        """Whether the launch asks views for their sizes too, not only for their address."""
        bound = source.names_before.bound
        self._numbers = {name: x for name, x in arguments.items() if name not in bound}
        self.constants: dict[str, Any] = {}
        """By the attributes of the launch that hold them."""
        self._same: dict[str, str] = {}
        """Names of views by that of the tensor at the same address."""
        self._num_bound = Counter[str]()

    def fold(self) -> None:
        """Change the source; NotFixedError where something is left that may do anything."""
        before = [self._folded(statement) for statement in self._source.before]
        if not self._keeps_views:
            skip_views(before, self._unread_views(before))
        self._source.tree.body[: self._source.num_before] = before

    def _unread_views(self, before: list[ast.stmt]) -> dict[str, str]:
        read = {*loaded_names(before), *self._source.names_after.read}
        once = {name for name, count in self._num_bound.items() if count == 1} - read
        return {name: base for name, base in self._same.items() if name in once}

    def _folded(self, statement: ast.stmt) -> ast.stmt:
        if isinstance(statement, ast.If) and self._is_fixed(statement.test):
            arms = (statement.body, statement.orelse)
            taken, other = arms if self._value(statement.test) else arms[::-1]
            body: list[ast.stmt] = [self._folded(inner) for inner in taken] or [ast.Pass()]
            # Names that only the other one binds stay local: they are not those of the module.
            made: ast.stmt = ast.If(ast.Constant(value=True), body, other)
        elif isinstance(statement, ast.Assert) and self._is_fixed(statement.test):
            if not self._value(statement.test):
                raise NotFixedError
            made = ast.Pass()
        elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            made = self._assigned(statement.targets[0], statement.value)
        elif isinstance(statement, ast.Pass) or self._says_nothing(statement):
            made = ast.Pass()
        else:
            raise NotFixedError
        return ast.fix_missing_locations(ast.copy_location(made, statement))

    def _says_nothing(self, statement: ast.stmt) -> bool:
        """Whether it is a text, or a number that is asked for, as in ``hl.specialize(n)``."""
        if not isinstance(statement, ast.Expr) or not self._is_fixed(statement.value):
            return False
        self._value(statement.value)  # what it raises, the call raises too
        return True

    def _assigned(self, target: ast.expr, value: ast.expr) -> ast.stmt:
        names = _names_in(target)
        value = written_out(value) if isinstance(target, ast.Tuple) else value
        if isinstance(target, ast.Name) and self._is_open_number(value):
            self.known.pop(target.id, None)
            self._num_bound[target.id] += 1
            return ast.Assign([target], self.visit(value))
        if isinstance(target, ast.Name):
            found = [self._found(value)]
            made = self.visit(value)
        elif isinstance(value, ast.Tuple) and len(value.elts) == len(names):
            # All of them before any name is bound.
            found = [self._found(item) for item in value.elts]
            made = ast.Tuple([self.visit(item) for item in value.elts], ast.Load())
        elif self._is_fixed(value) and len(values := tuple(self._value(value))) == len(names):
            made = ast.Tuple([self._constant(item) for item in values], ast.Load())
            found = [(item, "") for item in values]
        elif self._is_broadcast(value) and isinstance(value, ast.Call):
            made = ast.Tuple(list(value.args), ast.Load())
            found = [self._found(item) for item in value.args]
        else:
            raise NotFixedError
        for name, (example, same) in zip(names, found):
            self.known[name] = example
            self._num_bound[name] += 1
            if same:
                self._same[name] = same
        return ast.Assign([target], made)

    def _is_open_number(self, node: ast.AST) -> bool:
        """Whether it is computed from numbers of which one may change from call to call."""
        if self._is_fixed(node):
            return False
        if isinstance(node, ast.Name):
            given = self._numbers if node.id in self._local else self._scope
            return type(given.get(node.id)) in (int, float)
        inner = [item for item in ast.iter_child_nodes(node) if isinstance(item, ast.expr)]
        is_operation = isinstance(node, (ast.BinOp, ast.UnaryOp))
        return is_operation and all(self._is_fixed(x) or self._is_open_number(x) for x in inner)

    def _is_broadcast(self, value: ast.expr) -> bool:
        """Whether tensors of one shape are made alike, and nobody sees which object they are."""
        if not isinstance(value, ast.Call) or called_name(value) != "broadcast_tensors":
            return False
        if value.keywords or not self._is_of_module(value.func):
            return False
        shapes = {getattr(self._example(item), "shape", None) for item in value.args}
        names = {item.id for item in value.args if isinstance(item, ast.Name)}
        is_seen = names & set(self._source.names_after.read)
        return len(shapes) == 1 and None not in shapes and not is_seen

    def _found(self, value: ast.expr) -> tuple[Any, str]:
        """What a name is bound to, and the name of a tensor at the same address."""
        if self._is_fixed(value):
            return self._value(value), ""
        example = self._example(value)
        if example is None:
            raise NotFixedError
        base = self._viewed(value)
        viewed = self.known.get(base or "")
        is_view = isinstance(viewed, torch.Tensor) and viewed.data_ptr() == example.data_ptr()
        return example, (base if base and is_view else "")

    def _viewed(self, value: ast.expr) -> str | None:
        if not isinstance(value, ast.Call) or called_name(value) not in _VIEWS:
            return None
        owner: ast.expr = value
        while isinstance(owner, (ast.Call, ast.Attribute)):
            owner = owner.func if isinstance(owner, ast.Call) else owner.value
        return owner.id if isinstance(owner, ast.Name) and owner.id in self.known else None

    @override
    def visit(self, node: ast.AST) -> Any:
        if not isinstance(node, ast.expr) or isinstance(node, ast.Constant):
            return self.generic_visit(node)
        if not self._is_fixed(node):
            return self.generic_visit(node)
        return ast.copy_location(self._constant(self._value(node)), node)

    def _constant(self, value: Any) -> ast.expr:
        if type(value) in _CONSTANTS:
            return ast.Constant(value=value)
        name = f"fixed{len(self.constants)}"
        self.constants[name] = value
        return ast.Attribute(ast.Name(LAUNCH, ast.Load()), name, ast.Load())


def _given(call: ast.Call) -> Iterator[ast.expr]:
    yield from call.args
    yield from (keyword.value for keyword in call.keywords)


def _names_in(target: ast.expr) -> list[str]:
    items = target.elts if isinstance(target, ast.Tuple) else [target]
    names = [item.id for item in items if isinstance(item, ast.Name)]
    if len(names) != len(items):
        raise NotFixedError
    return names
