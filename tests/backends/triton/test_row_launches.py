"""Products whose rows a second launch reduces: interpreted by Triton, refused, and by default."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from examples.matmul import matmul
from examples.matmul_layernorm import matmul_layernorm
from examples.matmul_layernorm import reference as reference_layernorm
from examples.matmul_row_reduction import (
    matmul_l2_normalize,
    matmul_logsumexp,
    matmul_rms_norm,
    matmul_softmax,
    reference_l2_normalize,
    reference_logsumexp,
    reference_rms_norm,
    reference_softmax,
)
from tests.backends.triton.test_converted_ahead import bind, launched, random
from tilesmith.backends.triton.build import compile_artifact
from tilesmith.schedule.config import Config

FORM = "two_launches"
SHAPES = [(17, 66, 31), (65, 130, 300), (1, 2, 33), (64, 64, 64)]
"""Rows, length of the sum, columns; the first for all kernels."""
KERNELS = {
    "layernorm": (matmul_layernorm, reference_layernorm, ("weight", "bias")),
    "rms_norm": (matmul_rms_norm, reference_rms_norm, ("weight",)),
    "softmax": (matmul_softmax, reference_softmax, ()),
    "l2_normalize": (matmul_l2_normalize, reference_l2_normalize, ()),
    "logsumexp": (matmul_logsumexp, reference_logsumexp, ()),
}


@pytest.mark.parametrize(
    ("name", "shape"),
    [*(("layernorm", shape) for shape in SHAPES[1:]), *((name, SHAPES[0]) for name in KERNELS)],
    ids=str,
)
def test_both_launches_give_what_one_does(run: Any, name: str, shape: tuple[int, ...]) -> None:
    kernel, reference, rows = KERNELS[name]
    m, k, n = shape
    given: dict[str, Any] = {"x": random(m, k), "y": random(k, n, seed=1) / k**0.5}
    given |= {row: random(n, seed=2 + i) for i, row in enumerate(rows)}
    exact = reference(*given.values())
    bound = bind(kernel, *given.values())
    for size, warps in ((1, 4), (4, 2)):
        config = Config(structure=FORM, block_sizes=[size, 16], num_warps=warps)
        artifact = bound.to_artifact(config)
        out = torch.full(exact.shape, float("nan"), dtype=torch.half)
        found = launched(run, artifact, {**given, "eps": 1e-5, "out": out})
        torch.testing.assert_close(found.double(), exact, rtol=4e-3, atol=4e-3)


@helion.kernel(static_shapes=True)
def by_rows_of_a_program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The product is divided by the number of rows that a program has."""
    m, k = x.size()
    n = hl.specialize(y.size(1))
    out = torch.empty([m], dtype=torch.float32, device=x.device)
    for tile_m in hl.tile(m):
        acc = hl.zeros([tile_m, n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            acc = torch.addmm(acc, x[tile_m, tile_k] / tile_m.block_size, y[tile_k, :])
        out[tile_m] = acc.sum(-1)
    return out


def test_what_depends_on_tiles_stays_in_one_launch() -> None:
    x, y = random(64, 32), random(32, 64)
    assert FORM not in bind(by_rows_of_a_program, x, y).config_spec.forms()
    assert FORM not in bind(matmul, x, y).config_spec.forms()
    dynamic = helion.kernel(matmul_softmax.fn, static_shapes=False)
    assert FORM not in bind(dynamic, x, y).config_spec.forms()


def empty(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


@pytest.mark.parametrize(
    ("size", "dtype", "form"),
    [
        ((512, 512, 512), torch.bfloat16, FORM),
        ((256, 1024, 4096), torch.bfloat16, FORM),
        ((2048, 512, 512), torch.bfloat16, None),
        ((4096, 512, 512), torch.bfloat16, "exchange"),
        ((4096, 512, 512), torch.float32, FORM),
    ],
    ids=str,
)
def test_a_product_in_the_cache_has_two_launches(
    size: tuple[int, int, int], dtype: torch.dtype, form: str | None
) -> None:
    m, k, n = size
    rows = [empty(n, dtype=dtype)] * 2
    bound = bind(matmul_layernorm, empty(m, k, dtype=dtype), empty(k, n, dtype=dtype), *rows)
    assert bound.config_spec.default_config().get("structure") == form


def test_nothing_is_read_before_the_earlier_launch_has_ended() -> None:
    x, y = empty(512, 512), empty(512, 512)
    artifact = bind(matmul_softmax, x, y).to_artifact(Config(structure=FORM, block_sizes=[1, 16]))
    (first,) = artifact.before
    text = compile_artifact(artifact).assembly["ptx"]
    assert artifact.options["launch_pdl"]
    assert text.index("griddepcontrol.wait") < text.index("ld.global")
    # The earlier kernel waits for nobody, and lets the next begin before its store.
    assert "launch_pdl" not in first.options
    earlier = compile_artifact(first).assembly["ptx"]
    assert "griddepcontrol.wait" not in earlier
    assert earlier.index("griddepcontrol.launch_dependents") < earlier.index("st.global")


def test_older_devices_launch_one_after_the_other() -> None:
    bound = bind(matmul_softmax, empty(512, 512), empty(512, 512), target="cuda:80")
    artifact = bound.to_artifact(Config(structure=FORM, block_sizes=[1, 16]))
    assert "launch_pdl" not in artifact.options
    assert "gdc_" not in artifact.source


def test_both_kernels_of_a_module_keep_their_tiles() -> None:
    """Triton reads sizes of tiles when a kernel is first launched: a name has one value."""
    args = torch.randn(65, 64), torch.randn(64, 40)
    bound = matmul_logsumexp.bind(args, target="cuda:90")
    config = helion.Config(structure="two_launches", block_sizes=[4, 16])
    text = bound.to_triton_code(config)
    names = re.findall(r"^(\w+) = tl\.constexpr", text, re.MULTILINE)
    assert len(set(names)) == len(names)
    first = text[text.index("@triton.jit") : text.index("def launch_first")]
    assert "TILE_M_FIRST" in first
    assert not re.search(r"\bTILE_M\b", first)
