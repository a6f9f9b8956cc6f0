"""Every example on a CPU target: defaults and random Configs are valid, resolve and run rightly."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from random import Random

import pytest
import torch

from tests.backends.cpu.schedule.cpu_runs import CASES, MACHINE, CpuKernel, spec_at, spec_on
from tests.lowering import schedule_function
from tilesmith.ir.types import next_power_of_2
from tilesmith.schedule.config import Config
from tilesmith.targets import parse_target

F32, BF16 = torch.float32, torch.bfloat16
RUNS = 2

# Name, size, block sizes, whether programs are handed out one by one, whether stores bypass caches.
BENCHMARKS = (
    ("add", (4096, 4096), F32, [16, 4096], False, True),
    ("softmax", (4096, 4096), F32, [1], False, True),
    ("softmax", (4096, 4096), BF16, [1], False, False),
    ("softmax_two_pass", (4096, 4096), F32, [1, 4096], False, True),
    ("layer_norm_fwd", (4096, 4096), F32, [1], False, True),
    ("layer_norm_bwd", (4096, 4096), F32, [512, 1], False, True),
    ("rms_norm", (4096, 4096), F32, [1], False, True),
    ("rms_norm", (4096, 4096), BF16, [1], False, False),
    ("sum_rows", (4096, 4096), F32, [1], False, False),
    ("sum_columns", (4096, 4096), F32, [512], False, False),
    ("long_sum_manual", (4096, 4096), F32, [4096, 1], False, False),
    ("cross_entropy", (4096, 32000), F32, [1], False, False),
    ("geglu", (4096, 4096), F32, [16, 4096], False, True),
    ("geglu", (4096, 4096), BF16, [16, 4096], False, False),
    ("matmul", (1024, 1024, 1024), F32, [128, 512, 256], True, False),
    ("matmul", (1024, 1024, 1024), BF16, [128, 512, 256], True, False),
    ("bmm", (16, 512, 512, 512), F32, [1, 256, 512, 512], False, False),
    ("matmul_layernorm", (4096, 512, 512), F32, [64, 512], False, False),
    ("attention", (4, 1024, 1024, 64), F32, [1, 128, 128], False, False),
    ("attention", (4, 1024, 1024, 64), BF16, [1, 128, 128], False, False),
    ("causal_attention", (4, 1024, 1024, 64), F32, [1, 128, 128], True, False),
    ("embedding", (4096, 1000, 512), F32, [128, 512], False, False),
    ("jagged_mean", (512, 128, 256), F32, [1, 256, 16], True, False),
)


@pytest.mark.parametrize(("name", "size", "dtype", "blocks", "is_dynamic", "streams"), BENCHMARKS)
def test_defaults_at_benchmark_shapes(name, size, dtype, blocks, is_dynamic, streams):
    config = spec_at(name, size, dtype).default_config()
    assert config.block_sizes == blocks
    assert (config.cpu_schedule == "dynamic") == is_dynamic
    assert config.cpu_streaming_stores == streams
    assert all(chunk is None for chunk in config.reduction_loops)


@pytest.mark.parametrize("name", CASES)
def test_every_default_runs_rightly_at_every_size(name):
    case = CASES[name]
    for size in case.sizes:
        kernel = CpuKernel(case, size)
        config = kernel.spec.default_config()
        extents = map(kernel.spec.outline.extent, _dims(kernel))
        for block, extent in zip(config.block_sizes, extents):
            assert extent is None or block <= next_power_of_2(extent)
        case.check(kernel.run(config), kernel.args, size, case.dtypes[0])


def _dims(kernel):
    shapes = [value.tile.shape for value in kernel.spec.outline.tile_values]
    known = {dim.symbol: dim for shape in shapes for dim in shape}
    return [known[name] for name in kernel.spec.entries.blocks if name in known]


@pytest.mark.parametrize("name", CASES)
def test_random_configs_resolve_and_run_rightly(name):
    case = CASES[name]
    size = case.sizes[-1]
    kernel = CpuKernel(case, size)
    spec, rng = kernel.spec, Random(name)
    configs = [spec.random_config(rng) for _ in range(100)]
    # Many different ones, or every one there is.
    space = prod(dimension.fragment.cardinality for dimension in spec.dimensions())
    assert len(set(configs)) >= min(21, space)
    for config in configs:
        assert spec.normalize(config) == config
        lowered, schedule = schedule_function(spec.function, spec, config)
        assert {block.name for block in lowered.blocks} <= schedule.symbols.keys()
        assert schedule.padded == {}
    for config in configs[:RUNS]:
        case.check(kernel.run(config), kernel.args, size, case.dtypes[0])


@pytest.mark.parametrize("name", CASES)
def test_configs_of_gpus_run_rightly_on_a_cpu(name):
    case = CASES[name]
    size = case.sizes[-1]
    kernel = CpuKernel(case, size)
    rng = Random(name)
    foreign = [
        kernel.spec_on(parse_target(t)).random_config(rng) for t in ("cuda:90", "hip:gfx942")
    ]
    for config in (case.config, *foreign):
        blocks = kernel.spec.normalize(config).block_sizes
        # No inner tile is longer than the tile it walks, here as there.
        assert blocks == config.block_sizes or kernel.spec.outline.outer_bounds
        case.check(kernel.run(config), kernel.args, size, case.dtypes[0])


@pytest.mark.parametrize("name", CASES)
def test_configs_of_a_cpu_are_valid_on_a_gpu(name):
    kernel = CpuKernel(CASES[name], CASES[name].sizes[-1])
    spec = kernel.spec_on(parse_target("cuda:90"))
    config = spec.normalize(kernel.spec.default_config())
    assert not any(key.startswith("cpu_") for key in config)


@pytest.mark.parametrize("chunk", [8, 16, 1024, 2048])
@pytest.mark.parametrize("name", ["softmax", "layer_norm_fwd", "cross_entropy", "long_sum"])
def test_rows_in_chunks(name, chunk):
    case, size = CASES[name], (3, 2500)
    kernel = CpuKernel(case, size)
    config = Config(block_sizes=[2], reduction_loops=[chunk])
    assert kernel.spec.normalize(config).reduction_loops == [chunk]
    case.check(kernel.run(config), kernel.args, size, case.dtypes[0])


@pytest.mark.parametrize("blocks", [[24, 40, 56], [8, 8, 8], [96, 72, 200], [1, 64, 2]])
def test_blocks_need_not_be_powers_of_two(blocks):
    case, size = CASES["matmul"], (50, 75, 70)
    kernel = CpuKernel(case, size)
    config = Config(block_sizes=blocks)
    assert kernel.spec.normalize(config).block_sizes == blocks
    case.check(kernel.run(config), kernel.args, size, case.dtypes[0])


@pytest.mark.parametrize("cores", [1, 2, 8, 64, 192])
@pytest.mark.parametrize(("name", "size"), [(row[0], row[1]) for row in BENCHMARKS[::2]])
def test_large_problems_have_a_program_for_every_core(name, size, cores):
    spec = spec_on(name, size, replace(MACHINE, num_sms=cores))
    sizes = spec.sizes(spec.default_config()).symbols
    (grid,) = spec.outline.grids
    programs = 1
    for axis in spec.outline.axes_of(grid):
        assert axis.extent is not None
        programs *= -(-axis.extent // sizes[axis.block])
    # Tiles of products are not cut below 64 rows and columns.
    assert programs >= min(cores, 64 if spec.facts.matmuls or name == "sum_columns" else cores)
