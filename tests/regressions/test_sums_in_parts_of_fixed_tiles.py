"""Forms of products where the source fixes tiles, or sizes are known at run time only."""

from __future__ import annotations

import torch

import tilesmith
import tilesmith.language as hl
from tilesmith.ir.types import TensorType
from tilesmith.passes.product_forms.named import split_as


@tilesmith.kernel(static_shapes=True)
def narrow(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    (m, k), n = x.size(), w.size(1)
    out = torch.empty([m, n], dtype=torch.float32, device=x.device)
    for tile_m, tile_n in hl.tile([m, n], block_size=[None, 8]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            acc = torch.addmm(acc, x[tile_m, tile_k], w[tile_k, tile_n].to(x.dtype))
        out[tile_m, tile_n] = acc
    return out


@tilesmith.kernel(static_shapes=False)
def specialized(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    m, k, n = hl.specialize(x.size(0)), hl.specialize(x.size(1)), hl.specialize(w.size(1))
    out = torch.empty([m, n], dtype=torch.bfloat16, device=x.device)
    for tile_m, tile_n in hl.tile([m, n]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            acc = torch.addmm(acc, x[tile_m, tile_k], w[tile_k, tile_n].to(x.dtype))
        out[tile_m, tile_n] = acc.to(torch.bfloat16)
    return out


@tilesmith.kernel(static_shapes=True)
def largest_of(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0)], dtype=w.dtype, device=x.device)
    for tile in hl.tile(x.size(0)):
        out[tile] = hl.load(w, [x[tile, :].argmax(-1)])
    return out


def test_each_tile_has_a_counter():
    x, w = torch.randn(16, 4096).bfloat16(), torch.ones(4096, 128, dtype=torch.int8)
    function = narrow.bind((x, w), target="cuda:90").function
    split = split_as(function, "sum_parts")
    assert split is not None
    (counts,) = [p for p in split.parameters if p.value.name.startswith("sum_counts")]
    assert isinstance(counts.value.type, TensorType)
    assert counts.value.type.shape == (16,)


def test_strides_that_only_a_call_knows_leave_the_operand_in_the_loop():
    x = torch.empty(4096, 8192, dtype=torch.bfloat16, device="meta")
    w = torch.empty(8192, 1280, dtype=torch.int16, device="meta")
    spec = specialized.bind((x, w), target="cuda:90").config_spec
    assert "converted_ahead" not in spec.forms()


def test_what_a_load_waits_for_is_emitted_once():
    x, w = torch.randn(64, 128), torch.randn(128)
    code = largest_of.bind((x, w), target="cuda:90").to_triton_code()
    assert code.count("tl.reduce(") + code.count("tl.argmax(") == 1
