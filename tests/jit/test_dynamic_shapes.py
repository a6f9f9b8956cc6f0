"""``static_shapes=False``: one bound kernel for many shapes, guarded where it assumed more."""

from __future__ import annotations

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith import exc
from tilesmith.numerics.compare import check_against

SIZES = (2, 3, 7, 8, 9, 16, 17, 31, 1, 0)


@helion.kernel(static_shapes=False)
def add(x, y):
    out = torch.empty_like(x)
    for t, u in hl.tile(x.size()):
        out[t, u] = x[t, u] + y[t, u]
    return out


def test_one_trace_serves_all_sizes_but_0_and_1(traces: list[str]) -> None:
    add.reset()
    for m, n in ((7, 5), (5, 7), (33, 2), (2, 100), (64, 64)):
        x, y = torch.randn(m, n), torch.randn(m, n)
        assert torch.equal(add(x, y), x + y)
    first = len(traces)
    # 7 x 5 differ; where both sizes are equal nothing was assumed.
    assert first == 1
    for m, n in ((1, 5), (7, 1), (1, 1), (0, 5), (5, 0)):
        x, y = torch.randn(m, n), torch.randn(m, n)
        assert torch.equal(add(x, y), x + y)
    assert len(traces) == 6


def test_sizes_equal_when_traced_and_different_later(traces: list[str]) -> None:
    add.reset()
    for m, n in ((8, 8), (5, 9), (8, 8), (3, 4), (6, 6)):
        x, y = torch.randn(m, n), torch.randn(m, n)
        assert torch.equal(add(x, y), x + y)
    assert len(traces) <= 2


def test_layouts() -> None:
    x, y = torch.randn(7, 5), torch.randn(5, 7).t()
    assert torch.equal(add(x, y), x + y)
    x = torch.randn(14, 10)[::2, ::2]
    assert torch.equal(add(x, y), x + y)
    x = torch.randn(7, 1).expand(7, 5)
    assert torch.equal(add(x, y), x + y)


@helion.kernel(static_shapes=False)
def row_sum(x):
    out = x.new_empty([x.size(0)])
    for t in hl.tile(x.size(0)):
        out[t] = x[t, :].sum(1)
    return out


@helion.kernel(static_shapes=False)
def softmax(x):
    m, _ = x.shape
    out = torch.empty_like(x)
    for t in hl.tile(m):
        out[t, :] = torch.softmax(x[t, :], 1)
    return out


@pytest.mark.parametrize("config", [None, helion.Config(block_sizes=[4])], ids=["whole", "small"])
def test_reductions_over_a_runtime_size(config, traces: list[str]) -> None:
    row_sum.reset()
    for n in SIZES:
        x = torch.randn(5, n)
        bound = row_sum.bind((x,))
        result = bound(x) if config is None else bound.compile_config(config)(x)
        check_against(result, x.double().sum(1), reduction_length=max(n, 1))
    assert len(traces) <= 4


def test_means_divide_by_the_runtime_size() -> None:
    @helion.kernel(static_shapes=False)
    def mean(x):
        out = x.new_empty([x.size(0)])
        for t in hl.tile(x.size(0)):
            out[t] = x[t, :].mean(1)
        return out

    for n in (3, 7, 12, 1):
        x = torch.randn(5, n)
        check_against(mean(x), x.double().mean(1), reduction_length=n)


def test_softmax_over_a_runtime_size() -> None:
    for m, n in ((5, 3), (3, 5), (5, 5), (9, 17), (2, 1)):
        x = torch.randn(m, n)
        check_against(softmax(x), torch.softmax(x.double(), 1), reduction_length=n)


@helion.kernel(static_shapes=False)
def matmul(x, y):
    m, k = x.size()
    k2, n = y.size()
    assert k == k2, "inner sizes differ"
    out = torch.empty([m, n], dtype=x.dtype, device=x.device)
    for t, u in hl.tile([m, n]):
        acc = hl.zeros([t, u], dtype=torch.float32)
        for v in hl.tile(k):
            acc = torch.addmm(acc, x[t, v], y[v, u])
        out[t, u] = acc
    return out


