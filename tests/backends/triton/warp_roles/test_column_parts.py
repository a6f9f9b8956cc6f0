"""Products whose tiles have columns in parts, run on the CPU as emitted, against fp64."""

from __future__ import annotations

import pytest
import torch

import tilesmith
import tilesmith.language as hl
from examples.matmul import bias_relu, matmul
from examples.matmul import reference as matmul_reference
from tests.backends.triton.warp_roles.gluon_memory import ProtocolError
from tests.backends.triton.warp_roles.gluon_simulator import Simulation
from tests.backends.triton.warp_roles.warp_role_model import Explorer, record
from tests.backends.triton.warp_roles.warp_role_modules import any_stages, emit
from tilesmith.backends.triton.warp_roles.columns.splitting import find_columns, part_sizes
from tilesmith.backends.triton.warp_roles.plan import RolePlan, plan_roles
from tilesmith.exc import InvalidConfigValue
from tilesmith.numerics.compare import check_against


@pytest.mark.parametrize("pid", ["flat", "persistent_interleaved"])
@pytest.mark.parametrize(
    ("size", "blocks", "groups", "stages"),
    [
        ((64, 32, 96), [64, 96, 32], 1, 2),
        ((129, 72, 136), [64, 96, 16], 1, 1),
        ((128, 64, 104), [128, 96, 32], 2, 3),
        # The last tile has columns of its first part only.
        ((200, 40, 232), [192, 160, 16], 3, 3),
        ((65, 24, 328), [128, 320, 16], 2, 2),
        ((256, 16, 192), [256, 192, 16], 2, 2),
        ((192, 40, 264), [192, 256, 16], 3, 3),
    ],
)
def test_products(size, blocks, groups, stages, pid):
    m, k, n = size
    torch.manual_seed(0)
    x, y, bias = (torch.randn(shape).bfloat16() for shape in ((m, k), (k, n), (n,)))
    finish = bias_relu(bias)
    options = {"num_warps": 4 * groups, "num_stages": stages, "pid_type": pid}
    text = emit(matmul, (x, y, finish), block_sizes=blocks, **options)
    found = Simulation(text)["matmul"](x, y, finish)
    check_against(found, matmul_reference(x, y, finish), reduction_length=k)


def explore(groups, stages, turns, change=lambda text: text):
    """The roles of a product with two parts in every order; its left tiles are read twice."""
    kernel = tilesmith.kernel(matmul.fn, static_shapes=True)
    args = torch.zeros(64 * groups, 32).bfloat16(), torch.zeros(32, 192).bfloat16()
    options = {"num_warps": 4 * groups, "num_stages": stages}
    pid = "persistent_interleaved" if len(turns) > 1 else "flat"
    with any_stages():
        text = emit(kernel, args, block_sizes=[64 * groups, 96, 16], pid_type=pid, **options)
    reads = {"x_tiles": [turn for turn in range(sum(turns)) for _ in range(2)]}
    return Explorer(record(change(text), "matmul", args, turns, reads)).explore()


@pytest.mark.parametrize(("groups", "stages"), [(1, 1), (1, 3), (2, 2), (3, 3)])
def test_both_parts_in_every_order(groups, stages):
    for turns in ((1,), (4,), (2, 1)):
        assert explore(groups, stages, turns) > sum(turns) * groups


def test_a_tile_is_kept_until_all_parts_have_read_it():
    def hurry(text):
        return text.replace("warpgroup_mma_wait(2,", "warpgroup_mma_wait(3,")

    with pytest.raises(ProtocolError):
        explore(1, 2, (4,), hurry)


@pytest.mark.parametrize(
    ("columns", "groups", "sizes"),
    [
        (256, 2, (256,)),
        (256, 3, (128, 128)),
        (320, 2, (256, 64)),
        (144, 2, (128, 16)),
        (96, 3, (64, 32)),
        (384, 2, (256, 128)),
    ],
)
def test_parts_are_powers_of_two(columns, groups, sizes):
    assert part_sizes(columns, groups) == sizes


