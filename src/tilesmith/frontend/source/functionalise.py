"""Rewrites device code so that running it once with proxies traces every loop and branch.

Before::                                  After::

    for t in hl.tile(n):                      def __body_1(__item, acc):
        acc = acc + x[t]                          t = __item
                                                  acc = __ts.named("acc", acc + x[t])
                                                  return (acc,)
                                              (acc,) = __ts.run_for(
                                                  hl.tile(n), __body_1, ("acc",), (acc,), ("t",), {}
                                              )

``if``, ``while``, ``and``/``or``/``not``, ternaries and chained comparisons are treated alike.
Names bound inside come back out; the runtime side (``control_flow.py``) decides what they mean
after a device loop.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Sequence
from typing import TypeVar, cast

from tilesmith.frontend.source.names import bound_names, find_names, read_names

Node = TypeVar("Node", bound=ast.AST)
RUNTIME = "__ts"
REPLACED = frozenset({"associative_scan"})
"""Names of torch functions that device code has forms of its own for."""


def _name(identifier: str) -> ast.Name:
    return ast.Name(identifier, ast.Load())


def _runtime_call(function: str, *args: ast.expr) -> ast.Call:
    return ast.Call(ast.Attribute(_name(RUNTIME), function, ast.Load()), list(args), [])


def _strings(names: Iterable[str]) -> ast.expr:
    return ast.Tuple([ast.Constant(name) for name in names], ast.Load())


def _thunk(body: ast.expr) -> ast.Lambda:
    thunk = cast("ast.Lambda", ast.parse("lambda: 0", mode="eval").body)
    thunk.body = body
    return thunk


def _function(name: str, parameters: Sequence[str], body: list[ast.stmt]) -> ast.FunctionDef:
    # Parsing a template keeps this independent of fields that newer Pythons add to FunctionDef.
    function = cast(
        "ast.FunctionDef", ast.parse(f"def {name}({', '.join(parameters)}): pass").body[0]
    )
    function.body = body
    return function


def place(tree: ast.AST, origin: ast.AST) -> None:
    """Give nodes without a place the first line of ``origin``.

    Python reports a call over several lines at its last one, so made-up calls must not span lines.
    """
    header = origin.iter if isinstance(origin, ast.For) else getattr(origin, "test", origin)
    for part in ast.walk(tree):
        if hasattr(part, "lineno") or "lineno" not in part._attributes:
            continue
        ast.copy_location(part, origin)
        part.end_lineno = origin.lineno  # type: ignore[attr-defined]
        is_one_line = header.end_lineno == origin.lineno  # type: ignore[attr-defined]
        part.end_col_offset = header.end_col_offset if is_one_line else None  # type: ignore[attr-defined]


def placed(tree: Node, origin: ast.AST) -> Node:
    """The tree with all of its nodes at the place of ``origin``."""
    for part in ast.walk(tree):
        ast.copy_location(part, origin)
    return tree


def statement_at(origin: ast.AST, text: str) -> ast.stmt:
    """A statement of our own in the place of one of the user's."""
    return placed(ast.parse(text).body[0], origin)


