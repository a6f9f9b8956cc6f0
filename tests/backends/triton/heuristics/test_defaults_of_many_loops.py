"""Default Configs of kernels with several top-level loops: no loop is left with tiny tiles."""

from __future__ import annotations

import pytest
import torch

import tilesmith
import tilesmith.language as hl
from examples.attention import attention_bwd
from examples.bmm import bmm
from examples.matmul import matmul, matmul_bwd
from examples.split_k_barrier import split_k_barrier
from tilesmith.backends.triton.build import compile_artifact
from tilesmith.backends.triton.heuristics.seed import GpuSeed
from tilesmith.backends.triton.heuristics.several_grids import GridSeed, SeveralGridsSeed, each_grid
from tilesmith.schedule.facts.outline import GridOutline
from tilesmith.schedule.spec import ConfigSpec

TARGETS = ["cuda:80", "cuda:90", "cuda:100", "hip:gfx942", "hip:gfx950"]


@tilesmith.kernel(static_shapes=True)
def score_sums(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """Log-sum-exp of the scores of each query."""
    out = torch.empty(q.shape[:2], dtype=torch.float32, device=q.device)
    for tile_b, tile_m in hl.tile(out.size()):
        peak = hl.full([tile_b, tile_m], float("-inf"), dtype=torch.float32)
        total = hl.zeros([tile_b, tile_m], dtype=torch.float32)
        for tile_n in hl.tile(k.size(1)):
            scores = torch.bmm(q[tile_b, tile_m, :], k[tile_b, tile_n, :].mT, torch.float32)
            larger = torch.maximum(peak, scores.amax(-1))
            powers = torch.exp2(scores - larger[:, :, None])
            total = total * torch.exp2(peak - larger) + powers.sum(-1)
            peak = larger
        out[tile_b, tile_m] = peak + torch.log2(total)
    return out


@tilesmith.kernel(static_shapes=True)
def product_and_sums(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor):
    """A product, a row reduction and an elementwise loop over matrices of their own."""
    (m, k), n = x.size(), y.size(1)
    out = torch.empty([m, n], dtype=x.dtype, device=x.device)
    sums = torch.empty([z.size(0)], dtype=torch.float32, device=x.device)
    doubled = torch.empty_like(z)
    for tile_m, tile_n in hl.tile([m, n]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, tile_n])
        out[tile_m, tile_n] = acc.to(x.dtype)
    for tile_r in hl.tile(z.size(0)):
        sums[tile_r] = z[tile_r, :].to(torch.float32).sum(-1)
    for tile_a, tile_b in hl.tile(z.size()):
        doubled[tile_a, tile_b] = 2 * z[tile_a, tile_b]
    return out, sums, doubled


@tilesmith.kernel(static_shapes=True)
def counted(x: torch.Tensor, bins: torch.Tensor):
    """A loop that no heuristic is about (it only adds atomically), and an elementwise one."""
    doubled = torch.empty_like(x)
    for tile in hl.tile(bins.size(0)):
        hl.atomic_add(bins, [tile], 1.0)
    for tile_a, tile_b in hl.tile(x.size()):
        doubled[tile_a, tile_b] = 2 * x[tile_a, tile_b]
    return doubled


def halves(*shapes: tuple[int, ...]) -> tuple[torch.Tensor, ...]:
    return tuple(torch.empty(shape, dtype=torch.bfloat16) for shape in shapes)


def product_gradients(size: int) -> tuple[torch.Tensor, ...]:
    return halves((size, size), (size, size), (size, size))


def attention_gradients(heads: int, length: int, width: int) -> tuple[torch.Tensor, ...]:
    shape = (heads, length, width)
    return *halves(*[shape] * 5), torch.empty(heads, length)


def mixed(size: int = 4096) -> tuple[torch.Tensor, ...]:
    return halves((size, size), (size, size), (2048, 1024))


def spec_of(kernel, args, target: str = "cuda:90") -> ConfigSpec:
    return kernel.bind(args, target=target).config_spec


def blocks_of(spec: ConfigSpec) -> dict[str, int]:
    return dict(zip(spec.entries.blocks, spec.default_config().block_sizes))


def test_each_product_of_a_gradient_has_the_tile_it_has_alone():
    alone = spec_of(matmul, halves((4096, 4096), (4096, 4096))).default_config()
    config = spec_of(matmul_bwd, product_gradients(4096)).default_config()
    assert config.block_sizes == alone.block_sizes * 2
    assert (config.num_warps, config.num_stages) == (alone.num_warps, alone.num_stages)
    # The fused form of a product alone is about one loop; operands are copied in both.
    copied, plain = "tensor_descriptor", "pointer"
    assert (config.pid_type, config.indexing) == ("flat", [copied, copied, plain] * 2)


def test_short_gradients_and_other_devices_use_pointers():
    for size, target in ((1024, "cuda:90"), (4096, "cuda:80")):
        config = spec_of(matmul_bwd, product_gradients(size), target).default_config()
        assert set(config.indexing) == {"pointer"}


