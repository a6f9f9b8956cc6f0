"""Code for rows that several programs share: interpreted by Triton, for GPUs, and by default."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from examples.cross_entropy import cross_entropy_fwd, reference_fwd
from examples.kl_div import kl_div
from examples.layer_norm import layer_norm_fwd
from examples.long_sum import long_sum_manual
from examples.softmax import softmax
from examples.sum import sum_rows
from tests.passes.shared_row_kernels import counted_tiles
from tilesmith.artifacts import Artifact
from tilesmith.backends.triton.build import compile_artifact
from tilesmith.backends.triton.heuristics.shared_rows import is_counted, shared_rows_seeds
from tilesmith.jit.bound_kernel import BoundKernel
from tilesmith.schedule.config import Config

SHAPES = [(1, 2048), (3, 2053), (2, 5003)]
TILES = [(1, 1024, 512), (2, 2048, 256)]


def bind(kernel: Any, *args: Any, target: str = "cuda:90") -> BoundKernel:
    return kernel.bind(kernel.normalize_args(*args), target=target)


def empty(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def in_parts(bound: BoundKernel, tile: tuple[int, int, int]) -> Artifact:
    """Rows and columns of a program; loops take ``tile[2]`` columns at a time."""
    names = bound.config_spec.forms()["row_parts"].kernel.entries.blocks
    sizes = {"columns": tile[1], "tile_m": tile[0], "tile_n": tile[0]}
    blocks = [sizes.get(name, tile[2]) for name in names]
    return bound.to_artifact(Config(structure="row_parts", block_sizes=blocks, num_warps=4))


def results(run: Any, artifact: Artifact, given: dict[str, Any]) -> dict[str, torch.Tensor]:
    made = {
        p.name: torch.zeros(p.made_form[1], dtype=getattr(torch, p.made_form[0]))
        for p in artifact.parameters
        if p.is_made_at_launch
    }
    names = [parameter.name for parameter in artifact.parameters]
    return dict(zip(names, run(artifact, *({**given, **made}[name] for name in names))))


@pytest.mark.parametrize("tile", TILES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sums_under_tritons_interpreter(run: Any, shape: tuple[int, int], tile: Any) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    for kernel in (sum_rows, long_sum_manual):
        artifact = in_parts(bind(kernel, x), tile)
        found = results(run, artifact, {"x": x, "out": torch.zeros(shape[0])})["out"]
        torch.testing.assert_close(found.double(), x.double().sum(-1), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_losses_under_tritons_interpreter(run: Any, shape: tuple[int, int]) -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(shape, generator=generator) for _ in range(2))
    labels = torch.arange(shape[0]) * 7
    given: dict[str, Any] = {"logits": x, "labels": labels, "flat": x.reshape(-1)}
    given |= {"losses": torch.zeros(shape[0]), "lse": torch.zeros(shape[0])}
    found = results(run, in_parts(bind(cross_entropy_fwd, x, labels), TILES[1]), given)
    for name, exact in zip(("losses", "lse"), reference_fwd(x, labels)):
        torch.testing.assert_close(found[name].double(), exact, rtol=1e-5, atol=1e-5)
    log_pred, target = x.log_softmax(-1), y.softmax(-1)
    given = {"log_pred": log_pred, "target": target, "loss": torch.zeros(shape[0])}
    found = results(run, in_parts(bind(kl_div, log_pred, target), TILES[0]), given)
    exact = target.double() * (target.double().log() - log_pred.double())
    exact = exact.sum(-1) / shape[0]  # rows of a mean over the batch
    torch.testing.assert_close(found["loss"].double(), exact, rtol=1e-5, atol=1e-5)


def arguments(kernel: Any, rows: int, length: int) -> tuple[Any, ...]:
    half = empty(rows, length, dtype=torch.bfloat16)
    if kernel is layer_norm_fwd:
        return half, half[0], half[0]
    if kernel is cross_entropy_fwd:
        return half, empty(rows, dtype=torch.int64)
    wide = empty(rows, length)
    return {kl_div: (wide, wide), sum_rows: (wide,)}.get(kernel, (half,))


DEFAULTS = [
    (sum_rows, 8, 4096, None),
    (sum_rows, 8, 128256, "row_parts"),
    (sum_rows, 64, 128256, None),
    (sum_rows, 4096, 128256, None),
    (softmax, 8, 4096, None),
    (softmax, 8, 128256, "exchange"),
    (softmax, 1, 1 << 20, "exchange"),
    (layer_norm_fwd, 8, 128256, "exchange"),
    (cross_entropy_fwd, 8, 32000, None),
    (cross_entropy_fwd, 8, 128256, "row_parts"),
    (cross_entropy_fwd, 64, 1 << 20, "row_parts"),
    (kl_div, 8, 128256, "row_parts"),
    (kl_div, 64, 128256, "row_parts"),
    (kl_div, 64, 4096, None),
]


@pytest.mark.parametrize(("kernel", "rows", "length", "structure"), DEFAULTS)
def test_few_long_rows_are_shared_by_default(
    kernel: Any, rows: int, length: int, structure: str | None
) -> None:
    bound = bind(kernel, *arguments(kernel, rows, length))
    config = bound.config_spec.default_config()
    assert config.get("structure") == structure
    if structure is None or rows > 8:
        return
    compiled = compile_artifact(bound.to_artifact(config))
    assert compiled.binary


def test_many_rows_or_short_ones_have_one_form() -> None:
    for shape in ((4096, 128256), (8, 2047)):
        assert set(bind(sum_rows, empty(*shape)).config_spec.forms()) == {""}
    assert set(bind(sum_rows, empty(8, 2048)).config_spec.forms()) == {"", "row_parts", "exchange"}


def test_other_kernels_with_counts_are_not_taken_for_shared_rows() -> None:
    bound = bind(counted_tiles, empty(4096, 4096), empty(1, dtype=torch.int32))
    assert not is_counted(bound.config_spec.kernel)
    assert not shared_rows_seeds(bound.config_spec.kernel)
    assert is_counted(bind(sum_rows, empty(8, 4096)).config_spec.forms()["row_parts"].kernel)


def test_programs_wait_for_each_other_on_nvidia_devices_only() -> None:
    bound = bind(softmax, *arguments(softmax, 8, 128256), target="hip:gfx942")
    assert "exchange" in bound.config_spec.forms()
    assert bound.config_spec.default_config().get("structure") is None
