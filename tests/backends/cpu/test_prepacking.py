"""Operands packed once for all programs: shapes, types, layouts, threads; and when they are not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.backends.cpu.dots.native_product import place
from tests.conformance.case import randn
from tests.host_backends import OLDER_TARGETS
from tilesmith.backends.cpu.emission import context
from tilesmith.numerics.compare import check_against
from tilesmith.runtime.native.host_cpu import host_target

BLOCKS: dict[str, Any] = {"block_sizes": [16, 32, 32]}
NOTE = "y is packed once for all programs"


@pytest.fixture(params=[1, 2, 4])
def eager_threads(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Several threads share however little there is to do."""
    monkeypatch.setattr(context, "MIN_PARALLEL_WORK", 1)
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


@helion.kernel(backend="cpu", static_shapes=True)
def product(x, y, out):
    for tile_m, tile_n in hl.tile([x.size(0), y.size(1)]):
        acc = hl.zeros([tile_m, tile_n], dtype=out.dtype)
        for tile_k in hl.tile(x.size(1)):
            acc = hl.dot(x[tile_m, tile_k], y[tile_k, tile_n], acc=acc)
        out[tile_m, tile_n] = acc


@helion.kernel(backend="cpu", static_shapes=False)
def product_of_any_size(x, y, out):
    for tile_m, tile_n in hl.tile([x.size(0), y.size(1)]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, tile_n])
        out[tile_m, tile_n] = acc


def run(kernel: Any, *args: Any, target: str | None = None, **config: Any) -> str:
    """Run with a config, compiled anew; the plan as text."""
    fresh = helion.kernel(kernel.fn, **kernel.settings.to_dict())
    bound = fresh.bind(args, target=target)
    bound.compile_config(helion.Config(**config))(*args)
    return bound.to_code(helion.Config(**config))


def check_product(kernel: Any, x: torch.Tensor, y: torch.Tensor, **config: Any) -> str:
    out = torch.full((x.size(0), y.size(1)), torch.nan)
    text = run(kernel, x, y, out, **(config or BLOCKS))
    check_against(out, x.double() @ y.double(), reduction_length=x.size(1))
    return text


@pytest.mark.parametrize(
    ("m", "n", "k"),
    [
        (64, 600, 32), (49, 577, 33), (200, 544, 2), (64, 543, 31), (97, 640, 65), (64, 1031, 16),
        (52, 513, 127), (1000, 545, 300),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("eager_threads")
def test_extents_around_the_blocks(m: int, n: int, k: int) -> None:
    assert NOTE in check_product(product, randn(m, k), randn(k, n))


@helion.kernel(backend="cpu", static_shapes=True)
def converted_product(x, y, out):
    for rows in hl.tile(x.size(0)):
        acc = hl.zeros([rows, y.size(1)], dtype=torch.float32)
        for steps in hl.tile(x.size(1)):
            left = x[rows, steps].to(torch.bfloat16)
            acc = hl.dot(left, y[steps, :].to(torch.bfloat16), acc=acc)
        out[rows, :] = acc


NARROW = (torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)


@pytest.mark.parametrize("left", NARROW, ids=str)
@pytest.mark.parametrize("right", NARROW, ids=str)
def test_operands_converted_to_bf16_are_no_pairs_in_memory(
    left: torch.dtype, right: torch.dtype
) -> None:
    x, y = randn(33, 128).to(left), randn(128, 256).to(right)
    check_product(converted_product, x, y, block_sizes=[2, 128])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float8_e5m2], ids=str)
@pytest.mark.parametrize("is_transposed", [False, True])
def test_half_precision_is_widened_while_packing(dtype: torch.dtype, is_transposed: bool) -> None:
    x, y = randn(70, 45).to(dtype), randn(45, 83).to(dtype)
    if is_transposed:
        y = y.t().contiguous().t()
    text = check_product(product, x, y)
    assert (NOTE in text) != (dtype == torch.bfloat16 and host_target().has_matrix_tiles)


def test_double_precision() -> None:
    x, y, out = randn(70, 45).double(), randn(45, 300).double(), torch.zeros(70, 300).double()
    assert NOTE in run(product, x, y, out, **BLOCKS)
    check_against(out, x @ y, reduction_length=45)


def test_integers_are_widened_while_packing() -> None:
    x, y = (randn(*shape).mul(50).to(torch.int8) for shape in ((70, 45), (45, 300)))
    out = torch.zeros(70, 300, dtype=torch.int32)
    assert NOTE in run(product, x, y, out, **BLOCKS)
    assert torch.equal(out, x.int() @ y.int())


