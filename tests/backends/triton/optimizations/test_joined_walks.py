"""Maxima and sums of powers around them from one walk over a row: the same results, one loop."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against


@helion.kernel(static_shapes=True)
def log_sums(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0)], dtype=torch.float32, device=x.device)
    for rows in hl.tile(x.size(0)):
        row = x[rows, :].to(torch.float32)
        peak = row.amax(-1)
        out[rows] = torch.log(torch.exp(row - peak[:, None]).sum(-1)) + peak
    return out


@helion.kernel(static_shapes=True)
def softmax(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        out[rows, :] = torch.softmax(x[rows, :], dim=-1)
    return out


@helion.kernel(static_shapes=True)
def differences(x: torch.Tensor, y: torch.Tensor, scale: float) -> torch.Tensor:
    """Two rows at once, of numbers that are computed."""
    out = torch.empty([x.size(0)], dtype=x.dtype, device=x.device)
    for rows in hl.tile(x.size(0)):
        left, right = x[rows, :] * scale, y[rows, :] * y[rows, :]
        above, below = left.amax(-1), right.amax(-1)
        upper = torch.exp(left - above[:, None]).sum(-1)
        lower = torch.exp(right - below[:, None]).sum(-1)
        out[rows] = torch.log(upper) + above - torch.log(lower) - below
    return out


@helion.kernel(static_shapes=True)
def sums_around_others(x: torch.Tensor) -> torch.Tensor:
    """Powers of other numbers than those whose maximum is taken."""
    out = torch.empty([x.size(0)], dtype=x.dtype, device=x.device)
    for rows in hl.tile(x.size(0)):
        peak = x[rows, :].amax(-1)
        out[rows] = torch.exp(x[rows, :] * 2 - peak[:, None]).sum(-1)
    return out


@helion.kernel(static_shapes=True)
def sums_and_squares(x: torch.Tensor) -> torch.Tensor:
    """The second walk adds up something else, too."""
    out = torch.empty([x.size(0)], dtype=x.dtype, device=x.device)
    for rows in hl.tile(x.size(0)):
        off = x[rows, :] - x[rows, :].amax(-1)[:, None]
        out[rows] = torch.exp(off).sum(-1) + (off * off).sum(-1)
    return out


def artifact_of(kernel: Any, *given: Any, rows: int = 1, chunk: int = 128, warps: int = 1) -> Any:
    config = helion.Config(block_sizes=[rows], reduction_loops=[chunk], num_warps=warps)
    return kernel.bind(given).to_artifact(config, target="cuda:90")


def result_of(run: Any, artifact: Any, **values: Any) -> torch.Tensor:
    names = [parameter.name for parameter in artifact.parameters]
    found = dict(zip(names, run(artifact, *(values[name] for name in names))))
    return found["out"]


def num_loops(artifact: Any) -> int:
    return artifact.source.count("tl.range(")


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("length", [256, 260, 1000])
def test_log_sums_take_one_walk(run: Any, length: int, rows: int) -> None:
    x = torch.randn(5, length) * 30
    artifact = artifact_of(log_sums, x, rows=rows)
    assert num_loops(artifact) == 1
    found = result_of(run, artifact, x=x, out=torch.full([5], -7.0))
    check_against(found, torch.logsumexp(x.double(), -1), reduction_length=length)


def padded(rows: int, length: int, dtype: torch.dtype) -> torch.Tensor:
    """Rows of any length that begin at multiples of 16 bytes."""
    wide = torch.full([rows, -(-max(length, 1) // 8) * 8 + 8], nan, dtype=dtype)
    x = wide[:, :length]
    x.copy_(torch.randn(rows, length) * 10)
    return x


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("length", [300, 509, 511, 512, 513, 1009, 1024])
def test_eight_halves_share_a_maximum(run: Any, dtype: torch.dtype, length: int) -> None:
    x = padded(3, length, dtype)
    artifact = artifact_of(log_sums, x, chunk=256)
    assert num_loops(artifact) == 1
    assert "[32, 8]" in artifact.source
    found = result_of(run, artifact, x=x, out=torch.full([3], -7.0))
    check_against(found, torch.logsumexp(x.double(), -1), reduction_length=length)


@pytest.mark.parametrize("length", [1, 2, 7, 255, 256, 257])
def test_short_rows_of_halves(run: Any, length: int) -> None:
    x = padded(3, length, torch.bfloat16)
    config = helion.Config(block_sizes=[1], reduction_loops=[256] * (length > 1), num_warps=1)
    artifact = log_sums.bind((x,)).to_artifact(config, target="cuda:90")
    found = result_of(run, artifact, x=x, out=torch.full([3], -7.0))
    check_against(found, torch.logsumexp(x.double(), -1), reduction_length=length)


def test_rows_of_nothing_have_no_maximum() -> None:
    with pytest.raises(helion.exc.BaseError):
        log_sums.bind((padded(3, 0, torch.bfloat16),))


def test_odd_strides_of_halves_and_bytes_keep_their_walks(run: Any) -> None:
    odd, small = torch.randn(3, 521).to(torch.bfloat16), torch.randn(3, 528).to(torch.float8_e4m3fn)
    for x in (odd, small):
        assert num_loops(artifact_of(log_sums, x, chunk=512)) == 2
    found = result_of(run, artifact_of(log_sums, odd, chunk=256), x=odd, out=torch.full([3], -7.0))
    check_against(found, torch.logsumexp(odd.double(), -1), reduction_length=521)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_rows_that_could_go_wrong(run: Any, dtype: torch.dtype) -> None:
    x = (torch.randn(10, 800) * 3).to(dtype)
    x[0] += 30_000
    x[1] = torch.finfo(dtype).min
    x[2] = torch.finfo(dtype).max
    x[3] = torch.where(torch.arange(800) % 2 == 0, x[1], x[2])
    x[4] = 10_000
    x[5] *= torch.finfo(dtype).tiny / 8
    x[6, 8:] = -inf
    x[7, :793] = -inf
    x[8] = -6.6875
    x[8, 400] = 0
    x[9] = torch.linspace(-60, 60, 800).flip(0)
    artifact = artifact_of(log_sums, x, chunk=256)
    assert num_loops(artifact) == 1
    found = result_of(run, artifact, x=x, out=torch.full([10], -7.0))
    exact = torch.logsumexp(x.double(), -1)
    assert torch.allclose(found.double(), exact, rtol=3e-7, atol=1e-6)


def test_a_maximum_that_grows_in_every_turn_keeps_all_terms(run: Any) -> None:
    x = torch.linspace(-200.0, 300.0, 2000).repeat(2, 1)
    x[1] = x[1].flip(0)
    found = result_of(run, artifact_of(log_sums, x), x=x, out=torch.full([2], -7.0))
    check_against(found, torch.logsumexp(x.double(), -1), reduction_length=2000)


def test_softmax_walks_twice(run: Any) -> None:
    x = torch.randn(3, 700) * 5
    artifact = artifact_of(softmax, x)
    assert num_loops(artifact) == 2
    found = result_of(run, artifact, x=x, out=torch.full_like(x, -7.0))
    check_against(found, torch.softmax(x.double(), -1), reduction_length=700)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_infinities_and_what_is_no_number_are_as_torch_has_them(
    run: Any, dtype: torch.dtype
) -> None:
    x = torch.randn(6, 400).to(dtype)
    x[0, :390] = -inf
    x[1, :] = -inf
    x[2, 5] = inf
    x[3, 399] = nan
    x[4, 0] = nan
    x[5, 4:] = -inf
    artifact = artifact_of(softmax, x, chunk=256)
    assert num_loops(artifact) == 2
    found = result_of(run, artifact, x=x, out=torch.full_like(x, -7.0)).float()
    close = 1e-5 if dtype == torch.float32 else 1e-2
    assert torch.allclose(found, torch.softmax(x.float(), -1), rtol=close, equal_nan=True)


def test_two_sums_share_the_walk(run: Any) -> None:
    x, y = torch.randn(3, 300) * 9, torch.randn(3, 300) * 3
    artifact = artifact_of(differences, x, y, 0.5)
    assert num_loops(artifact) == 1
    found = result_of(run, artifact, x=x, y=y, scale=0.5, out=torch.full([3], -7.0))
    wide = (x.double() * 0.5, y.double() * y.double())
    exact = torch.logsumexp(wide[0], -1) - torch.logsumexp(wide[1], -1)
    assert torch.allclose(found.double(), exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kernel", [sums_around_others, sums_and_squares], ids=lambda k: k.name)
def test_other_sums_keep_a_walk_of_their_own(run: Any, kernel: Any) -> None:
    x = torch.randn(3, 300)
    artifact = artifact_of(kernel, x)
    assert num_loops(artifact) == 2
    off = x.double() - x.double().amax(-1, keepdim=True)
    plain = torch.exp(x.double() + off).sum(-1)
    exact = plain if kernel is sums_around_others else off.exp().sum(-1) + (off * off).sum(-1)
    found = result_of(run, artifact, x=x, out=torch.full([3], -7.0))
    check_against(found, exact, reduction_length=300)


def test_neighbours_must_be_in_one_thread() -> None:
    odd, even = torch.randn(3, 301), torch.randn(3, 304)
    assert num_loops(artifact_of(log_sums, odd)) == 2
    assert num_loops(artifact_of(log_sums, even, chunk=64)) == 2
    assert num_loops(artifact_of(log_sums, even, warps=2)) == 2
    assert num_loops(artifact_of(log_sums, even, chunk=256, warps=2)) == 1
