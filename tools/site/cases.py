"""Which kernels a page of the gallery is about, with arguments of a small size.

Cases come from the tests of the examples. A file that only calls kernels of other examples is about
those; the kernels of the model, which its own tests run, have their arguments here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch

from examples.models import kernels as model
from tests.examples.case import Case
from tests.examples.cases import EXAMPLES
from tests.examples.ports.ports import PORTS
from tools.site.pages import ROOT

FOLDER = ROOT / "examples"


def example_files() -> list[Path]:
    """All examples."""
    return [path for path in sorted(FOLDER.rglob("*.py")) if path.stem != "__init__"]


def module_of(path: Path) -> str:
    """The name a file is imported by."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


class Call(NamedTuple):
    """A kernel, and arguments for it on the CPU."""

    kernel: Any
    args: tuple[Any, ...]


@cache
def cases_by_module() -> dict[str, dict[str, Case]]:
    """The first case of each kernel, by module and name."""
    found: dict[str, dict[str, Case]] = {}
    for case in (*EXAMPLES, *PORTS):
        found.setdefault(case.kernel.fn.__module__, {}).setdefault(case.kernel.name, case)
    return found


def arguments_of(case: Case, size: tuple[int, ...] | None = None) -> tuple[Any, ...]:
    """Of a size, by default the last: one that fills no tile."""
    dtype = torch.float32 if torch.float32 in case.dtypes else case.dtypes[0]
    return case.make_inputs(size or case.sizes[-1], dtype, "cpu")


def calls_of(module: str) -> list[Call]:
    """The kernels of a file of the examples, or else of those that it imports."""
    if module == model.__name__:
        return list(_model_calls())
    own = cases_by_module().get(module, {})
    cases = own or {
        name: case
        for used in _imported(module)
        for name, case in cases_by_module().get(used, {}).items()
    }
    return [Call(case.kernel, arguments_of(case)) for case in cases.values()]


def _imported(module: str) -> Iterator[str]:
    path = (ROOT / module.replace(".", "/")).with_suffix(".py")
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("examples"):
            yield str(node.module)


def _model_calls() -> Iterator[Call]:
    batch, length, heads, dim = 2, 20, 3, 16
    angles = torch.rand(length, dim)
    qkv = torch.randn(batch, length, 3, heads, dim)
    yield Call(model.rope_heads, (qkv, angles.cos(), angles.sin()))
    grads = [torch.randn(batch * heads, length, dim) for _ in range(3)]
    yield Call(model.rope_heads_bwd, (*grads, angles.cos(), angles.sin(), batch))
    param = torch.randn(30, 10)
    state = [torch.zeros(30, 10) for _ in range(2)]
    rates = (1, 1e-3, (0.9, 0.999), 1e-8, 0.01)
    yield Call(model.adamw_copying, (param.bfloat16(), param, param, *state, *rates))