@pytest.mark.parametrize(("count", "size", "is_copied"), [(16, 1024, True), (2, 512, False)])
def test_a_batch_of_products_is_copied_where_all_of_it_is_long(count, size, is_copied):
    spec = spec_of(bmm, halves((count, size, size), (count, size, size)))
    config = spec.default_config()
    assert config.block_sizes[0] == 1
    assert set(config.indexing) == {"tensor_descriptor" if is_copied else "pointer"}
    assert spec.resources(config).fits


@pytest.mark.parametrize("size", [1, 15, 16, 17, 97, 1000])
def test_gradients_of_products_fit_at_boundary_sizes(size):
    spec = spec_of(matmul_bwd, product_gradients(size))
    assert spec.resources(spec.default_config()).fits


def test_both_loops_of_attention_gradients_have_large_tiles():
    spec = spec_of(attention_bwd, attention_gradients(128, 8192, 128))
    assert list(blocks_of(spec).values()) == [1, 128, 64, 1, 128, 64]
    config = spec.default_config()
    assert (config.num_warps, config.num_stages) == (8, 2)
    assert spec.predict(config).total_ms < 3 * spec.model.roofline_ms()


def test_wide_heads_have_shorter_attention_gradient_tiles():
    wide = blocks_of(spec_of(attention_bwd, attention_gradients(128, 8192, 256)))
    assert max(wide.values()) == 64
    few = spec_of(attention_bwd, attention_gradients(1, 512, 128))
    assert blocks_of(few)["tile_n_1"] == 64


def test_loops_of_different_kinds_are_each_scheduled_by_their_own_facts():
    spec = spec_of(product_and_sums, mixed())
    blocks, config = blocks_of(spec), spec.default_config()
    assert [blocks[name] for name in ("tile_m", "tile_n", "tile_k")] == [128, 256, 64]
    # Rows are short and few: one for each program; elementwise tiles are long along memory.
    assert blocks["tile_r"] == 1
    assert blocks["tile_a"] == 1
    assert blocks["tile_b"] >= 256
    assert (config.num_warps, config.num_stages) == (8, 4)


def test_the_loop_with_the_most_work_names_the_warps():
    # With a tiny product that is the elementwise loop, which reads and writes.
    args = halves((16, 16), (16, 16), (65536, 8192))
    config = spec_of(product_and_sums, args).default_config()
    assert (config.num_warps, config.num_stages) == (4, 1)


def test_loops_that_no_heuristic_is_about_get_wide_tiles():
    spec = spec_of(counted, (torch.empty(4096, 4096), torch.zeros(100_000)))
    assert min(blocks_of(spec)["tile"], blocks_of(spec)["tile_b"]) >= 256


def test_sums_of_split_products_are_wide_along_memory():
    spec = spec_of(split_k_barrier, (torch.empty(256, 4096), torch.empty(4096, 256)))
    blocks = blocks_of(spec)
    assert blocks["tile_n_1"] == 128
    assert spec.default_config().pid_type.startswith("persistent")


def test_a_loop_seen_alone_has_its_own_blocks_facts_and_bounds():
    kernel = spec_of(product_and_sums, mixed()).kernel
    product, sums, doubled = each_grid(kernel)
    assert product.entries.blocks == ("tile_m", "tile_n", "tile_k")
    assert (sums.entries.blocks, doubled.entries.blocks) == (("tile_r",), ("tile_a", "tile_b"))
    assert len(product.facts.matmuls) == 1
    assert not product.facts.reductions
    assert len(sums.facts.reductions) == 1
    assert doubled.facts.pointwise is not None
    assert (sums.extent("tile_r"), product.extent("tile_k")) == (2048, 4096)


def test_bounds_before_all_loops_belong_to_each():
    structure = spec_of(product_and_sums, mixed()).outline
    parts = [GridOutline(structure, grid) for grid in structure.grids]
    outside = [site.op for site in structure.sites if not site.loops and site.op.results]
    for part in parts:
        assert len(part.grids) == 1
        assert all(any(site.op is op for site in part.sites) for op in outside)
    inside = sum(len([site for site in part.sites if site.loops]) for part in parts)
    assert inside == len([site for site in structure.sites if site.loops])


def test_orders_and_groups_are_those_of_each_loop():
    # 8 heads and 64 channels: rows of one head follow one another in both loops.
    config = spec_of(attention_bwd, attention_gradients(64, 4096, 64)).default_config()
    assert config.loop_orders == [[1, 0], [1, 0]]
    # grad [m, n], x [m, k], y [k, n]: the gradient of x is tall, that of y is not. Where its sum is
    # shared by several programs, the loop of y is the first.
    for rows, of_x, of_y in ((8192, 0, 1), (65536, 1, 0)):
        tall = halves((rows, 1024), (rows, 1024), (1024, 1024))
        groupings = spec_of(matmul_bwd, tall).default_config().l2_groupings
        assert len(groupings) == 2
        assert groupings[of_x] > groupings[of_y]


