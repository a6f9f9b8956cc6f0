"""The hand-written Triton kernels compile for Hopper and give right results, without a device."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from benchmarks.hand_written import add, attention, layer_norm, matmul, rms_norm, softmax
from tests.warm_python import warm_python

ROOT = Path(__file__).parents[2]
HOPPER = GPUTarget("cuda", 90, 32)
DTYPES = ("bf16", "fp32")
ALIGNMENT = [["tt.divisibility", 16]]
WIDTH = 128
WGMMA, TMA = "wgmma.mma_async", "cp.async.bulk.tensor"


def build(function: Any, types: list[str], constants: dict[str, Any], **options: Any) -> Any:
    """Compile for Hopper; pointers and row lengths are multiples of 16, as in most calls."""
    names = function.arg_names
    signature = dict(zip(names, types)) | {name: "constexpr" for name in names if name in constants}
    aligned = {
        (names.index(name),): ALIGNMENT
        for name, type_ in signature.items()
        if type_.startswith("*") or type_ == "i32"
    }
    source = ASTSource(function, signature, constants, aligned)
    return triton.compile(source, target=HOPPER, options=options)


@pytest.mark.parametrize("dtype", DTYPES)
def test_row_kernels_compile(dtype: str) -> None:
    pointer = f"*{dtype}"
    blocks = {"BLOCK": 4096}
    for function, types in (
        (add.add_kernel, [pointer] * 3 + ["i32"]),
        (softmax.softmax_kernel, [pointer] * 2 + ["i32"] * 2),
        (layer_norm.layer_norm_kernel, [pointer] * 4 + ["i32"] * 2 + ["fp32"]),
        (rms_norm.rms_norm_kernel, [pointer] * 3 + ["i32"] * 2 + ["fp32"]),
    ):
        ptx = build(function, types, blocks, num_warps=8).asm["ptx"]
        # Elements go by four words at once; anything less would be an unfair competitor.
        assert "ld.global.v4.b32" in ptx, function


@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_product_uses_tensor_cores_and_descriptors(dtype: str, is_transposed: bool) -> None:
    config = matmul.CONFIGS[0]
    m, n, k = (config.kwargs[f"BLOCK_{axis}"] for axis in "MNK")
    right = [n, k] if is_transposed else [k, n]
    types = [f"tensordesc<{dtype}{block}>" for block in ([m, k], right, [m, n])]
    constants: dict[str, Any] = {
        **config.kwargs,
        "IS_TRANSPOSED": is_transposed,
        "NUM_PROGRAMS": 132,
        "GROUP": 8,
    }
    options = {"num_warps": config.num_warps, "num_stages": config.num_stages}
    compiled = build(matmul.matmul_kernel.fn, [*types, "i32", "i32", "i32"], constants, **options)
    ptx = compiled.asm["ptx"]
    assert WGMMA in ptx
    assert TMA in ptx
    assert compiled.metadata.shared <= 227 * 1024


@pytest.mark.parametrize("is_causal", [False, True])
def test_attention_uses_tensor_cores_and_descriptors(is_causal: bool) -> None:
    config = attention.CONFIGS[0]
    m, n = (config.kwargs[f"BLOCK_{axis}"] for axis in "MN")
    types = [f"tensordesc<bf16{[1, block, WIDTH]}>" for block in (m, n, n, m)]
    constants: dict[str, Any] = {**config.kwargs, "IS_CAUSAL": is_causal, "WIDTH": WIDTH}
    options = {"num_warps": config.num_warps, "num_stages": config.num_stages}
    types += ["i32", "i32", "fp32"]
    compiled = build(attention.attention_kernel.fn, types, constants, **options)
    ptx = compiled.asm["ptx"]
    assert WGMMA in ptx
    assert TMA in ptx
    assert compiled.metadata.shared <= 227 * 1024


def test_results_under_the_interpreter_are_right() -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    found = subprocess.run(
        [*warm_python(), "-m", "tests.bench.hand_written_worker"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    names = {line.split()[0] for line in found.stdout.splitlines()}
    assert names == {
        "add", "softmax", "layer_norm", "rms_norm", "matmul", "attention", "causal_attention",
    }  # fmt: skip
