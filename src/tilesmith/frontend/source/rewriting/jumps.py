"""Rewrites ``break``, ``continue`` and early ``return`` as branches, which tracing understands.

Before::                                  After::

    for i in range(n):                        __stopped_1 = False
        if x[i] < 0:                          for i in __ts.until("__stopped_1", range(n)):
            break                                 if not __stopped_1:
        total = total + x[i]                          if x[i] < 0:
                                                          __stopped_1 = True
                                                      else:
                                                          total = total + x[i]

What follows a branch that jumps goes into the arm that does not. Where both arms may go on, a flag
says whether to: ``__skipped_1`` for the rest of a turn, ``__returned_1`` for the rest of a helper.
Loops that know how to end early look at their flag (``until``); in all others it skips the turns.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from tilesmith.frontend.source.functionalise import place
from tilesmith.frontend.source.names import LOOPS, own_nodes

RESULT = "__result"
"""What a helper returns, where it has several ``return`` statements."""


def without_jumps(statements: Sequence[ast.stmt], runtime: str) -> list[ast.stmt]:
    """The statements of a kernel (changed in place); ``runtime`` is what rewritten code calls."""
    return _Jumps(runtime).block(list(statements), _Target())


def without_early_returns(body: Sequence[ast.stmt], runtime: str) -> list[ast.stmt]:
    """The body of a helper (changed in place) with one ``return``, at its end."""
    statements = list(body)
    returns = [node for node in own_nodes(statements) if isinstance(node, ast.Return)]
    jumps = _Jumps(runtime)
    if not returns or (len(returns) == 1 and statements[-1] is returns[0]):
        return jumps.block(statements, _Target())
    flag = "__returned_1"
    rewritten = jumps.block(statements, _Target(returned=flag))
    ending = ast.Return(ast.Name(RESULT, ast.Load()))
    place(ending, statements[-1])
    starts = (_assignment(RESULT, None, statements[0]), _assignment(flag, False, statements[0]))
    return [*starts, *rewritten, ending]


@dataclass(frozen=True)
class _Target:
    """Where jumps lead: the flags that they set."""

    skipped: str = ""
    """Rest of the turn; "" outside of loops."""
    stopped: str = ""
    """All further turns of the innermost loop."""
    returned: str = ""
    """Rest of the function; "" where a ``return`` stays as it is."""

    def flags_of(self, statement: ast.stmt) -> tuple[str, ...]:
        """What to set in place of a jump."""
        if isinstance(statement, ast.Return):
            return tuple(filter(None, (self.returned, self.stopped, self.skipped)))
        if isinstance(statement, ast.Break):
            return (self.stopped, self.skipped)
        return (self.skipped,)

    def is_jump(self, node: ast.AST) -> bool:
        """Whether a statement jumps to this target."""
        if isinstance(node, ast.Return):
            return bool(self.returned)
        return isinstance(node, (ast.Break, ast.Continue)) and bool(self.skipped)


class _Jumps:
    """One rewriting; flags are numbered in the order of their loops."""

    def __init__(self, runtime: str) -> None:
        self._runtime = runtime
        self._loops = 0

    def block(self, statements: list[ast.stmt], target: _Target) -> list[ast.stmt]:
        """Rewrite statements; what cannot be reached any more is left out."""
        result: list[ast.stmt] = []
        for position, statement in enumerate(statements):
            if target.is_jump(statement):
                return [*result, *self._jump(statement, target)]
            returns = isinstance(statement, LOOPS) and self._may_return(statement, target)
            if isinstance(statement, LOOPS):
                result.extend(self._loop(statement, target))
            elif isinstance(statement, ast.If):
                if self._may_jump([statement], target):
                    rest = statements[position + 1 :]
                    return [*result, *self._branch(statement, rest, target)]
                statement.body = self.block(statement.body, target)
                statement.orelse = self.block(statement.orelse, target)
                result.append(statement)
            else:
                result.append(statement)
            if returns:
                rest = self.block(statements[position + 1 :], target)
                return [*result, *_unless(target.returned, rest, statement)]
        return result

    def _jump(self, statement: ast.stmt, target: _Target) -> list[ast.stmt]:
        set_flags = [_assignment(flag, True, statement) for flag in target.flags_of(statement)]
        if isinstance(statement, ast.Return):
            set_flags.insert(0, _assignment(RESULT, statement.value, statement))
        return set_flags

    def _branch(self, branch: ast.If, rest: list[ast.stmt], target: _Target) -> list[ast.stmt]:
        """A branch with a jump in it, and what follows."""
        arms = (branch.body, branch.orelse)
        ends = [self._always_jumps(arm, target) for arm in arms]
        if any(ends) or not rest:
            # An arm that never goes on needs no rest: it can stand in the other one.
            branch.body, branch.orelse = (
                self.block([*arm] if end else [*arm, *rest], target) for arm, end in zip(arms, ends)
            )
            return [branch]
        branch.body, branch.orelse = (self.block(arm, target) for arm in arms)
        flag = target.skipped or target.returned
        return [branch, *_unless(flag, self.block(rest, target), branch)]

    def _loop(self, loop: ast.For | ast.While, target: _Target) -> list[ast.stmt]:
        own = own_nodes(loop.body, LOOPS)
        jumps = [node for node in own if isinstance(node, (ast.Break, ast.Continue))]
        returns = self._may_return(loop, target)
        if not jumps and not returns:
            loop.body = self.block(loop.body, _Target(returned=target.returned))
            return [loop]
        self._loops += 1
        number = self._loops
        stops = returns or any(isinstance(node, ast.Break) for node in jumps)
        inner = _Target(
            skipped=f"__skipped_{number}",
            stopped=f"__stopped_{number}" if stops else "",
            returned=target.returned,
        )
        body = [_assignment(inner.skipped, False, loop), *self.block(loop.body, inner)]
        if not _reads(body, inner.skipped):
            body = _Discarding(inner.skipped).block(body) or [_pass(loop)]
        if not stops:
            loop.body = body
            return [loop]
        self._stop_early(loop, body, inner.stopped)
        return [_assignment(inner.stopped, False, loop), loop]

    def _stop_early(self, loop: ast.For | ast.While, body: list[ast.stmt], flag: str) -> None:
        if isinstance(loop, ast.For):
            until = ast.Attribute(ast.Name(self._runtime, ast.Load()), "until", ast.Load())
            iterator = ast.Call(until, [ast.Constant(flag), loop.iter], [])
            place(iterator, loop.iter)
            loop.iter, loop.body = iterator, _unless(flag, body, loop)
            return
        # After a `break` Python does not look at the condition again: it may read past an end.
        branch = ast.If(loop.test, body, [_assignment(flag, True, loop)])
        again = ast.UnaryOp(ast.Not(), ast.Name(flag, ast.Load()))
        place(again, loop.test)
        place(branch, loop)
        loop.test, loop.body = again, [branch]

    def _may_jump(self, statements: Sequence[ast.stmt], target: _Target) -> bool:
        own = own_nodes(statements, LOOPS)
        inside_loops = own_nodes(statements) if target.returned else ()
        return any(target.is_jump(node) for node in own) or any(
            isinstance(node, ast.Return) for node in inside_loops
        )

    def _may_return(self, loop: ast.stmt, target: _Target) -> bool:
        return bool(target.returned) and any(
            isinstance(node, ast.Return) for node in own_nodes([loop])
        )

    def _always_jumps(self, statements: Sequence[ast.stmt], target: _Target) -> bool:
        for statement in statements:
            if target.is_jump(statement):
                return True
            if isinstance(statement, ast.If) and all(
                self._always_jumps(arm, target) for arm in (statement.body, statement.orelse)
            ):
                return True
        return False


class _Discarding(ast.NodeTransformer):
    """Leaves out assignments to a flag that nothing reads."""

    def __init__(self, name: str) -> None:
        self._name = name

    def block(self, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
        visited = (self.visit(statement) for statement in statements)
        return [statement for statement in visited if statement is not None]

    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:
        names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        return None if names == [self._name] else node

    def visit_If(self, node: ast.If) -> ast.AST:
        node.body = self.block(node.body) or [_pass(node)]
        node.orelse = self.block(node.orelse)
        return node


def _reads(statements: Sequence[ast.stmt], name: str) -> bool:
    nodes = (node for statement in statements for node in ast.walk(statement))
    return any(
        isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
        for node in nodes
    )


def _unless(flag: str, statements: list[ast.stmt], origin: ast.stmt) -> list[ast.stmt]:
    if not statements:
        return []
    branch = ast.If(ast.UnaryOp(ast.Not(), ast.Name(flag, ast.Load())), statements, [])
    place(branch, origin)
    return [branch]


def _assignment(name: str, value: ast.expr | bool | None, origin: ast.stmt) -> ast.stmt:
    expression = value if isinstance(value, ast.expr) else ast.Constant(value)
    assignment = ast.Assign([ast.Name(name, ast.Store())], expression)
    place(assignment, origin)
    return assignment


def _pass(origin: ast.stmt) -> ast.stmt:
    return ast.copy_location(ast.Pass(), origin)