def test_candidates_vary_the_tiles_of_every_loop():
    spec = spec_of(matmul_bwd, product_gradients(2048))
    ranked = spec.ranked_configs(20)
    sizes = [item.config.block_sizes for item in ranked]
    for half in (slice(0, 3), slice(3, 6)):
        assert len({tuple(blocks[half]) for blocks in sizes}) > 2
    default = ranked[0].predicted.total_ms
    assert default <= 1.15 * min(item.predicted.total_ms for item in ranked)


def test_a_shared_block_is_that_of_the_loop_with_the_most_work():
    kernel = spec_of(matmul_bwd, product_gradients(256)).kernel
    first, second = each_grid(kernel)
    seed = SeveralGridsSeed.of(
        [part_of(first, {"tile_m": 64, "tile_k": 32}), part_of(second, {"tile_m": 16})]
    )
    values = seed.values(kernel)
    assert dict(zip(kernel.entries.blocks, values["block_sizes"]))["tile_m"] == 64


def part_of(kernel, blocks):
    return GridSeed(kernel, GpuSeed(blocks))


@pytest.mark.parametrize("target", TARGETS)
def test_defaults_fit_every_target(target):
    for kernel, args in (
        (matmul_bwd, product_gradients(1024)),
        (attention_bwd, attention_gradients(8, 1024, 64)),
        (product_and_sums, mixed(512)),
        (split_k_barrier, (torch.empty(64, 4096), torch.empty(4096, 64))),
    ):
        spec = spec_of(kernel, args, target)
        seeds = spec.seed_configs()
        assert seeds[0] == spec.default_config()
        for config in seeds:
            assert spec.normalize(config) == config
            assert spec.resources(config).fits


def test_defaults_of_many_loops_compile():
    for kernel, args in (
        (product_and_sums, mixed()),
        (attention_bwd, attention_gradients(16, 2048, 128)),
    ):
        bound = kernel.bind(args, target="cuda:90")
        config = bound.config_spec.default_config()
        compiled = compile_artifact(bound.to_artifact(config))
        assert compiled.shared_bytes <= bound.config_spec.target.shared_bytes


@pytest.mark.parametrize(("m", "n"), [(8192, 768), (768, 8192)])
def test_the_loop_with_the_longest_programs_begins_first(m: int, n: int):
    # One gradient is a sum over n, the other over m.
    grad, x, y = (torch.empty(s, dtype=torch.bfloat16) for s in ((m, n), (m, 768), (768, n)))
    config = tilesmith.Config(block_sizes=[64] * 6)
    code = matmul_bwd.bind((grad, x, y), target="cuda:90").to_triton_code(config)
    first, rest = code.partition("if pid < end_0:")[2].split("    else:\n", 1)
    assert f"tl.range(0, {max(m, n)}, " in first
    assert f"tl.range(0, {min(m, n)}, " in rest


@tilesmith.kernel(static_shapes=True)
def product_before_sums(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor):
    """A product, and behind a barrier sums of rows."""
    out = torch.empty([x.size(0), y.size(1)], dtype=x.dtype, device=x.device)
    sums = torch.empty([z.size(0)], dtype=torch.float32, device=x.device)
    for tile_m, tile_n in hl.tile(out.size()):
        out[tile_m, tile_n] = (x[tile_m, :] @ y[:, tile_n]).to(x.dtype)
    hl.barrier()
    for tile_r in hl.tile(z.size(0)):
        sums[tile_r] = z[tile_r, :].to(torch.float32).sum(-1)
    return out, sums


@pytest.mark.parametrize("length", [0, 1, 100])
def test_rows_behind_a_barrier_may_be_empty(length: int):
    tensors = (torch.zeros(64, 64), torch.zeros(64, 64), torch.zeros(4096, length))
    spec = product_before_sums.bind(tensors, target="cuda:90").config_spec
    spec.normalize(spec.default_config())


def test_loops_whose_lengths_are_not_known_stay_as_written():
    kernel = tilesmith.kernel(matmul_bwd.fn, static_shapes=False)
    grad, x, y = (torch.empty(s, dtype=torch.bfloat16) for s in ((512, 64), (512, 96), (96, 64)))
    code = kernel.bind((grad, x, y), target="cuda:90").to_triton_code(
        tilesmith.Config(block_sizes=[64] * 6)
    )
    first = code.partition("if pid < end_0:")[2].split("    else:\n", 1)[0]
    assert "grad_x + " in first


def test_tiles_of_products_that_a_loop_only_reduces_are_small():
    q, k = (torch.empty(64, 2048, 64, dtype=torch.bfloat16) for _ in range(2))
    config = score_sums.bind((q, k), target="cuda:90").config_spec.default_config()
    assert config["block_sizes"] == [1, 64, 64]
    assert (config["num_warps"], config["num_stages"]) == (4, 3)
