"""The text of derived kernels: what a reader sees is what runs."""

from __future__ import annotations

import ast
import gc
import linecache

import pytest
import torch

from examples import attention, cross_entropy, layer_norm, matmul, softmax
from tests.gradients.compare import derive, present
from tilesmith.gradients.launch_node import compile_source

SOFTMAX = """\
import torch

import tilesmith as helion
import tilesmith.language as hl


@helion.kernel(static_shapes=True)
def softmax_backward(grad_out: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    grad_x = torch.empty_like(out)
    for tile_m in hl.tile(out.size(0)):
        # out[tile_m, :] = torch.nn.functional.softmax(x[tile_m, :], dim=1)
        out_tile = out[tile_m, :]
        grad_tile = grad_out[tile_m, :]
        product = (grad_tile - torch.sum(grad_tile * out_tile, dim=1)[:, None]) * out_tile
        grad_x[tile_m, :] = product
    return grad_x
"""


def test_softmax_as_a_whole() -> None:
    assert derive(softmax.softmax, (torch.randn(5, 7),)).source == SOFTMAX


def test_a_text_run_by_hand_is_the_backward(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, grad = torch.randn(5, 7), torch.randn(5, 7)
    (tmp_path / "softmax_backward_text.py").write_text(SOFTMAX)
    monkeypatch.syspath_prepend(str(tmp_path))
    from softmax_backward_text import softmax_backward  # pyright: ignore[reportMissingImports]

    (derived,) = derive(softmax.softmax, (x,)).run((x,), (grad,))
    assert torch.equal(softmax_backward(grad, softmax.softmax(x)), present(derived))


def layer_norm_text() -> str:
    args = (torch.randn(5, 7), torch.randn(7), torch.randn(7), 1e-5)
    return derive(layer_norm.layer_norm_fwd, args).source


def test_weights_of_rows_are_summed_in_parts_and_not_atomically() -> None:
    text = layer_norm_text()
    assert "partial_weight.sum(0)" in text
    assert "atomic" not in text


def test_the_users_names_and_lines_are_there() -> None:
    text = layer_norm_text()
    for name in ("mu", "centred", "inverse", "grad_centred", "grad_inverse"):
        assert f" {name} = " in text
    assert "# inverse = torch.rsqrt((centred * centred).mean(-1) + eps)" in text


def test_attention_keeps_no_states() -> None:
    q, k = torch.randn(2, 5, 16), torch.randn(2, 9, 16)
    text = derive(attention.attention, (q, k, k)).source
    assert "_states" not in text
    assert "reversed" not in text


def test_loops_that_only_add_run_in_any_order() -> None:
    text = derive(matmul.matmul, (torch.randn(5, 7), torch.randn(7, 6))).source
    assert "reversed" not in text
    assert "_states" not in text


@pytest.mark.parametrize(
    "text",
    [
        layer_norm_text(),
        derive(cross_entropy.cross_entropy, (torch.randn(4, 6), torch.tensor([0, 5, 2, 2]))).source,
    ],
)
def test_texts_are_python_without_unused_names(text: str) -> None:
    tree = ast.parse(text)
    stores = [n for n in ast.walk(tree) if isinstance(n, ast.Name)]
    written = {n.id for n in stores if isinstance(n.ctx, ast.Store)}
    read = {n.id for n in stores if isinstance(n.ctx, ast.Load)}
    assert written <= read


def test_the_text_of_a_backward_goes_with_it():
    """Lines for error messages stayed for ever: a leak for whoever makes kernels in a loop."""
    text = "class gone:\n    pass\n"
    before = set(linecache.cache)
    made = compile_source("gone", text)
    (file,) = set(linecache.cache) - before
    assert linecache.getline(file, 1) == "class gone:\n"
    del made
    gc.collect()
    assert file not in linecache.cache
