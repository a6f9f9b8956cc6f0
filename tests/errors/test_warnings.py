"""Warnings go to stderr, once for each kernel and place, with the line; classes can be silenced."""

from __future__ import annotations

import pytest
import torch

from tests.errors import warned_kernels as kernels
from tests.errors.warned_kernels import fresh
from tilesmith import exc

MATRIX = (torch.ones(6, 6),)
HALVES = (torch.ones(8, 8, dtype=torch.bfloat16),) * 2
REMARKS = {
    kernels.adds_on_the_host: (exc.TensorOperationInWrapper, MATRIX),
    kernels.calls_a_function_that_computes: (exc.TensorOperationsInHostCall, MATRIX),
    kernels.sums_after_the_loop: (exc.TensorOperationInWrapper, MATRIX),
    kernels.changes_in_place: (exc.TensorOperationInWrapper, MATRIX),
    kernels.product_of_indices: (exc.IndicesFormProduct, MATRIX),
    kernels.takes_a_tensor_elsewhere: (exc.WrongDevice, MATRIX),
    kernels.scaled_products: (exc.TiledKMatmulAccumulationWarning, HALVES),
    kernels.products_added_up_in_half: (exc.TiledKMatmulAccumulationWarning, HALVES),
    kernels.half_accumulator_of_a_dot: (exc.TiledKMatmulAccumulationWarning, HALVES),
}


def printed(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The names of the warnings on stderr."""
    lines = capsys.readouterr().err.splitlines()
    return [line[8 : line.index("]")] for line in lines if line.startswith("WARNING[")]


@pytest.mark.parametrize("function", REMARKS, ids=lambda f: f.__name__)
def test_a_remark_is_printed_once(function, capsys):
    warning, args = REMARKS[function]
    kernel = fresh(function)
    for _ in range(3):
        kernel(*args)
    assert printed(capsys) == [warning.__name__]


@pytest.mark.parametrize("function", REMARKS, ids=lambda f: f.__name__)
def test_texts_of_remarks(function, capsys, golden):
    _, args = REMARKS[function]
    fresh(function)(*args)
    golden(capsys.readouterr().err)


def test_another_shape_does_not_repeat_a_remark(capsys):
    kernel = fresh(kernels.adds_on_the_host)
    for n in (3, 5, 9):
        kernel(torch.ones(n, n))
    assert len(printed(capsys)) == 1


def test_another_kernel_has_remarks_of_its_own(capsys):
    for _ in range(2):
        fresh(kernels.adds_on_the_host)(*MATRIX)
    assert len(printed(capsys)) == 2


@pytest.mark.parametrize("function", REMARKS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("is_parent", [False, True])
def test_a_class_or_its_parent_can_be_silenced(function, is_parent, capsys):
    warning, args = REMARKS[function]
    ignored = exc.BaseWarning if is_parent else warning
    fresh(function, ignore_warnings=[ignored])(*args)
    assert not printed(capsys)


def test_names_in_the_environment_silence_too(capsys, monkeypatch):
    monkeypatch.setenv("TILESMITH_IGNORE_WARNINGS", "TensorOperationInWrapper,WrongDevice")
    fresh(kernels.adds_on_the_host)(*MATRIX)
    assert not printed(capsys)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_code_that_sets_the_stage_is_not_remarked_on(backend, capsys):
    fresh(kernels.only_sets_the_stage, backend=backend)(*MATRIX)
    assert not printed(capsys)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_plain_products_lose_nothing_and_are_not_remarked_on(dtype, capsys):
    kernel = fresh(kernels.plain_products, config={"block_sizes": [16, 16, 16]})
    a, b = torch.randn(16, 64, dtype=dtype), torch.randn(64, 16, dtype=dtype)
    exact = a.double() @ b.double()
    assert (kernel(a, b) - exact).abs().max() < 1e-4
    assert not printed(capsys)


def test_full_precision_products_may_be_scaled(capsys):
    fresh(kernels.scaled_products)(torch.ones(8, 8), torch.ones(8, 8))
    assert not printed(capsys)
