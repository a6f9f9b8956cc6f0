"""What type checkers are told of the language is what is there."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import tilesmith.language as hl

STUB = Path(hl.__file__).with_suffix(".pyi")


def test_the_stub_names_what_the_module_exports():
    tree = ast.parse(STUB.read_text())
    named = {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    named |= {ast.unparse(node.targets[0]) for node in tree.body if isinstance(node, ast.Assign)}
    assert {name for name in named if not name.startswith("_")} == set(hl.__all__)


def test_the_stub_has_the_parameters_of_the_functions():
    for node in ast.parse(STUB.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            code = inspect.unwrap(getattr(hl, node.name)).__code__
            given = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args)]
            assert given == list(code.co_varnames[: code.co_argcount]), node.name


def test_the_stub_says_what_functions_do():
    # What editors show under the pointer is the stub's text.
    for node in ast.parse(STUB.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            meaning = (inspect.getdoc(getattr(hl, node.name)) or "").split("\n\n")[0]
            assert (ast.get_docstring(node) or "").split() == meaning.split(), node.name
