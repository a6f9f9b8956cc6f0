"""Gates of hidden layers that are long sums: how far off their roundings may make them."""

from __future__ import annotations

import pytest
import torch

from tests.examples.case import DTYPES
from tests.examples.product_cases import PRODUCT
from tilesmith.numerics.tolerance import derive_budget, rms

(CASE,) = [case for case in PRODUCT if case.name == "squeeze_excite_fwd"]
SIZE = (63, 2050, 30)
"""Rows, terms of a sum, and its width: numbers of the hidden layer are eight or so."""


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_gate_may_be_off_by_what_its_slope_makes_of_the_hidden_layer(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    args = CASE.make_inputs(SIZE, dtype, "cpu")
    CASE.check(CASE.kernel(*args), args, SIZE, dtype)


def test_eager_is_as_far_off_as_the_kernel() -> None:
    x, a, b = CASE.make_inputs(SIZE, torch.bfloat16, "cpu")
    hidden = (x @ a).relu()
    gate = (hidden.float() @ b.float()).sigmoid()
    exact = CASE.reference(x, a, b)
    found = x.float() * gate, hidden, gate
    plain = derive_budget(torch.bfloat16, SIZE[1], torch.bfloat16).allowed(exact[0])
    for outputs in (CASE.kernel(x, a, b), tuple(part.bfloat16() for part in found)):
        off = (outputs[0].double() - exact[0]).abs()
        # By the rms of the results, as sums are judged.
        assert 0 < (off > plain).sum() < 100
        CASE.check(outputs, (x, a, b), SIZE, torch.bfloat16)


def test_a_coarser_hidden_layer_is_noticed() -> None:
    x, a, b = CASE.make_inputs(SIZE, torch.bfloat16, "cpu")
    _, hidden, _ = CASE.reference(x, a, b)
    gate = (hidden.to(torch.float8_e4m3fn).double() @ b.double()).sigmoid()
    outputs = (x.double() * gate).bfloat16(), hidden.bfloat16(), gate.bfloat16()
    with pytest.raises(AssertionError):
        CASE.check(outputs, (x, a, b), SIZE, torch.bfloat16)


def test_a_gate_that_is_shut_shows_no_rounding() -> None:
    args = CASE.make_inputs(SIZE, torch.bfloat16, "cpu")
    exact = CASE.reference(*args)
    out, hidden, gate = CASE.kernel(*args)
    shut = int(exact[2].argmin())
    out = out.clone()
    # Less than what was allowed by the rms of the results.
    out.view(-1)[shut] += 3 * 2**-8 * rms(exact[0].abs())
    with pytest.raises(AssertionError, match="1 of 129150 elements"):
        CASE.check((out, hidden, gate), args, SIZE, torch.bfloat16)