class Functionaliser(ast.NodeTransformer):
    """One rewriting of a device function's body."""

    def __init__(self, host: Iterable[str], local: Iterable[str] = ()) -> None:
        self._host = frozenset(host)
        self._bound = {*host, *local}
        """Names that have been bound earlier in program order (possibly to the unbound marker)."""
        self._loop_variables: set[str] = set()
        self._counter = 0

    def block(self, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
        """Rewrite a list of statements."""
        result: list[ast.stmt] = []
        parts = [node for statement in statements for node in ast.walk(statement)]
        loops = [node for node in parts if isinstance(node, ast.For)]
        self._loop_variables |= set(bound_names([loop.target for loop in loops]))
        for statement in statements:
            new = self.visit(statement)
            result.extend(new if isinstance(new, list) else [new])
            # The variable of a loop lives in the body's function only.
            inside = [statement] if not isinstance(statement, ast.For) else statement.body
            self._bound |= set(bound_names(inside))
        return result

    def _fresh(self, kind: str) -> str:
        self._counter += 1
        return f"__{kind}_{self._counter}"

    def _changed(self, statements: Sequence[ast.stmt]) -> list[str]:
        """Names that have other values after the statements: bound there, or given other items."""
        found, local = find_names(statements), self._bound - self._host
        return [*found.bound, *(n for n in found.changed if n in local and n not in found.bound)]

    def _others(self, statements: Sequence[ast.stmt], names: Sequence[str]) -> ast.expr:
        """Further device names that the statements read, with their values."""
        local = self._bound - self._host - set(names)
        others = [name for name in read_names(statements) if name in local]
        return ast.Dict([ast.Constant(name) for name in others], [_name(name) for name in others])

    def _state(self, names: Sequence[str]) -> ast.expr:
        """Current values of names, an unbound marker for those not bound yet."""
        values: list[ast.expr] = [
            _name(name) if name in self._bound else self._unbound(name) for name in names
        ]
        return ast.Tuple(values, ast.Load())

    def _unbound(self, name: str) -> ast.expr:
        kind = "loop_variable" if name in self._loop_variables else "Unbound"
        return _runtime_call(kind, ast.Constant(name))

    def _nested(
        self,
        name: str,
        parameters: Sequence[str],
        body: Sequence[ast.stmt],
        returned: Sequence[str],
    ) -> ast.FunctionDef:
        outer = set(self._bound)
        self._bound |= set(returned) | set(parameters)
        statements = self.block(body)
        self._bound = outer
        result = ast.Tuple([_name(n) for n in returned], ast.Load())
        return _function(name, parameters, [*statements, ast.Return(result)])

    def _run(
        self,
        function: str,
        given: Sequence[ast.expr],
        names: Sequence[str],
        inside: Sequence[ast.stmt],
        targets: Sequence[str] | None = None,
    ) -> ast.stmt:
        """Call the runtime side, which gives ``names`` the values that they have afterwards."""
        own = [_strings(names), self._state(names)]
        of_loop = [] if targets is None else [_strings(targets)]
        call = _runtime_call(function, *given, *own, *of_loop, self._others(inside, names))
        if not names:
            return ast.Expr(call)
        target = ast.Tuple([ast.Name(n, ast.Store()) for n in names], ast.Store())
        return ast.Assign([target], call)

    def _at(self, node: ast.AST, *statements: ast.stmt) -> list[ast.stmt]:
        """Give made-up nodes the place of the statement they stem from."""
        for statement in statements:
            if isinstance(statement, ast.FunctionDef):
                ast.copy_location(statement, node)
            place(statement, node)
        return list(statements)

    def visit_For(self, node: ast.For) -> list[ast.stmt]:
        """A loop becomes a body function and a call that runs or unrolls it."""
        targets = list(bound_names([node.target]))
        names = [n for n in self._changed(node.body) if n not in targets]
        body_name = self._fresh("body")
        unpack = ast.Assign(
            [node.target], _runtime_call("unpack", _name("__item"), ast.Constant(len(targets)))
        )
        if isinstance(node.target, ast.Name):
            unpack = ast.Assign([node.target], _name("__item"))
        iterator = self.visit(node.iter)
        outer = set(self._bound)
        self._bound |= set(targets)
        body = self._nested(body_name, ["__item", *names], node.body, names)
        self._bound = outer
        body.body.insert(0, unpack)
        given = (iterator, _name(body_name))
        return self._at(node, body, self._run("run_for", given, names, node.body, targets))

    def visit_If(self, node: ast.If) -> list[ast.stmt]:
        """A branch becomes two functions and a call that runs one or traces both."""
        names = self._changed([*node.body, *node.orelse])
        then_name, else_name = self._fresh("then"), self._fresh("else")
        condition = self.visit(node.test)
        then = self._nested(then_name, names, node.body, names)
        otherwise = self._nested(else_name, names, node.orelse, names)
        given = (condition, _name(then_name), _name(else_name))
        run = self._run("run_if", given, names, [*node.body, *node.orelse])
        return self._at(node, then, otherwise, run)

    def visit_While(self, node: ast.While) -> list[ast.stmt]:
        """A while loop becomes a condition function, a body function and a call."""
        names = self._changed(node.body)
        condition_name, body_name = self._fresh("condition"), self._fresh("body")
        outer = set(self._bound)
        self._bound |= set(names)
        condition = _function(condition_name, names, [ast.Return(self.visit(node.test))])
        self._bound = outer
        body = self._nested(body_name, names, node.body, names)
        given = (_name(condition_name), _name(body_name))
        return self._at(node, condition, body, self._run("run_while", given, names, node.body))

    def visit_Assert(self, node: ast.Assert) -> list[ast.stmt]:
        """An assertion of what is known when compiling is checked then."""
        self.generic_visit(node)
        message = _thunk(node.msg or ast.Constant(""))
        return self._at(node, ast.Expr(_runtime_call("run_assert", node.test, message)))

    def visit_Assign(self, node: ast.Assign) -> list[ast.stmt]:
        """Assignments hand their name to the value: it names the variable in generated code."""
        self.generic_visit(node)
        names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        if names:
            node.value = _runtime_call("named", ast.Constant(names[0]), node.value)
        return self._at(node, node)

    def visit_AugAssign(self, node: ast.AugAssign) -> list[ast.stmt]:
        """As assignments; the rebinding itself is Python's."""
        self.generic_visit(node)
        if not isinstance(node.target, ast.Name):
            return [node]
        naming = ast.Expr(
            _runtime_call("named", ast.Constant(node.target.id), _name(node.target.id))
        )
        return self._at(node, node, naming)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        """``and``/``or`` fold static operands in any position and combine symbolic ones."""
        self.generic_visit(node)
        name = "all_of" if isinstance(node.op, ast.And) else "any_of"
        return self._expression(node, _runtime_call(name, *map(_thunk, node.values)))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        """``not`` of a symbolic scalar is a scalar."""
        self.generic_visit(node)
        if not isinstance(node.op, ast.Not):
            return node
        return self._expression(node, _runtime_call("negate", node.operand))

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        """A ternary runs one arm when static, selects between both when symbolic."""
        self.generic_visit(node)
        call = _runtime_call("choose", node.test, _thunk(node.body), _thunk(node.orelse))
        return self._expression(node, call)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """``a < b < c`` is ``a < b and b < c`` with ``b`` evaluated once."""
        self.generic_visit(node)
        if len(node.ops) == 1:
            return node
        operands = [node.left, *node.comparators]
        kinds = _strings(type(op).__name__ for op in node.ops)
        return self._expression(node, _runtime_call("compare_chain", kinds, *operands))

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """A function of torch that does not see proxies is replaced by the one that does."""
        self.generic_visit(node)
        if node.attr not in REPLACED or not isinstance(node.ctx, ast.Load):
            return node
        return self._expression(node, _runtime_call("replaced", node))

    def _expression(self, node: ast.expr, call: ast.expr) -> ast.expr:
        place(call, node)
        return call


UPDATED = "updated"
"""What the runtime side of device code calls the result of an in-place method."""


def rebind_updated_names(
    statements: Sequence[ast.stmt], local: Collection[str], runtime: str
) -> list[ast.stmt]:
    """The statements, with a binding where an item or one of ``local`` is updated in place."""
    return [_Rebinding(local, runtime).visit(statement) for statement in statements]


class _Rebinding(ast.NodeTransformer):
    def __init__(self, local: Collection[str], runtime: str) -> None:
        self._local, self._runtime = local, runtime

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        """``a.add_(1)`` as a statement."""
        target = self._updated(node.value)
        return node if target is None else self._assign([], target, node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        """``b = a.add_(1)`` binds ``a`` too."""
        target = self._updated(node.value)
        return node if target is None else self._assign(node.targets, target, node)

    def _updated(self, value: ast.expr) -> str | None:
        """The name or item that in-place methods update."""
        root, methods = value, 0
        while isinstance(root, ast.Call) and isinstance(root.func, ast.Attribute):
            if not root.func.attr.endswith("_") or root.func.attr.endswith("__"):
                return None
            root, methods = root.func.value, methods + 1
        is_local = isinstance(root, ast.Name) and root.id in self._local
        is_updated = is_local or isinstance(root, ast.Subscript)
        return ast.unparse(root) if methods and is_updated else None

    def _assign(
        self, targets: list[ast.expr], target: str, node: ast.Expr | ast.Assign
    ) -> ast.Assign:
        made = statement_at(node, f"{target} = {self._runtime}.{UPDATED}({target}, 0)")
        assert isinstance(made, ast.Assign)
        assert isinstance(made.value, ast.Call)
        made.value.args[1] = node.value
        made.targets = [*targets, *made.targets]
        return made
