"""Every example kernel on the GPU: random configs against fp64, repeated runs, huge tensors."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

import tilesmith as helion
from examples import dot_compress, exp, softmax
from tests.device.chip import DEVICE, sized
from tests.examples.case import Case, copies
from tests.examples.cases import EXAMPLES
from tests.examples.ports.ports import PORTS
from tests.layouts import strided
from tilesmith.numerics.compare import check_against
from tilesmith.numerics.inputs import random_tensor

pytestmark = pytest.mark.device

CASES = (*EXAMPLES, *PORTS)
NUM_CONFIGS = sized(20, 2)
NUM_REPEATS = 50
MAX_DRAWS = 3
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
BEYOND_INT32 = 2**31 + 17


@pytest.mark.parametrize("seed", range(NUM_CONFIGS))
@pytest.mark.parametrize("case", CASES, ids=str)
def test_random_config_agrees_with_fp64(case: Case, seed: int) -> None:
    rng = random.Random(f"{case.name} {seed}")
    dtype, size = rng.choice(case.dtypes), rng.choice(case.sizes)
    args = case.make_inputs(size, dtype, DEVICE)
    kernel = helion.kernel(case.kernel.fn, static_shapes=seed % 2 == 0 or case.needs_static_shapes)
    bound = kernel.bind(args)
    before = copies(args)
    case.check(run_some_config(bound, args, rng), before, size, dtype)


def run_some_config(bound: Any, args: tuple[Any, ...], rng: random.Random) -> Any:
    """The result under a random config; one that the device has no room for is drawn again."""
    for _ in range(MAX_DRAWS):
        config = bound.config_spec.random_config(rng)
        try:
            return bound.compile_config(config)(*args)
        except helion.exc.TritonError as error:
            if "out of resource" not in str(error):
                raise
    raise AssertionError(f"{MAX_DRAWS} configs in a row do not fit the device")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_plain_call_agrees_with_fp64(case: Case, dtype: torch.dtype) -> None:
    if dtype not in case.dtypes:
        pytest.skip(f"not for {dtype}")
    size = case.sizes[-1]
    args = case.make_inputs(size, dtype, DEVICE)
    before = copies(args)
    case.check(case.kernel(*args), before, size, dtype)


def test_dot_compress_forward_repeats_bit_for_bit() -> None:
    b, m, d, k = 1152, 3219, 256, 64
    x = torch.randn(b, m, d, device=DEVICE, dtype=torch.bfloat16)
    y = torch.randn(b, m, k, device=DEVICE, dtype=torch.bfloat16)
    out, xty = dot_compress.dot_compress_fwd(x, y)
    for _ in range(NUM_REPEATS - 1):
        again, again_xty = dot_compress.dot_compress_fwd(x, y)
        assert torch.equal(again, out)
        assert torch.equal(again_xty, xty)
    for i in range(0, b, 128):
        exact, exact_xty = dot_compress.reference(x[i : i + 1], y[i : i + 1])
        check_against(xty[i : i + 1], exact_xty, reduction_length=m)
        check_against(out[i : i + 1], exact, reduction_length=m * d, intermediate=torch.bfloat16)


def test_dot_compress_backward_repeats_bit_for_bit() -> None:
    b, m, d, k = 1152, 3219, 256, 64
    x = torch.randn(b, m, d, device=DEVICE, dtype=torch.bfloat16)
    y = torch.randn(b, m, k, device=DEVICE, dtype=torch.bfloat16)
    grad_out = torch.randn(b, m, k, device=DEVICE, dtype=torch.bfloat16)
    xty = torch.randn(b, d, k, device=DEVICE, dtype=torch.bfloat16) * m**0.5
    grad_x, grad_y, _ = dot_compress.dot_compress_bwd(grad_out, x, y, xty)
    for _ in range(NUM_REPEATS - 1):
        again_x, again_y, _ = dot_compress.dot_compress_bwd(grad_out, x, y, xty)
        assert torch.equal(again_x, grad_x)
        assert torch.equal(again_y, grad_y)
    for i in range(0, b, 128):
        part = slice(i, i + 1)
        exact_x, exact_y, _ = dot_compress.reference_bwd(
            grad_out[part], x[part], y[part], xty[part]
        )
        for actual, exact, roundings in ((grad_x, exact_x, 3), (grad_y, exact_y, 1)):
            check_against(
                actual[part],
                exact,
                reduction_length=m * d,
                intermediate=[torch.bfloat16] * roundings,
            )


def test_more_elements_than_int32_counts() -> None:
    x = torch.empty(BEYOND_INT32, device=DEVICE, dtype=torch.float16).uniform_(-4, 4)
    out = exp.exp_fwd(x)
    window = 2**20
    for begin in (0, 2**30, 2**31 - window, BEYOND_INT32 - window):
        part = slice(begin, begin + window)
        check_against(out[part], exp.reference(x[part]))


def test_offsets_beyond_int32_in_a_small_view() -> None:
    rows, columns = 257, 64
    stride = 2**31 // (rows - 2)
    storage = torch.zeros(rows * stride, device=DEVICE, dtype=torch.float16)
    x = storage.view(rows, stride)[:, :columns]
    x.copy_(random_tensor([rows, columns], torch.float16))
    assert x.stride(0) * (rows - 1) > 2**31
    check_against(softmax.softmax(x), softmax.reference(x), reduction_length=columns)


@pytest.mark.parametrize("case", [case for case in EXAMPLES if case.has_free_layouts], ids=str)
def test_strided_inputs_agree_with_fp64(case: Case) -> None:
    size, dtype = case.sizes[-1], case.dtypes[0]
    made = case.make_inputs(size, dtype, DEVICE)
    args = tuple(strided(arg) if isinstance(arg, torch.Tensor) else arg for arg in made)
    bound = case.kernel.bind(args)
    case.check(bound.compile_config(case.config)(*args), args, size, dtype)