@tilesmith.kernel(static_shapes=True)
def rows_are_summed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0)], dtype=torch.float32, device=x.device)
    for tile_m, tile_n in hl.tile([x.size(0), y.size(1)]):
        acc = hl.zeros([tile_m, tile_n])
        for tile_k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, tile_n])
        out[tile_m] = acc.sum(-1)
    return out


@tilesmith.kernel(static_shapes=True)
def columns_are_shifted(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0), y.size(1)], dtype=x.dtype, device=x.device)
    for tile_m, tile_n in hl.tile([x.size(0), y.size(1)]):
        acc = hl.zeros([tile_m, tile_n])
        for tile_k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, tile_n])
        scale = tile_n.index + tile_n.begin
        out[tile_m, tile_n] = (acc * scale[None, :]).to(out.dtype)
    return out


def plan_of(kernel):
    sizes = ((256, 64), (64, 320))
    args = [torch.empty(size, dtype=torch.bfloat16, device="meta") for size in sizes]
    spec = kernel.bind(kernel.normalize_args(*args), target="cuda:90").config_spec
    plan = plan_roles(spec.kernel.outline.function)
    assert isinstance(plan, RolePlan)
    return plan


def test_what_needs_all_columns_at_once_is_not_split():
    assert find_columns(plan_of(matmul)) == "tile_n"
    assert find_columns(plan_of(rows_are_summed)) is None
    x, y = torch.zeros(64, 32).bfloat16(), torch.zeros(32, 96).bfloat16()
    with pytest.raises(InvalidConfigValue, match="a power of two"):
        emit(rows_are_summed, (x, y), block_sizes=[64, 96, 32], num_warps=4)


def test_indices_of_columns_are_those_of_the_part():
    torch.manual_seed(0)
    x, y = torch.randn(64, 32).bfloat16(), torch.randn(32, 200).bfloat16()
    text = emit(columns_are_shifted, (x, y), block_sizes=[64, 96, 32], num_warps=4)
    found = Simulation(text)["columns_are_shifted"](x, y)
    columns = torch.arange(200)
    exact = (x.double() @ y.double()) * (columns + columns // 96 * 96)
    check_against(found, exact, reduction_length=32)


def default(size, kernel=matmul, extra=()):
    m, k, n = size
    args = [torch.empty(shape, dtype=torch.bfloat16, device="meta") for shape in ((m, k), (k, n))]
    bound = kernel.bind(kernel.normalize_args(*args, *extra), target="cuda:90")
    return bound.config_spec.default_config()


@pytest.mark.parametrize(
    ("size", "blocks", "pid"),
    [
        ((1536, 1536, 1536), [128, 144, 64], "flat"),
        ((20120, 512, 1536), [192, 128, 64], "persistent_interleaved"),
        ((3072, 3072, 3072), [192, 128, 64], "persistent_interleaved"),
        ((5120, 5120, 5120), [128, 320, 64], "flat"),
        # The second operand's rows begin between sectors: fewer of them for each result.
        ((15000, 800, 1000), [256, 128, 64], "persistent_interleaved"),
    ],
)
def test_defaults_fill_waves(size, blocks, pid):
    config = default(size)
    assert config["structure"] == "warp_roles"
    assert (config["block_sizes"], config["pid_type"]) == (blocks, pid)


@pytest.mark.parametrize(
    "size", [(512, 512, 512), (1024, 1024, 4096), (1792, 1792, 1792), (4096, 4096, 4096)]
)
def test_products_that_fill_their_waves_stay_as_they_are(size):
    assert "structure" not in default(size)


def test_long_functions_and_loaded_matrices_keep_the_other_form():
    def gelu(acc, tile):
        return torch.nn.functional.gelu(acc)

    other = torch.empty(1536, 1536, dtype=torch.bfloat16, device="meta")
    assert "structure" not in default((1536, 1536, 1536), extra=(gelu,))
    assert "structure" not in default((1536, 1536, 1536), extra=(lambda a, t: a + other[t],))
