"""Powers of e in few instructions, where nothing shows that they are."""

from __future__ import annotations

from math import log
from typing import Any

import pytest
import torch

import tilesmith
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against

EXPONENTS = torch.cat([torch.linspace(-110, 95, 4001), torch.tensor([0.0, -0.0, 88.72283, -87.4])])


@tilesmith.kernel(static_shapes=True, config=tilesmith.Config(block_sizes=[128]))
def powers(x: torch.Tensor, out: torch.Tensor) -> None:
    for tile in hl.tile(x.size(0)):
        out[tile] = torch.exp(x[tile]).to(out.dtype)


@tilesmith.kernel(static_shapes=True, config=tilesmith.Config(block_sizes=[1]))
def softmax(x: torch.Tensor, out: torch.Tensor) -> None:
    for rows in hl.tile(x.size(0)):
        out[rows, :] = torch.softmax(x[rows, :].to(torch.float32), dim=-1).to(out.dtype)


@tilesmith.kernel(static_shapes=True, config=tilesmith.Config(block_sizes=[1]))
def sums(x: torch.Tensor, y: torch.Tensor, kind: hl.constexpr) -> torch.Tensor:
    """Sums of powers around a maximum, and around others."""
    out = torch.empty([x.size(0)], dtype=torch.float32, device=x.device)
    for rows in hl.tile(x.size(0)):
        row = x[rows, :].to(torch.float32)
        other = y[rows, :].to(torch.float32)
        peak = torch.amax(other if kind == "of others" else row, -1)
        if kind == "none":
            peak = torch.zeros_like(peak)
        power = torch.exp(row - peak[:, None])
        if kind == "some":
            power = torch.where(other > 0, power, 0.0)
        out[rows] = power.sum(-1)
    return out


def text_of(kernel: Any, *given: Any) -> str:
    return kernel.bind(given).to_triton_code(target="cuda:90")


def result_of(run: Any, kernel: Any, *given: Any, **values: Any) -> torch.Tensor:
    artifact = kernel.bind(given).to_artifact(kernel.configs[0], target="cuda:90")
    names = [parameter.name for parameter in artifact.parameters]
    return dict(zip(names, run(artifact, *(values[name] for name in names))))["out"]


@pytest.mark.parametrize(
    ("given", "made", "is_short"),
    [
        (torch.float32, torch.float32, False),
        (torch.float32, torch.bfloat16, True),
        (torch.bfloat16, torch.bfloat16, True),
        (torch.float16, torch.float16, True),
        (torch.bfloat16, torch.float32, True),
        (torch.float64, torch.bfloat16, False),
    ],
    ids=str,
)
def test_powers_of_halves_are_squares(given, made, is_short):
    text = text_of(powers, torch.zeros(512, dtype=given), torch.zeros(512, dtype=made))
    assert ("libdevice.exp" not in text) == ("tl.exp2" in text) == is_short
    assert ("0.7213475204444817" in text) == is_short


def check_steps(found: torch.Tensor) -> None:
    nearest = torch.exp(EXPONENTS.double()).to(found.dtype)
    steps = found.view(torch.int16).int() - nearest.view(torch.int16).int()
    assert steps.abs().max() <= 1
    assert (steps != 0).float().mean() < 0.01
    assert ((found > 0) == (nearest > 0)).all()


def test_squares_are_within_a_step(run):
    x, out = EXPONENTS.clone(), torch.full_like(EXPONENTS, -7.0, dtype=torch.float16)
    check_steps(result_of(run, powers, x, out, x=x, out=out))


def test_squares_keep_what_is_subnormal():
    """The same arithmetic: the interpreter truncates to bfloat16 where devices round."""
    half = torch.exp2(EXPONENTS * torch.tensor(1.4426950408889634 / 2))
    check_steps((half * half).to(torch.bfloat16))


def test_ends_of_powers(run):
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([inf, -inf, nan, 0.0, 200.0, -200.0, 3e38, -3e38])
    out = torch.full_like(x, -7.0, dtype=torch.float16)
    found = result_of(run, powers, x, out, x=x, out=out).float()
    assert torch.equal(found.nan_to_num(-1.0, inf), torch.exp(x).nan_to_num(-1.0, inf))


@pytest.mark.parametrize("kind", ["row", "of others", "none", "some"])
def test_sums_are_short_around_their_own_maximum_alone(run, kind):
    x, y = torch.randn(3, 300) * 4, torch.randn(3, 300)
    text = text_of(sums, x, y, kind)
    assert ("libdevice.exp" in text) == (kind != "row")
    if kind == "row":
        found = result_of(run, sums, x, y, kind, x=x, y=y, out=torch.full([3], -7.0))
        off = x.double() - x.double().amax(-1, keepdim=True)
        check_against(found, off.exp().sum(-1), reduction_length=300)


@pytest.mark.parametrize(("dtype", "is_short"), [(torch.float16, True), (torch.float32, False)])
def test_probabilities_are_short_where_they_are_halves(run, dtype, is_short):
    x, out = torch.randn(3, 300) * 20, torch.full([3, 300], -7.0, dtype=dtype)
    assert ("libdevice.exp" not in text_of(softmax, x, out)) == is_short
    found = result_of(run, softmax, x, out, x=x, out=out)
    check_against(found, torch.softmax(x.double(), -1), reduction_length=300)


@pytest.mark.parametrize("length", [64, 4096, 131_072])
def test_sums_are_off_by_less_than_the_logarithm_of_their_length(length):
    """Exponents as the kernel rounds them; the hardware's powers are off by 2^-22 besides."""
    rows = [torch.randn(length) * scale for scale in (0.1, 1.0, 10.0)]
    rows += [torch.linspace(-300, 300, length), torch.full([length], -log(length))]
    rows[-1][0] = 0.0
    for x in rows:
        off = x - x.max()
        exact = off.double().exp().sum()
        found = (off * torch.tensor(1.4426950408889634)).double().exp2().sum()
        assert abs(found / exact - 1) < 1.3 * log(length) * 2**-24
