"""Products of a matrix that a launch of its own converts: interpreted by Triton, and by default."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from examples.bf16xint16_gemm import bf16xint16_gemm
from examples.int4_gemm import int4_gemm, pack, unpack
from examples.matmul import matmul
from tilesmith.artifacts import Artifact
from tilesmith.backends.triton.build import compile_artifact
from tilesmith.compiler.earlier_launches import in_one_launch
from tilesmith.jit.bound_kernel import BoundKernel
from tilesmith.schedule.config import Config
from tilesmith.schedule.resolution import MultiFormSpec

FORM = "converted_ahead"
SHAPES = [(16, 32, 16), (17, 66, 31), (65, 130, 33), (1, 2, 1), (64, 64, 64)]
"""Rows, length of the sum, columns."""


@helion.kernel(static_shapes=True)
def scaled(x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Weights along the sum, with a scale for each output and for each 32 of the sum."""
    (m, k), n = x.size(), w.size(0)
    out = torch.empty([m, n], dtype=torch.float32, device=x.device)
    for tile_m, tile_n in hl.tile([m, n]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            factor = scale[tile_n, tile_k.index // 32]
            weights = (w[tile_n, tile_k].to(torch.float32) * factor).to(x.dtype)
            acc = torch.addmm(acc, x[tile_m, tile_k], weights.T)
        out[tile_m, tile_n] = acc
    return out


@helion.kernel(static_shapes=True)
def from_the_left(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    (m, k), n = x.size(), w.size(1)
    out = torch.empty([m, n], dtype=torch.float32, device=x.device)
    for tile_m, tile_n in hl.tile([m, n]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            acc = torch.addmm(acc, x[tile_m, tile_k].to(w.dtype), w[tile_k, tile_n])
        out[tile_m, tile_n] = acc
    return out


@helion.kernel(static_shapes=True)
def by_first(x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """A scale for each tile, found by where the tile begins."""
    (m, k), n = x.size(), w.size(1)
    out = torch.empty([m, n], dtype=torch.float32, device=x.device)
    for tile_m, tile_n in hl.tile([m, n]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            weights = (w[tile_k, tile_n].to(torch.float32) * scale[tile_k.begin // 32]).to(x.dtype)
            acc = torch.addmm(acc, x[tile_m, tile_k], weights)
        out[tile_m, tile_n] = acc
    return out


def bind(kernel: Any, *args: Any, target: str = "cuda:90") -> BoundKernel:
    return kernel.bind(kernel.normalize_args(*args), target=target)


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).half()


def whole(*shape: int) -> torch.Tensor:
    return torch.randint(-8, 8, shape, generator=torch.Generator().manual_seed(1))


def launched(run: Any, artifact: Artifact, given: dict[str, Any]) -> torch.Tensor:
    """Both launches, one after the other, over the same memory."""
    made = {
        p.name: torch.full([p.made_form[1]], float("nan"), dtype=getattr(torch, p.made_form[0]))
        for p in artifact.parameters
        if p.is_made_at_launch
    }
    values = {**given, **made}
    assert len(artifact.before) == 1
    for item in (*artifact.before, artifact):
        names = [parameter.name for parameter in item.parameters]
        values |= dict(zip(names, run(item, *(values[name] for name in names))))
    return values["out"]


def check(run: Any, bound: BoundKernel, given: dict[str, Any], exact: torch.Tensor) -> None:
    for blocks in ([16, 16, 32], [32, 64, 64]):
        for indexing in ("pointer", "tensor_descriptor"):
            config = Config(structure=FORM, block_sizes=blocks, indexing=indexing)
            artifact = bound.to_artifact(config)
            given["out"] = torch.full_like(given["out"], float("nan"))
            found = launched(run, artifact, given)
            torch.testing.assert_close(found.double(), exact, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_two_numbers_in_a_byte(run: Any, shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    x, packed = random(m, k) / 8, pack(whole(k, n))
    given = {"x": x, "packed": packed, "out": torch.zeros(m, n, dtype=x.dtype)}
    check(run, bind(int4_gemm, x, packed), given, x.double() @ unpack(packed).double())


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_scales_and_weights_along_the_sum(run: Any, shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    x, w = random(m, k) / 8, whole(n, k).to(torch.int8)
    scale = torch.rand(n, -(-k // 32), generator=torch.Generator().manual_seed(2))
    given = {"x": x, "w": w, "scale": scale, "out": torch.zeros(m, n)}
    weights = (w.float() * scale.repeat_interleave(32, 1)[:, :k]).half()
    check(run, bind(scaled, x, w, scale), given, x.double() @ weights.double().T)


def test_the_left_operand_may_be_converted(run: Any) -> None:
    x, w = whole(33, 66).to(torch.int8), random(66, 17) / 8
    given = {"x": x, "w": w, "out": torch.zeros(33, 17)}
    check(run, bind(from_the_left, x, w), given, x.double() @ w.double())


def test_what_depends_on_the_size_of_tiles_is_not_converted_ahead() -> None:
    x, w = random(1024, 512), whole(512, 1024).to(torch.int8)
    scale = torch.rand(16)
    assert FORM not in bind(by_first, x, w, scale).config_spec.forms()
    assert FORM in bind(int4_gemm, x, whole(256, 1024).to(torch.int8)).config_spec.forms()
    assert FORM not in bind(matmul, x, w.half()).config_spec.forms()


@pytest.mark.parametrize(("rows", "structure"), [(16, None), (4096, FORM)])
def test_many_rows_are_multiplied_by_what_was_converted(rows: int, structure: str | None) -> None:
    x, w = (torch.empty(s, dtype=t, device="meta") for s, t in (
        ((rows, 1024), torch.bfloat16), ((1024, 1280), torch.int16)
    ))  # fmt: skip
    bound = bind(bf16xint16_gemm, x, w)
    config = bound.config_spec.default_config()
    assert config.get("structure") == structure
    artifact = bound.to_artifact(config)
    assert len(artifact.before) == bool(structure)
    assert all(compile_artifact(item).binary for item in (*artifact.before, artifact))


def test_modules_launch_both() -> None:
    x, w = random(1024, 64).bfloat16(), whole(64, 1024).to(torch.int16)
    config = Config(structure=FORM, block_sizes=[64, 64, 32])
    code = bind(bf16xint16_gemm, x, w).to_triton_code(config)
    assert code.index("def launch_first(w, converted)") < code.index("def launch(")
    assert "    launch_first(w, converted)\n" in code
    compile(code, "module", "exec")


def test_targets_without_matrix_units_of_the_kind_have_one_form() -> None:
    x, w = random(1024, 64).bfloat16(), whole(64, 1024).to(torch.int16)
    assert FORM not in bind(bf16xint16_gemm, x, w, target="hip:gfx942").config_spec.forms()


def test_packages_take_the_form_with_one_launch() -> None:
    x, w = random(1024, 64).bfloat16(), whole(64, 1024).to(torch.int16)
    spec = bind(bf16xint16_gemm, x, w).config_spec
    assert isinstance(spec, MultiFormSpec)
    default = spec.default_config()
    assert default.get("structure") == FORM
    chosen = in_one_launch(spec, default)
    assert chosen.get("structure") is None
    assert in_one_launch(spec, chosen) == chosen


@pytest.mark.parametrize(("columns", "structure"), [(256, None), (1024, FORM)])
def test_left_operands_are_converted_before_many_columns(
    columns: int, structure: str | None
) -> None:
    x, w = (torch.empty(s, dtype=t, device="meta") for s, t in (
        ((8192, 1024), torch.int8), ((1024, columns), torch.bfloat16)
    ))  # fmt: skip
    assert bind(from_the_left, x, w).config_spec.default_config().get("structure") == structure