LAYOUTS = {
    "transposed": lambda: randn(150, 77).t(),
    "columns apart": lambda: randn(77, 300)[:, ::2],
    "rows apart": lambda: randn(154, 150)[::2],
    "both apart": lambda: randn(154, 300)[::2, ::2],
    "one row for all": lambda: randn(150).expand(77, 150),
    "one column for all": lambda: randn(77, 1).expand(77, 150),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kernel", [product, product_of_any_size], ids=["static", "runtime"])
@pytest.mark.usefixtures("eager_threads")
def test_layouts(kernel: Any, layout: str) -> None:
    check_product(kernel, randn(80, 77), LAYOUTS[layout]())


@pytest.mark.parametrize("at_end", [True, False])
@pytest.mark.parametrize("strides", [(517, 1), (1, 61), (1037, 2)], ids=str)
def test_nothing_around_the_operand_is_read(strides: tuple[int, int], at_end: bool) -> None:
    x, y = randn(80, 61), randn(61, 517)
    guard, guarded = place(y, strides, at_end=at_end)
    assert NOTE in check_product(product, x, guarded)
    assert guard.elements.isnan().sum() == guard.elements.numel() - y.numel()


@pytest.mark.parametrize("m", [0, 1, 16, 48, 49, 63, 64, 65, 200])
def test_sizes_of_run_time_decide_late(m: int) -> None:
    text = check_product(product_of_any_size, randn(m, 50), randn(50, 70))
    # Sizes 0 and 1 are constants: one row at most reads the operand where it is.
    assert (f"{NOTE} if enough share it" in text) == (m > 1)


@pytest.mark.parametrize(("n", "k"), [(0, 50), (70, 0), (1, 1)])
def test_empty_operands_of_run_time(n: int, k: int) -> None:
    check_product(product_of_any_size, randn(100, k), randn(k, n))


@pytest.mark.parametrize("target", OLDER_TARGETS)
def test_narrower_vectors(target: str) -> None:
    assert NOTE in check_product(product, randn(77, 45), randn(45, 557), target=target, **BLOCKS)


@pytest.mark.parametrize(("rows", "is_packed"), [(48, False), (49, True), (64, True)])
def test_few_programs_pack_for_themselves(rows: int, is_packed: bool) -> None:
    assert (NOTE in check_product(product, randn(rows, 40), randn(40, 600))) == is_packed


@pytest.mark.parametrize(("columns", "is_packed"), [(128, False), (129, True)])
def test_near_rows_are_read_in_place(columns: int, is_packed: bool) -> None:
    text = check_product(product, randn(128, 40), randn(40, columns))
    assert (NOTE in text) == is_packed


def test_tiles_that_begin_within_a_panel_are_packed_by_programs() -> None:
    text = check_product(product, randn(64, 40), randn(40, 600), block_sizes=[16, 24, 32])
    assert NOTE not in text


@helion.kernel(backend="cpu", static_shapes=True)
def half_product(x, y, out):
    n = y.size(1) // 2
    for tile_m, tile_n in hl.tile([x.size(0), n]):
        out[tile_m, tile_n] = hl.dot(x[tile_m, :], y[:, tile_n])


def test_parts_of_a_matrix_are_packed_by_programs() -> None:
    x, y, out = randn(64, 40), randn(40, 1200), torch.zeros(64, 600)
    assert NOTE not in run(half_product, x, y, out, block_sizes=[16, 32])
    check_against(out, x.double() @ y[:, :600].double(), reduction_length=40)


@helion.kernel(backend="cpu", static_shapes=True)
def whole_rows(x, y, out):
    for tile_m in hl.tile(x.size(0)):
        out[tile_m, :] = torch.relu(hl.dot(x[tile_m, :], y[:, :]))


@pytest.mark.usefixtures("eager_threads")
@pytest.mark.parametrize("n", [200, 513, 544])
def test_operands_taken_whole(n: int) -> None:
    x, y, out = randn(70, 45), randn(45, n), torch.zeros(70, n)
    assert NOTE in run(whole_rows, x, y, out, block_sizes=[16])
    check_against(out, torch.relu(x.double() @ y.double()), reduction_length=45)


@helion.kernel(backend="cpu", static_shapes=True)
def product_as_bf16(x, y, out):
    for tile_m, tile_n in hl.tile([x.size(0), y.size(1)]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(x.size(1)):
            left, right = x[tile_m, tile_k].bfloat16(), y[tile_k, tile_n].bfloat16()
            acc = hl.dot(left, right, acc=acc)
        out[tile_m, tile_n] = acc


@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize(
    ("left", "right"),
    [
        (torch.bfloat16, torch.float8_e5m2),
        (torch.float8_e4m3fn, torch.bfloat16),
        (torch.float8_e5m2, torch.float8_e4m3fn),
    ],
    ids=str,
)
def test_operands_of_fewer_bits_are_no_pairs(left, right, is_transposed: bool) -> None:
    x, y = randn(200, 77, dtype=left), randn(77, 200, dtype=right)
    check_product(product_as_bf16, x, y.t().contiguous().t() if is_transposed else y)


@pytest.mark.parametrize("k", [1, 7, 33, 64])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_rows_that_no_step_takes_are_not_multiplied(k: int, dtype: torch.dtype) -> None:
    x, y = randn(200, k, dtype=dtype), randn(k + 3, 100, dtype=dtype)
    y[k:] = torch.nan
    for right in (y, y.t().contiguous().t()):
        out = torch.empty(200, 100)
        run(product_of_any_size, x, right, out, **BLOCKS)
        check_against(out, x.double() @ y[:k].double(), reduction_length=k)


@helion.kernel(backend="cpu", static_shapes=True)
def two_products(x, y, z, out):
    for tile_m, tile_n in hl.tile([x.size(0), y.size(1)]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, tile_n])
            acc = torch.addmm(acc, x[tile_m, tile_k] * 2, z[tile_k, tile_n])
        acc = acc + hl.dot(x[tile_m, :], y[:, tile_n])
        out[tile_m, tile_n] = acc


@pytest.mark.usefixtures("eager_threads")
def test_several_operands_and_several_uses_of_one() -> None:
    x, y, z, out = randn(70, 45), randn(45, 555), randn(555, 45).t(), torch.zeros(70, 555)
    text = run(two_products, x, y, z, out, **BLOCKS)
    assert text.count("is packed once for all programs") == 2
    a, b, c = x.double(), y.double(), z.double()
    check_against(out, 2 * (a @ b + a @ c), reduction_length=4 * 45)


@helion.kernel(backend="cpu", static_shapes=True)
def two_loops(x, y, z, out, more):
    for tile_m, tile_n in hl.tile([x.size(0), y.size(1)]):
        out[tile_m, tile_n] = hl.dot(x[tile_m, :], y[:, tile_n])
    for tile_m, tile_n in hl.tile([x.size(0), z.size(1)]):
        more[tile_m, tile_n] = hl.dot(x[tile_m, :] * 2, z[:, tile_n])


@pytest.mark.usefixtures("eager_threads")
def test_every_loop_packs_its_own() -> None:
    x, y, z, out, more = (randn(*s) for s in ((70, 45), (45, 555), (45, 577), (70, 555), (70, 577)))
    text = run(two_loops, x, y, z, out, more, block_sizes=[16, 32, 16, 32])
    assert text.count("is packed once for all programs") == 2
    check_against(out, x.double() @ y.double(), reduction_length=45)
    check_against(more, 2 * x.double() @ z.double(), reduction_length=45)


@helion.kernel(backend="cpu", static_shapes=False)
def products_of_groups(x, y, offsets, out):
    k, n = hl.specialize(y.size())
    for group in hl.grid(offsets.size(0) - 1):
        begin, end = offsets[group], offsets[group + 1]
        if end > begin:
            for tile_m, tile_n in hl.tile([begin, 0], [end, n]):
                acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
                for tile_k in hl.tile(k):
                    acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, tile_n])
                out[tile_m, tile_n] = acc


