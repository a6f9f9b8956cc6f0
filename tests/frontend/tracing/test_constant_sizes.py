"""A size is a constant by where it comes from, and by its value only as the last resort."""

from __future__ import annotations

import torch

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
