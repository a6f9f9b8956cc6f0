"""Every kernel of the gallery: its derived gradient is the reference's, or there is a reason."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

import tilesmith as helion
from tests.examples.case import Args, Case
from tests.gradients.compare import (
    cotangents,
    derive,
    floats_in,
    gradients,
    is_float,
    leaves,
    partial_size,
    relative_error,
)
from tests.gradients.gallery import CASES, REFUSED, WITHOUT_FLOATS, WITHOUT_REFERENCE
from tilesmith.ir.traversal import walk_function
from tilesmith.ir.types import TileType

EXACT = 1e-13
"""Relative error of kernels that compute in fp64."""
ROUNDED = 3e-6
"""Of those that compute in fp32."""
HALF = {"fp8_gemm": 1e-3}
"""Of those whose gradient is computed from a result in fp16."""
EXCEPTIONS = {**REFUSED, **WITHOUT_REFERENCE, **WITHOUT_FLOATS}
DERIVED = [case for case in CASES if case.name not in EXCEPTIONS]


def inputs_of(case: Case) -> Args:
    """In fp64 where the kernel takes that."""
    size = partial_size(case)
    try:
        args = case.make_inputs(size, torch.float64, "cpu")
        case.kernel.bind(args)
    except (helion.exc.BaseError, RuntimeError, NotImplementedError):
        args = case.make_inputs(size, torch.float32, "cpu")
    return leaves(args)


def is_all_fp64(kernel: Any, args: Args) -> bool:
    """Whether the kernel computes nothing in a narrower type."""
    function = kernel.bind(args).specialization.default.function
    kinds = [v.type for op in walk_function(function) for v in op.results]
    tiles = [kind for kind in kinds if isinstance(kind, TileType)]
    return all(kind.dtype.bits == 64 for kind in tiles if kind.dtype.is_float)


def test_every_exception_is_a_kernel_of_the_gallery() -> None:
    names = [case.name for case in CASES]
    assert set(EXCEPTIONS) <= set(names)
    assert len(EXCEPTIONS) == len(REFUSED) + len(WITHOUT_REFERENCE) + len(WITHOUT_FLOATS)


@pytest.mark.parametrize("case", DERIVED, ids=str)
def test_the_gradient_is_that_of_the_reference(case: Case) -> None:
    args = inputs_of(case)
    backward = derive(case.kernel, args)
    wide = tuple(arg.detach().double().requires_grad_() if is_float(arg) else arg for arg in args)
    exact_outputs = floats_in(case.reference(*wide))
    grads = cotangents(floats_in(backward.call(*args)))
    assert any(out.requires_grad for out in exact_outputs)
    found = gradients(backward.call, args, grads)
    exact = gradients(case.reference, wide, grads)
    limit = EXACT if is_all_fp64(case.kernel, args) else HALF.get(case.name, ROUNDED)
    for actual, wanted in zip(found, exact):
        # Logarithms of what is not positive have no gradient either way.
        finite = wanted.isfinite()
        assert torch.equal(actual.isfinite(), finite)
        assert relative_error(actual[finite], wanted[finite]) < limit


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_cannot_be_derived_says_why(name: str) -> None:
    (case,) = [case for case in CASES if case.name == name]
    args = leaves(inputs_of(case))
    with pytest.raises(helion.exc.AutodiffNotSupported, match=re.escape(REFUSED[name])) as error:
        go_back(case, args)
    assert "cannot be differentiated" in str(error.value)


def go_back(case: Case, args: Args) -> None:
    backward = derive(case.kernel, args)
    gradients(backward.call, args, cotangents(floats_in(backward.call(*args))))