@pytest.mark.usefixtures("eager_threads")
@pytest.mark.parametrize("sizes", [(5,), (0, 3, 0, 70), (1, 64, 0, 33, 7, 0), (0, 0, 0, 0, 0)])
@pytest.mark.parametrize("n", [544, 577])
def test_programs_that_may_skip_a_product_share_its_operand(sizes: Any, n: int) -> None:
    offsets = torch.tensor([0, *sizes], dtype=torch.int32).cumsum(0).int()
    x, y, out = randn(sum(sizes), 45), randn(45, n), torch.full((sum(sizes), n), torch.nan)
    text = run(products_of_groups, x, y, offsets, out, block_sizes=[16, 32, 32])
    assert f"{NOTE} if enough share it" in text
    check_against(out, x.double() @ y.double(), reduction_length=45)


@helion.kernel(backend="cpu", static_shapes=True)
def product_that_writes(x, y, out):
    for tile_m, tile_n in hl.tile([x.size(0), y.size(1)]):
        out[tile_m, tile_n] = hl.dot(x[tile_m, :], y[:, tile_n])
        y[:, tile_n] = y[:, tile_n] * 1


def test_operands_that_change_are_not_packed_before() -> None:
    x, y = randn(64, 64), randn(64, 600)
    out = torch.zeros(64, 600)
    assert NOTE not in run(product_that_writes, x, y, out, block_sizes=[16, 32])
    check_against(out, x.double() @ y.double(), reduction_length=64)
    memory = torch.zeros(128, 600)
    config = helion.Config(**BLOCKS)
    apart = product.bind((x, memory[:64], memory[64:])).to_code(config)
    same = product.bind((x, memory[:64], memory[:64])).to_code(config)
    assert NOTE not in same
    assert "acc[:, :] += x[tile_m:, tile_k:] @ y[tile_k:, tile_n:]" in apart


def test_operand_and_result_sizes_are_shown() -> None:
    text = check_product(product, randn(64, 40), randn(40, 600))
    lanes = host_target().vector_lanes
    panels, steps = -(-600 // (2 * lanes)), -(-40 // lanes) * lanes
    assert f"{NOTE}: {panels * steps * 2 * lanes * 4:,} bytes" in text
    assert "x in place, y packed" in text
