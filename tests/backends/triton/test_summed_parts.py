"""Products whose sums several programs share: interpreted by Triton, and for GPUs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from examples.bmm import bmm
from examples.int4_gemm import int4_gemm, pack, unpack
from examples.matmul import matmul, matmul_bwd
from tilesmith.artifacts import Artifact
from tilesmith.backends.triton.build import compile_artifact
from tilesmith.jit.bound_kernel import BoundKernel
from tilesmith.schedule.config import Config

FORM = "sum_parts"
SHAPES = [(16, 1024, 16), (33, 1030, 31), (1, 2048, 65), (64, 1024, 17)]
"""Rows, length of the sum, columns."""


def bind(kernel: Any, *args: Any, target: str = "cuda:90") -> BoundKernel:
    return kernel.bind(kernel.normalize_args(*args), target=target)


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).half() / 8


def found_by(run: Any, artifact: Artifact, given: dict[str, Any]) -> torch.Tensor:
    """The result; memory that is made starts with what it must not be read as."""
    return all_found_by(run, artifact, given)["out"]


def all_found_by(run: Any, artifact: Artifact, given: dict[str, Any]) -> dict[str, torch.Tensor]:
    made = {
        p.name: torch.full([p.made_form[1]], 0 if p.is_zeroed else float("nan")).to(
            getattr(torch, p.made_form[0])
        )
        for p in artifact.parameters
        if p.is_made_at_launch
    }
    names = [parameter.name for parameter in artifact.parameters]
    results = run(artifact, *({**given, **made}[name] for name in names))
    return dict(zip(names, results))


@pytest.mark.parametrize("parts", [64, 128, 512])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_parts_of_products_are_added(run: Any, shape: tuple[int, int, int], parts: int) -> None:
    m, k, n = shape
    x, y = random(m, k), random(k, n, seed=1)
    bound = bind(matmul, x, y)
    config = Config(structure=FORM, block_sizes=[16, 16, 32, max(parts, -(-k // 32))])
    given = {"x": x, "y": y, "out": torch.full([m, n], float("nan")).half()}
    found = found_by(run, bound.to_artifact(config), given)
    torch.testing.assert_close(found.double(), x.double() @ y.double(), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_parts_of_packed_weights_are_added(run: Any, shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    weights = torch.randint(-8, 8, [k, n], generator=torch.Generator().manual_seed(1))
    x, packed = random(m, k), pack(weights)
    bound = bind(int4_gemm, x, packed)
    config = Config(structure=FORM, block_sizes=[16, 16, 32, 128])
    given = {"x": x, "packed": packed, "out": torch.full([m, n], float("nan")).half()}
    found = found_by(run, bound.to_artifact(config), given)
    exact = x.double() @ unpack(packed).double()
    torch.testing.assert_close(found.double(), exact, rtol=2e-3, atol=4e-3)


@pytest.mark.parametrize("indexing", ["pointer", "tensor_descriptor"])
def test_one_of_several_sums_is_in_parts(run: Any, indexing: str) -> None:
    """Of both gradients, that over all rows; its last part is shorter."""
    m, k, n = 1030, 24, 40
    grad, x, y = random(m, n), random(m, k, seed=1), random(k, n, seed=2)
    slots = [indexing, indexing, "pointer", "pointer", "pointer", indexing, indexing, "pointer"]
    config = Config(structure=FORM, block_sizes=[512, 32, 64, 32, 64, 128, 256], indexing=slots)
    artifact = bind(matmul_bwd, grad, x, y).to_artifact(config)
    made = {"grad_x": torch.full([m, k], float("nan")), "grad_y": torch.full([k, n], float("nan"))}
    given = {"grad_out": grad, "x": x, "y": y, **{name: t.half() for name, t in made.items()}}
    found = all_found_by(run, artifact, given)
    exact = {"grad_x": grad.double() @ y.double().T, "grad_y": x.double().T @ grad.double()}
    for name, wanted in exact.items():
        torch.testing.assert_close(found[name].double(), wanted, rtol=2e-3, atol=2e-3)


def test_code_for_gpus_counts_programs() -> None:
    x, y = (torch.empty(s, dtype=torch.bfloat16, device="meta") for s in ((64, 4096), (4096, 256)))
    bound = bind(matmul, x, y)
    form = bound.config_spec.forms()[FORM]
    artifact = bound.to_artifact(form.default_config().updated(structure=FORM))
    assert "atomic_add" in artifact.source
    assert compile_artifact(artifact).binary


def test_batches_short_sums_and_many_tiles_have_no_parts() -> None:
    def empty(*shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=torch.bfloat16, device="meta")

    for kernel, x, y in (
        (matmul, empty(64, 512), empty(512, 64)),
        (matmul, empty(4096, 4096), empty(4096, 4096)),
        (bmm, empty(2, 64, 4096), empty(2, 4096, 64)),
    ):
        assert FORM not in bind(kernel, x, y).config_spec.forms()
