"""A size is a constant by where it comes from, and by its value only as the last resort."""

from __future__ import annotations

import torch

import tilesmith
import tilesmith.language as hl
from tilesmith.frontend.tracing.host_session import ConstantSizes, RuntimeInt, place_of


def test_tensors_made_with_numbers_have_these_as_constants() -> None:
    sizes, x = ConstantSizes(), torch.zeros(4, 4)
    sizes.note_made(x, [RuntimeInt.make(4), 4])
    assert sizes.is_constant("x.size(1)", 4, place_of(x, "size", 1))
    assert not sizes.is_constant("x.size(0)", 4, place_of(x, "size", 0))
    like = torch.zeros_like(x)
    sizes.note_like(like, x)
    assert sizes.is_constant("y.size(1)", 4, place_of(like, "size", 1))
    assert not sizes.is_constant("y.size(0)", 4, place_of(like, "size", 0))


def test_attempts_go_from_what_met_to_all_that_is_equal() -> None:
    first = ConstantSizes()
    assert first.after_failure() is None, "nothing is a constant"
    first.note_value(4)
    first.wanted.add("y.size(0)")
    second = first.after_failure()
    assert second is not None
    assert second.is_constant("y.size(0)", 4)
    assert not second.is_constant("z.size(0)", 4)
    second.note_value(4)
    second.wanted_shared.add("z.size(0)")
    third = second.after_failure()
    assert third is not None
    third.note_value(4)
    assert third.shares_symbol("z.size(0)", 4)
    assert not third.shares_symbol("x.size(0)", 4)
    last = third.after_failure()
    assert last is not None
    last.note_value(4)
    assert last.is_constant("z.size(0)", 4)
    assert last.after_failure() is None


def test_strides_are_constants_where_they_were_read_only() -> None:
    x = torch.zeros(4, 4)
    sizes = ConstantSizes(takes_equal=True)
    sizes.note_value(4, place_of(x, "stride", -2))
    assert sizes.is_constant("x.stride(0)", 4, place_of(x, "stride", 0))
    assert not sizes.is_constant("y.stride(0)", 4, place_of(torch.zeros(4, 4), "stride", 0))


def test_strides_over_plain_numbers_are_constants() -> None:
    sizes, x = ConstantSizes(), torch.zeros(5, 4, 3)
    sizes.note_made(x, [RuntimeInt.make(5), RuntimeInt.make(4), 3])
    assert sizes.is_constant("x.stride(1)", 3, place_of(x, "stride", 1))
    assert not sizes.is_constant("x.stride(0)", 12, place_of(x, "stride", 0))
    turned = torch.zeros(4, 5).t()
    sizes.note_made(turned, [RuntimeInt.make(5), 4])
    assert not sizes.is_constant("y.stride(1)", 5, place_of(turned, "stride", 1))
    numbers = torch.arange(0, 8, 2)
    sizes.note_made(numbers, [0, 8, 2])
    assert not sizes.is_constant("n.stride(0)", 1, place_of(numbers, "stride", 0))


def test_rows_of_new_tensors_are_copied_whatever_their_number() -> None:
    """The distance of rows is known, so the copy engine can store them; guards see other ones."""
    x = torch.zeros(96, 64, dtype=torch.float16, device="meta")
    bound = doubled.bind((x,), target="cuda:90")
    out = next(p.value.tensor for p in bound.config_spec.function.parameters if p.source == "out")
    assert out.shape[0] == "out_size_0"
    assert out.strides == (64, 1)
    assert doubled(torch.ones(7, 64))[6, 63] == 2
    assert doubled(torch.ones(9, 64))[8, 63] == 2


@tilesmith.kernel(static_shapes=False)
def doubled(x: torch.Tensor) -> torch.Tensor:
    n = hl.specialize(x.size(1))
    out = torch.empty([x.size(0), n], dtype=x.dtype, device=x.device)
    for tile in hl.tile(x.size(0)):
        out[tile, :] = x[tile, :] * 2
    return out
