"""Cross-compiling for five targets without a device."""

from __future__ import annotations

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.backends.triton.kernels import TARGETS, make, matmul
from tilesmith.artifacts import load_module, write_module
from tilesmith.backends.triton.build import (
    Pointer,
    build_kernel,
    compile_artifact,
    evaluate_constexprs,
    signature,
)  # fmt: skip
from tilesmith.schedule.schedule import AccessOptions, GridOptions, LoopOptions
from tilesmith.targets import parse_target

SYMBOLS = {"tile_m": 64, "tile_n": 64, "tile_k": 32}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("indexing", ["pointer", "block_ptr", "tensor_descriptor"])
def test_matmul_compiles_for_every_target(target, indexing):
    artifact = make(
        matmul(1000, 1000, 512),
        (3, 7),
        target=target,
        symbols=SYMBOLS,
        pid_type="persistent_interleaved",
        grids={0: GridOptions((0, 1), 4)},
        loops={0: LoopOptions(num_stages=2)},
        accesses={slot: AccessOptions(indexing) for slot in range(3)},
        num_stages=3,
    )
    info = compile_artifact(artifact)
    assert info.binary
    assert info.shared_bytes > 0
    text = info.assembly["ptx" if target.startswith("cuda") else "amdgcn"]
    assert "mma" in text or "mfma" in text


def test_pointers_are_known_to_be_aligned():
    info = compile_artifact(make(matmul(1024, 1024, 512), symbols=SYMBOLS))
    assert "v4" in info.assembly["ptx"] or "cp.async.cg.shared.global" in info.assembly["ptx"]


def test_descriptors_use_the_copy_engine_and_need_no_scratch_memory():
    accesses = {slot: AccessOptions("tensor_descriptor") for slot in range(3)}
    artifact = make(matmul(1024, 1024, 512), symbols=SYMBOLS, accesses=accesses)
    info = compile_artifact(artifact)
    assert [item.name for item in artifact.descriptions] == ["x_desc", "y_desc", "out_desc"]
    assert info.scratch_bytes == 0
    assert "cp.async.bulk.tensor" in info.assembly["ptx"]


def test_signature_lists_constants_after_parameters():
    artifact = make(matmul(64, 64, 64), symbols=SYMBOLS, pid_type="persistent_blocked")
    assert signature(artifact) == {
        "x": "*fp16", "y": "*fp16", "out": "*fp16", "NUM_SMS": "constexpr",
    }  # fmt: skip
    values = evaluate_constexprs(artifact, parse_target("cuda:90"), {})
    assert values == {"NUM_SMS": 132}


def repeated(x: torch.Tensor, times: int) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = x[t] * times
    return out


@pytest.mark.parametrize("is_free", [False, True])
def test_numbers_are_not_specialised_on_where_a_setting_says_so(is_free: bool):
    """Else 1 is a constant of the code, and multiples of 16 are known to be such."""
    kernel = helion.kernel(repeated, static_shapes=False, triton_do_not_specialize=is_free)
    artifact = kernel.bind((torch.empty(100), 3), target="cuda:90").to_artifact()
    numbers = [p.name for p in artifact.parameters if not p.is_tensor]
    jit = "@triton.jit(do_not_specialize=" + repr(numbers)
    assert (jit in artifact.source) == is_free
    pointer = Pointer("float32", 0, 1 << 20)
    for values in ({"x_size_0": 1, "times": 16}, {"x_size_0": 64, "times": 1}):
        given = {p.name: pointer if p.is_tensor else values[p.name] for p in artifact.parameters}
        ttir = build_kernel(artifact, given).asm["ttir"]
        head = next(line for line in ttir.splitlines() if "tt.func public" in line)
        assert (head.count(": i32 loc") == 2) == is_free


def test_module_needs_torch_and_triton_only(tmp_path):
    artifact = make(matmul(64, 64, 64), symbols=SYMBOLS)
    module = load_module(write_module(artifact, tmp_path))
    imports = [line for line in artifact.source.splitlines() if "import" in line]
    assert imports == ["import torch", "import triton", "import triton.language as tl"]
    assert callable(module.launch)