def test_products_of_runtime_sizes(traces: list[str]) -> None:
    matmul.reset()
    for m, n, k in ((5, 6, 7), (16, 16, 16), (17, 3, 31), (8, 8, 9), (2, 40, 3)):
        x, y = torch.randn(m, k), torch.randn(k, n)
        check_against(matmul(x, y), x.double() @ y.double(), reduction_length=k)
    assert len(traces) == 1


def test_assertions_of_host_code_stay() -> None:
    with pytest.raises(AssertionError, match="inner sizes differ"):
        matmul(torch.randn(3, 4), torch.randn(5, 6))


@helion.kernel(static_shapes=False)
def two_tensors(x, y):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = x[t] + y[t, :].sum(1)
    return out


def test_a_slice_that_was_as_long_as_another_dimension() -> None:
    for m, n in ((6, 6), (6, 4), (4, 6), (5, 5)):
        x, y = torch.randn(m), torch.randn(m, n)
        exact = x.double() + y.double().sum(1)
        check_against(two_tensors(x, y), exact, reduction_length=n + 1)


@helion.kernel(static_shapes=False)
def specialised(x):
    n = hl.specialize(x.size(1))
    out = x.new_empty([x.size(0)])
    for t in hl.tile(x.size(0)):
        acc = hl.zeros([t, n])
        acc = acc + x[t, :]
        out[t] = acc.sum(1)
    return out


def test_specialised_sizes_make_a_kernel_each(traces: list[str]) -> None:
    specialised.reset()
    for m, n in ((5, 4), (9, 4), (5, 6), (7, 6), (12, 4), (4, 4), (6, 6)):
        x = torch.randn(m, n)
        check_against(specialised(x), x.double().sum(1), reduction_length=n)
    # 5x4 and 5x6; 4x4 and 6x6 have a second size that equals the constant.
    assert len(traces) <= 4


def test_a_runtime_size_cannot_be_a_dimension_by_itself() -> None:
    @helion.kernel(static_shapes=False)
    def allocates(x, n):
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            out[t] = x[t] + hl.zeros([n * 2]).sum(0)
        return out

    with pytest.raises(exc.ShapeSpecializingAllocation):
        allocates(torch.randn(5), 3)


@helion.kernel(static_shapes=False)
def host_sizes(x, count):
    padded = x.new_zeros([count * 2])
    for t in hl.tile(padded.size(0)):
        padded[t] = padded[t] + t.index
    return padded


def test_sizes_of_tensors_that_host_code_makes(traces: list[str]) -> None:
    host_sizes.reset()
    for count in (3, 5, 9, 4):
        assert torch.equal(host_sizes(torch.zeros(1), count), torch.arange(count * 2.0))
    assert len(traces) == 1


@helion.kernel(static_shapes=False)
def strided(x):
    stride, rows = x.stride(0), x.size(0)
    out = torch.empty([rows], device=x.device)
    for t in hl.tile(rows):
        out[t] = t.index * stride
    return out


def test_strides_are_runtime_values(traces: list[str]) -> None:
    strided.reset()
    for step in (2, 3, 5):
        x = torch.zeros(4, 6 * step)
        assert torch.equal(strided(x), torch.arange(4.0) * 6 * step)
    assert len(traces) == 1


def test_static_shapes_make_a_kernel_per_shape(traces: list[str]) -> None:
    @helion.kernel
    def copy(x):
        out = torch.empty_like(x)
        for t in hl.tile(x.size(0)):
            out[t] = x[t]
        return out

    for n in (3, 5, 3, 5):
        copy(torch.randn(n))
    assert len(traces) == 2


def test_one_executable_serves_the_shapes_on_a_gpu_too() -> None:
    first = add.bind((torch.randn(7, 5), torch.randn(7, 5)), target="cuda:90")
    again = add.bind((torch.randn(9, 33), torch.randn(9, 33)), target="cuda:90")
    assert first is again
    sources = [parameter.source for parameter in first.to_artifact().parameters]
    assert "x.size(0)" in sources


