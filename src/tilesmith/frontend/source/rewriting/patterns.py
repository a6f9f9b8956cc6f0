"""Rewrites ``match`` as branches: values, constants, alternatives, names, sequences and guards.

The subject is computed once. Other patterns (classes, mappings, stars) are refused with their
place.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy

from tilesmith.exc import BaseError
from tilesmith.frontend.source.functionalise import place

Refuse = Callable[[ast.AST], BaseError]


def without_match(statements: Sequence[ast.stmt], refuse: Refuse) -> list[ast.stmt]:
    """The statements (changed in place); ``refuse`` makes the error for a pattern."""
    rewriting = _Patterns(refuse)
    return [item for statement in statements for item in rewriting.rewrite(statement)]


class _Patterns(ast.NodeTransformer):
    def __init__(self, refuse: Refuse) -> None:
        self._refuse = refuse
        self._subjects = 0

    def rewrite(self, statement: ast.stmt) -> list[ast.stmt]:
        result = self.visit(statement)
        return result if isinstance(result, list) else [result]

    def visit_Match(self, node: ast.Match) -> list[ast.stmt]:
        """A chain of branches on one subject."""
        self.generic_visit(node)
        self._subjects += 1
        subject = f"__subject_{self._subjects}"
        chain: list[ast.stmt] = []
        for case in reversed(node.cases):
            chain = self._case(case, subject, chain, node)
        first = ast.Assign([ast.Name(subject, ast.Store())], node.subject)
        place(first, node)
        return [first, *chain]

    def _case(
        self, case: ast.match_case, subject: str, otherwise: list[ast.stmt], origin: ast.Match
    ) -> list[ast.stmt]:
        item = ast.Name(subject, ast.Load())
        tests = list(self._tests(case.pattern, item))
        body = [*self._bindings(case.pattern, item), *case.body]
        if case.guard is not None:
            # Names of the pattern stand in the guard: it is a branch of its own, and both lead on.
            guarded = ast.If(case.guard, list(case.body), deepcopy(otherwise))
            place(guarded, case.body[0])
            body = [*self._bindings(case.pattern, item), guarded]
        for statement in body:
            place(statement, case.body[0])
        if not tests:
            return body
        test = tests[0] if len(tests) == 1 else ast.BoolOp(ast.And(), tests)
        branch = ast.If(test, body, otherwise)
        place(branch, case.pattern)
        return [branch]

    def _tests(self, pattern: ast.pattern, item: ast.expr) -> Iterator[ast.expr]:
        match pattern:
            case ast.MatchValue(value):
                yield ast.Compare(item, [ast.Eq()], [value])
            case ast.MatchSingleton(constant):
                yield ast.Compare(item, [ast.Is()], [ast.Constant(constant)])
            case ast.MatchOr(patterns):
                yield ast.BoolOp(ast.Or(), [self._alternative(p, item) for p in patterns])
            case ast.MatchAs(None, _):
                pass
            case ast.MatchAs(inner, _) if inner is not None:
                yield from self._tests(inner, item)
            case ast.MatchSequence(patterns):
                length = ast.Call(ast.Name("len", ast.Load()), [item], [])
                yield ast.Compare(length, [ast.Eq()], [ast.Constant(len(patterns))])
                for position, part in enumerate(patterns):
                    yield from self._tests(part, _item_at(item, position))
            case _:
                raise self._refuse(pattern)

    def _alternative(self, pattern: ast.pattern, item: ast.expr) -> ast.expr:
        tests = list(self._tests(pattern, item))
        if len(tests) != 1 or any(self._bindings(pattern, item)):
            raise self._refuse(pattern)
        return tests[0]

    def _bindings(self, pattern: ast.pattern, item: ast.expr) -> Iterator[ast.stmt]:
        match pattern:
            case ast.MatchAs(inner, name):
                if inner is not None:
                    yield from self._bindings(inner, item)
                if name is not None:
                    yield ast.Assign([ast.Name(name, ast.Store())], item)
            case ast.MatchSequence(patterns):
                for position, part in enumerate(patterns):
                    yield from self._bindings(part, _item_at(item, position))
            case _:
                pass


def _item_at(item: ast.expr, position: int) -> ast.expr:
    return ast.Subscript(item, ast.Constant(position), ast.Load())
