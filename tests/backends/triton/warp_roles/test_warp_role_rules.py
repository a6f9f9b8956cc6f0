"""Configs with warp roles: what is refused, what fits, what the defaults and random ones make."""

from __future__ import annotations

import re
import subprocess
from random import Random

import pytest
import torch
import triton.knobs

import tilesmith
import tilesmith.language as hl
from examples.attention import attention, attention_fwd, biased_attention, causal_attention
from examples.matmul import matmul
from tests.backends.triton.warp_roles.warp_role_modules import emit
from tilesmith.backends.triton.build import compile_artifact
from tilesmith.backends.triton.warp_roles.rules import FORM
from tilesmith.exc import InvalidConfig

KERNELS = {
    "plain": attention,
    "causal": causal_attention,
    "bias": biased_attention,
    "lse": attention_fwd,
    "matmul": matmul,
}


def bind(name, head_dim=64, length=577):
    shapes = [(6, length, head_dim)] * 3
    if name == "bias":
        shapes.append((6, length, length))
    if name == "matmul":
        shapes = [(length - 1, head_dim), (head_dim, 256)]
    args = [torch.empty(shape, dtype=torch.bfloat16, device="meta") for shape in shapes]
    kernel = KERNELS[name]
    return kernel.bind(kernel.normalize_args(*args), target="cuda:90")


def compiled(bound, config):
    return compile_artifact(bound.to_artifact(config.updated(structure=FORM)))


def stack_bytes(built, folder) -> int:
    """Of each thread, for what found no register."""
    path = folder / "kernel.cubin"
    path.write_bytes(built.binary)
    command = [triton.knobs.nvidia.cuobjdump.path, "--dump-resource-usage", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    (found,) = re.findall(r"STACK:(\d+)", done.stdout)
    return int(found)


@pytest.mark.parametrize(
    ("name", "changed", "words"),
    [
        ("plain", {"block_sizes": [1, 64, 64]}, "2 groups of warps with 64 rows of tile_m"),
        ("plain", {"block_sizes": [2, 128, 64]}, "a block size of 2 for tile_b"),
        (
            "plain",
            {"block_sizes": [1, 192, 64], "num_warps": 12, "num_stages": 2},
            "num_stages=2 with 3 groups of warps",
        ),
        ("causal", {"block_sizes": [1, 128, 256]}, "steps of 256 over a loop that ends with 128"),
        ("plain", {"block_sizes": [1, 256, 256]}, "registers for each thread of 2 groups"),
        ("plain", {"num_warps": 16}, "num_warps"),
        ("plain", {"num_stages": 7}, "num_stages"),
        ("plain", {"pid_type": "persistent_blocked"}, "pid_type"),
    ],
)
def test_what_a_config_may_not_say(name, changed, words):
    config = {"block_sizes": [1, 128, 64], "num_warps": 8, "num_stages": 2, "structure": FORM}
    given = tilesmith.Config.from_dict({**config, **changed})
    with pytest.raises(InvalidConfig, match=re.escape(words)) as caught:
        bind(name).to_triton_code(given, target="cuda:90")
    assert "expected" in str(caught.value)


@pytest.mark.parametrize(("groups", "turns"), [(2, "turns = 10"), (3, "turns = _count(10)")])
def test_the_assembler_does_not_count_the_turns_of_three_groups(groups, turns):
    # On an H200 the third group read wrong tiles, or none at all, where it did.
    sizes = {"block_sizes": [1, 64 * groups, 64], "num_warps": 4 * groups, "num_stages": 3}
    config = tilesmith.Config.from_dict({**sizes, "pid_type": "flat", "structure": FORM})
    assert bind("plain").to_triton_code(config, target="cuda:90").count(turns) == 2


@pytest.mark.parametrize("name", KERNELS)
def test_random_configs_build(name):
    bound = bind(name)
    spec = bound.config_spec.forms()[FORM]
    for seed in range(6):
        config = spec.random_config(Random(seed))
        assert spec.feasibility(config) is None
        assert "gl.warp_specialize" in bound.to_triton_code(
            config.updated(structure=FORM), target="cuda:90"
        )


@pytest.mark.full
@pytest.mark.parametrize("head_dim", [64, 128, 256])
@pytest.mark.parametrize("name", KERNELS)
def test_random_configs_compile_in_the_memory_that_was_foretold(name, head_dim):
    bound = bind(name, head_dim)
    spec = bound.config_spec.forms()[FORM]
    for seed in range(2):
        config = spec.random_config(Random(seed))
        built = compiled(bound, config)
        use = spec.resources(config)
        assert built.shared_bytes <= use.limits.shared_bytes
        assert use.fits


def test_a_default_spills_nothing(tmp_path):
    bound = bind("plain", 64, 4096)
    default = bound.config_spec.default_config()
    assert default["structure"] == FORM
    assert stack_bytes(compile_artifact(bound.to_artifact(default)), tmp_path) == 0


@pytest.mark.full
@pytest.mark.parametrize("length", [577, 4096])
@pytest.mark.parametrize("head_dim", [64, 128, 256])
@pytest.mark.parametrize("name", ["plain", "causal", "bias", "lse"])
def test_every_default_spills_nothing(name, head_dim, length, tmp_path):
    bound = bind(name, head_dim, length)
    config = bound.config_spec.forms()[FORM].default_config()
    assert stack_bytes(compiled(bound, config), tmp_path) == 0


def test_golden(golden):
    args = (torch.empty(2, 192, 64, dtype=torch.bfloat16),) * 3
    golden(emit(causal_attention, args, block_sizes=[1, 128, 64], num_warps=8))


def test_roundings_that_can_be_seen_are_not_fused_away():
    exact = bind("plain").to_triton_code(target="cuda:90")
    assert "enable_fp_fusion" not in exact

    @tilesmith.kernel(static_shapes=True)
    def rounded(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(q)
        for tile_b, tile_m in hl.tile([q.size(0), q.size(1)]):
            total = hl.zeros([tile_b, tile_m], dtype=torch.float32)
            acc = hl.zeros([tile_b, tile_m, q.size(2)], dtype=torch.float32)
            for tile_n in hl.tile(k.size(1)):
                keys = k[tile_b, tile_n, :].transpose(1, 2)
                scores = torch.bmm(q[tile_b, tile_m, :], keys) * 0.125 + 1.0
                total = total + torch.sum(scores, -1)
                acc = torch.baddbmm(acc, scores, v[tile_b, tile_n, :])
            out[tile_b, tile_m, :] = (acc / total[:, :, None]).to(out.dtype)
        return out

    args = tuple(torch.randn(2, 256, 64, dtype=torch.bfloat16) for _ in range(3))
    config = tilesmith.Config(block_sizes=[1, 128, 64], num_warps=8, structure=FORM)
    text = rounded.bind(args).to_triton_code(config, target="cuda:90")
    assert "enable_fp_fusion=False" in text


def test_few_rows_have_no_roles_by_default():
    q, k = (torch.randn(64, n, 64, dtype=torch.bfloat16) for n in (16, 4096))
    spec = attention.bind((q, k, k.clone()), target="cuda:90").config_spec
    assert FORM in spec.forms()
    assert "structure" not in spec.default_config()
