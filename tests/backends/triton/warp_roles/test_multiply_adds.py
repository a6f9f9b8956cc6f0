"""Products of fp32 by multiply-adds of warps with roles, run on the CPU as emitted."""

from __future__ import annotations

import re
import subprocess
from itertools import pairwise

import pytest
import torch
import triton.knobs

import tilesmith
import tilesmith.language as hl
from examples.matmul import bias_relu, matmul
from examples.matmul import reference as matmul_reference
from tests.backends.triton.warp_roles.gluon_simulator import Simulation
from tests.backends.triton.warp_roles.warp_role_modules import emit
from tilesmith.backends.triton.build import compile_artifact
from tilesmith.backends.triton.multiply_adds import functions
from tilesmith.exc import InvalidConfig
from tilesmith.numerics.compare import check_against

FORM = "multiply_add_roles"
exact_matmul = tilesmith.kernel(matmul.fn, static_shapes=True, dot_precision="ieee")


def operands(m, k, n, turned=""):
    torch.manual_seed(0)
    x, y = torch.randn(m, k), torch.randn(k, n)
    x = x.T.contiguous().T if "x" in turned else x
    return x, y.T.contiguous().T if "y" in turned else y


@pytest.mark.parametrize("turned", ["", "x", "y", "xy"])
@pytest.mark.parametrize(
    ("size", "blocks", "stages"),
    [
        ((128, 64, 128), [128, 128, 32], 2),
        ((300, 72, 136), [128, 128, 32], 3),
        ((68, 40, 200), [64, 64, 16], 4),
        ((132, 100, 64), [64, 128, 16], 2),
    ],
)
def test_products(size, blocks, stages, turned):
    m, k, n = size
    x, y = operands(m, k, n, turned)
    options = {"num_warps": 4, "num_stages": stages, "structure": FORM}
    text = emit(exact_matmul, (x, y), block_sizes=blocks, **options)
    found = Simulation(text, seed=stages)["matmul"](x, y)
    check_against(found, x.double() @ y.double(), reduction_length=k)


def test_what_follows_a_product():
    x, y = operands(132, 72, 140)
    finish = bias_relu(torch.randn(140))
    text = emit(
        exact_matmul, (x, y, finish), block_sizes=[128, 64, 32], num_warps=4, structure=FORM
    )
    found = Simulation(text)["matmul"](x, y, finish)
    check_against(found, matmul_reference(x, y, finish), reduction_length=72)


def test_zeros_stand_beyond_the_sum():
    """Not NaN, which what lies behind the rows of an operand may hold."""
    wide = torch.full((128, 80), float("nan"))
    wide[:, :40] = torch.randn(128, 40)
    x, y = wide[:, :40], torch.randn(40, 128)
    text = emit(exact_matmul, (x, y), block_sizes=[128, 128, 32], num_warps=4, structure=FORM)
    check_against(Simulation(text)["matmul"](x, y), x.double() @ y.double(), reduction_length=40)


@pytest.mark.parametrize(("rows", "columns"), [(64, 64), (128, 128), (64, 128)])
def test_every_multiply_add_reuses_an_operand(rows, columns):
    """One register of the one before, in the same place; sums are all there, each once."""
    count = len(functions.places(rows, columns))
    lines = functions.multiply_adds(rows, columns).splitlines()
    parsed = [[int(part.strip(" ;$")) for part in line[10:].split(",")] for line in lines]
    assert sorted(line[0] for line in parsed) == list(range(count))
    assert all(line[3] == 3 * count + line[0] for line in parsed)
    for before, after in pairwise(parsed):
        assert before[1] == after[1] or before[2] == after[2]
    where = functions.places(rows, columns)
    for result, left, right, _ in parsed:
        assert where[left - count][0] == where[result][0]
        assert where[right - 2 * count][1] == where[result][1]


def bind(m, k, n, turned="", **settings):
    x = torch.empty(k, m, device="meta").T if "x" in turned else torch.empty(m, k, device="meta")
    y = torch.empty(n, k, device="meta").T if "y" in turned else torch.empty(k, n, device="meta")
    kernel = tilesmith.kernel(matmul.fn, static_shapes=True, **settings)
    return kernel.bind(kernel.normalize_args(x, y), target="cuda:90")


