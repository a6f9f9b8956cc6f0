"""Every example kernel on the CPU against its fp64 reference, at boundary sizes and layouts.

By the interpreter and as native code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.examples.case import Case, Size, as_outputs, copies
from tests.examples.cases import EXAMPLES
from tests.host_backends import BACKENDS, on_backend
from tests.layouts import misaligned, strided, transposed
from tilesmith.numerics.compare import AccuracyError

Layout = Callable[[torch.Tensor], torch.Tensor]


def runs_of(case: Case) -> list[tuple[torch.dtype, str]]:
    """Types and backends: the interpreter, slow and one code for all types, runs one of them."""
    return [
        (dtype, backend)
        for dtype in case.dtypes
        for backend in BACKENDS
        if backend != "reference" or dtype is case.dtypes[0]
    ]


def case_sizes() -> list[Any]:
    return [
        pytest.param(
            case, size, *run, id=f"{case.name}-{'x'.join(map(str, size))}-{run[0]}-{run[1]}"
        )
        for case in EXAMPLES
        for size in case.sizes
        for run in runs_of(case)
    ]


def case_dtypes() -> list[Any]:
    return [
        pytest.param(case, *run, id=f"{case.name}-{run[0]}-{run[1]}")
        for case in EXAMPLES
        for run in runs_of(case)
    ]


def relaid(args: tuple[Any, ...], layout: Layout) -> tuple[Any, ...]:
    return tuple(layout(arg) if isinstance(arg, torch.Tensor) else arg for arg in args)


def transposed_matrices(values: torch.Tensor) -> torch.Tensor:
    return transposed(values) if values.dim() >= 2 else values


@pytest.mark.parametrize(("case", "size", "dtype", "backend"), case_sizes())
def test_small_blocks_agree_with_fp64(
    case: Case, size: Size, dtype: torch.dtype, backend: str
) -> None:
    args = case.make_inputs(size, dtype, "cpu")
    before = copies(args)
    compiled = on_backend(case.kernel, backend).bind(args).compile_config(case.config)
    case.check(compiled(*args), before, size, dtype)
    for arg, kept in zip(args, before):
        if isinstance(arg, torch.Tensor):
            assert torch.equal(arg, kept)


@pytest.mark.parametrize(("case", "dtype", "backend"), case_dtypes())
def test_plain_call_agrees_with_fp64(case: Case, dtype: torch.dtype, backend: str) -> None:
    size = case.sizes[-1]
    args = case.make_inputs(size, dtype, "cpu")
    case.check(on_backend(case.kernel, backend)(*args), args, size, dtype)


@pytest.mark.parametrize("layout", [transposed_matrices, strided, misaligned])
@pytest.mark.parametrize("case", [case for case in EXAMPLES if case.has_free_layouts], ids=str)
def test_any_layout_agrees_with_fp64(case: Case, layout: Layout) -> None:
    size, dtype = case.sizes[-1], case.dtypes[0]
    args = relaid(case.make_inputs(size, dtype, "cpu"), layout)
    compiled = on_backend(case.kernel, "cpu").bind(args).compile_config(case.config)
    case.check(compiled(*args), args, size, dtype)


def test_names_are_unique() -> None:
    names = [case.name for case in EXAMPLES]
    assert len(set(names)) == len(names)


def rounded(exact: torch.Tensor | None) -> torch.Tensor | None:
    return exact.float() if exact is not None and exact.is_floating_point() else exact


@pytest.mark.parametrize("case", EXAMPLES, ids=str)
def test_a_wrong_result_is_noticed(case: Case) -> None:
    size, dtype = case.sizes[-1], case.dtypes[0]
    args = case.make_inputs(size, dtype, "cpu")
    exact = as_outputs(case.reference(*args))
    first, *others = (rounded(out) for out in exact)
    assert first is not None
    case.check((first, *others), args, size, dtype)
    wrong = first + case.noticeable * first.abs().max()
    with pytest.raises(AccuracyError):
        case.check((wrong, *others), args, size, dtype)