@helion.kernel(static_shapes=False)
def scaled_by_width(x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    width = hl.specialize(x.size(1))
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t, :] = (x[t, :] + hl.zeros([t, width])) * weights[:] + width
    return out


def test_specialising_one_size_leaves_an_equal_one_alone() -> None:
    square, weights = torch.randn(8, 8), torch.randn(8)
    code = scaled_by_width.bind((square, weights)).to_code()
    assert "x: f32[x_size_0, 8]" in code
    assert "weights: f32[8]" in code, "the same dimension as the constant"
    for rows in (8, 5, 1):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(scaled_by_width(x, weights), x * weights + 8)
    assert scaled_by_width.bind((torch.randn(5, 8), weights)).to_code() == code


@helion.kernel(static_shapes=False)
def plus_sums(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t, :] = x[t, :] + (x[t, :] * y[:]).sum(-1)[:, None]
    return out


def test_a_bound_kernel_shows_the_code_for_its_arguments() -> None:
    square = plus_sums.bind((torch.randn(6, 6), torch.randn(6))).to_code()
    assert "range(x_size_1)" not in square, "one size stands for both"
    assert "range(x_size_1)" in plus_sums.bind((torch.randn(9, 6), torch.randn(6))).to_code()


@helion.kernel(static_shapes=False)
def plus_a_specialised_stride(x: torch.Tensor) -> torch.Tensor:
    step = hl.specialize(x.stride(dim=-2))
    out = torch.empty_like(x)
    for t in hl.tile(x.size()):
        out[t] = x[t] + step
    return out


@pytest.mark.parametrize("step", [5, 7, 11])
def test_a_specialised_stride_is_a_constant_of_the_code(step: int):
    x = torch.randn(64).as_strided((4, 5), (step, 1))
    torch.testing.assert_close(plus_a_specialised_stride(x), x + step)
    code = plus_a_specialised_stride.bind((x,)).to_triton_code(target="cuda:90")
    assert f"* {step}" in code
    assert "x_stride" not in code
    assert "out_stride_0" in code


def marked(x: torch.Tensor, *axes: int) -> torch.Tensor:
    torch._dynamo.mark_static(x, list(axes))
    return x


def test_sizes_marked_as_static_are_constants_of_a_kernel_of_their_own(traces: list[str]) -> None:
    add.reset()
    x, y = torch.randn(48, 24), torch.randn(48, 24)
    general = add.bind((x, y))
    special = add.bind((marked(x.clone(), -1), y))
    assert special is not general
    assert "x: f32[x_size_0, 24]" in special.to_code()
    assert "x: f32[x_size_0, x_size_1]" in add.bind((x, y)).to_code()
    for given in (marked(torch.randn(9, 24), 1), marked(torch.randn(7, 24), 1)):
        assert add.bind((given, given * 2)) is special
        assert torch.equal(add(given, given * 2), given + given * 2)
    before = len(traces)
    other = marked(torch.randn(9, 20), 1)
    assert torch.equal(add(other, other * 2), other + other * 2)
    assert torch.equal(add(x, y), x + y)
    assert len(traces) == before + 1


@helion.kernel(static_shapes=False)
def turned_pairs(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    n = hl.specialize(x.size(1))
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        left, right = hl.split(x[t, :].reshape(t, n // 2, 2))
        turned = hl.join(left * angles[t, :], right - angles[t, :])
        out[t, :] = turned.reshape(t, n)
    return out


def test_a_runtime_size_that_meets_a_constant_is_that_constant() -> None:
    for rows, columns in ((7, 16), (9, 16), (9, 12)):
        x, angles = torch.randn(rows, columns), torch.randn(rows, columns // 2)
        expected = torch.stack([x[:, ::2] * angles, x[:, 1::2] - angles], -1).flatten(1)
        assert torch.equal(turned_pairs(x, angles), expected)
    with pytest.raises(exc.ShapeMismatch):
        turned_pairs(torch.randn(9, 16), torch.randn(9, 7))