@pytest.mark.parametrize("turned", ["", "y"])
def test_compiled_loops_spill_nothing(turned, tmp_path):
    config = {"block_sizes": [128, 128, 32], "num_warps": 4, "num_stages": 3, "structure": FORM}
    bound = bind(512, 512, 512, turned, dot_precision="ieee")
    built = compile_artifact(bound.to_artifact(tilesmith.Config.from_dict(config)))
    path = tmp_path / "kernel.cubin"
    path.write_bytes(built.binary)
    command = [triton.knobs.nvidia.cuobjdump.path, "--dump-resource-usage", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert re.findall(r"STACK:(\d+)", done.stdout) == ["0"]


@pytest.mark.parametrize("settings", [{"dot_precision": "tf32"}, {"dot_precision": "tf32x3"}])
def test_products_by_matrix_units_have_no_such_form(settings):
    assert FORM not in bind(512, 512, 512, **settings).config_spec.forms()


@pytest.mark.parametrize("size", [(1, 1024, 1), (1, 512, 128), (128, 512, 1)])
def test_products_with_a_side_of_one_element_have_no_such_form(size):
    # It was offered, and could not be emitted: there is no tile to bring.
    assert FORM not in bind(*size).config_spec.forms()


def test_reasons_are_told():
    def sums(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = torch.empty([x.size(0), y.size(1)], device=x.device)
        for tile_m, tile_n in hl.tile([x.size(0), y.size(1)]):
            acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
            for tile_k in hl.tile(x.size(1)):
                acc = torch.addmm(acc, torch.relu(x[tile_m, tile_k]), y[tile_k, tile_n])
            out[tile_m, tile_n] = acc
        return out

    kernel = tilesmith.kernel(sums, static_shapes=True, dot_precision="ieee")
    tensors = torch.empty(256, 256, device="meta"), torch.empty(256, 256, device="meta")
    config = tilesmith.Config.from_dict({"block_sizes": [128, 128, 32], "structure": FORM})
    with pytest.raises(InvalidConfig):
        kernel.bind(tensors).to_triton_code(config, target="cuda:90")


def test_shared_memory_is_that_of_two_programs():
    config = {"block_sizes": [128, 128, 64], "num_warps": 4, "num_stages": 3, "structure": FORM}
    bound = bind(512, 512, 512, dot_precision="ieee")
    with pytest.raises(InvalidConfig, match="shared memory"):
        bound.to_artifact(tilesmith.Config.from_dict(config))


@pytest.mark.parametrize(
    ("size", "turned", "tile"),
    [
        ((4096, 4096, 4096), "", [64, 64, 32]),
        ((4096, 4096, 4096), "x", [128, 128, 16]),
        ((4096, 4096, 4096), "y", [128, 128, 16]),
        ((34579, 512, 512), "y", [128, 128, 16]),
        ((34579, 512, 512), "x", [64, 64, 32]),
        ((1024, 1024, 1024), "y", [64, 64, 32]),
    ],
)
def test_default_tiles_where_operands_lie_across(size, turned, tile):
    """A right operand along the sum took 9.8 ms in tiles of 64x64, 5.5 in these (4096^3)."""
    m, k, n = size
    bound = bind(m, k, n, turned, dot_precision="ieee")
    listed = bound.config_spec.fallback_configs()
    assert next(x for x in listed if "structure" not in x).block_sizes == tile


@pytest.mark.parametrize(
    ("size", "turned", "is_default"),
    [
        ((4096, 4096, 4096), "", True),
        ((4096, 4096, 4096), "x", True),
        ((2048, 2048, 2048), "xy", True),
        ((34579, 512, 512), "y", True),
        ((131072, 512, 512), "", False),
        ((131072, 512, 512), "x", False),
        ((1024, 1024, 1024), "y", False),
        ((300, 4096, 300), "", False),
    ],
)
def test_the_form_is_the_default_where_it_was_faster(size, turned, is_default):
    """4096^3 on an H200, ms: 2.92, not 2.97; with a right operand along the sum 3.52, not 5.52."""
    m, k, n = size
    config = bind(m, k, n, turned, dot_precision="ieee").config_spec.default_config()
    assert (config.get("structure") == FORM) == is_default
