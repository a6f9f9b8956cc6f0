"""Lengths of ranges between runtime numbers, as far as they are known while tracing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.frontend.traced import open_tracer
from tilesmith import exc
from tilesmith.dtypes import F32, I32
from tilesmith.frontend.tracing.emission import apply, full
from tilesmith.frontend.tracing.known_sizes import (
    find_counts,
    known_count,
    known_number,
    length_between,
)
from tilesmith.frontend.tracing.tracer import Tracer
from tilesmith.frontend.tracing.values import Scalar, TileValue, size_of_dim
from tilesmith.ir.types import Dim, scalar


@pytest.fixture
def tracer() -> Iterator[Tracer]:
    with open_tracer() as opened:
        opened.new_block("t", slot=0)
        opened.new_block("u", fixed=8, extent=20)
        yield opened


def start(tracer: Tracer) -> Scalar:
    return Scalar(tracer.parameter("s", "s", scalar(I32)))


def block(name: str) -> Any:
    return size_of_dim(Dim.of(name))


def test_what_is_added_to_both_ends_does_not_matter(tracer: Tracer) -> None:
    s = start(tracer)
    assert length_between(s, s + 6) == Dim.of(6)
    assert length_between(s * 2 + 1, s * 2 + 4) == Dim.of(3)
    assert length_between(s, s + block("t")) == Dim.of("t")
    assert length_between(s, s + 2 * block("t")) == Dim.of("t") * Dim.of(2)
    assert length_between(s, s + 2 * block("t"), 2) == Dim.of("t")


def test_unknown_and_mixed_lengths_are_none(tracer: Tracer) -> None:
    s = start(tracer)
    assert length_between(0, s) is None
    assert length_between(s, 2 * s) is None
    assert length_between(0, block("t") + 1) is None
    assert length_between(block("t"), 0) is None
    assert length_between(0, block("t"), 2) is None


@pytest.mark.parametrize(("begin", "end", "step", "length"), [(0, 7, 2, 4), (3, 3, 1, 0)])
def test_constant_lengths_count_like_python(begin: int, end: int, step: int, length: int) -> None:
    with open_tracer():
        assert length_between(begin, end, step) == Dim.of(length)


def test_a_number_of_block_sizes_is_known_for_the_present_config(tracer: Tracer) -> None:
    tracer.host.block_sizes = {0: 16}
    assert known_number(block("t") * 2 + block("u"), "a size") == 40
    assert tracer.host.observed_slots == {0}
    with pytest.raises(exc.ShapeSpecializingCall, match="the width must be known"):
        known_number(start(tracer) + 1, "the width")


def value(*dims: str | int) -> TileValue:
    return full(0.0, F32, tuple(map(Dim.of, dims)))


def test_constant_axes_and_fixed_blocks_have_known_counts(tracer: Tracer) -> None:
    assert known_count(value(5, "t"), 0, "torch.sort") == 5
    assert find_counts(value(5, "t"), 1, "torch.sort") is None
    with pytest.raises(exc.BackendUnsupported, match="tiles of a size that the config chooses"):
        known_count(value("t"), 0, "torch.sort")


def test_the_last_tile_of_a_range_may_hold_fewer(tracer: Tracer) -> None:
    with tracer.open_region("grid", ("u",)) as region:
        region.tiles["u"] = object()
        counts = find_counts(value("u"), 0, "torch.sort")
        assert counts is not None
        assert (counts.least, counts.most) == (4, 8)
        with pytest.raises(exc.BackendUnsupported, match="tiles of 8, and one of 4"):
            known_count(value("u"), 0, "torch.sort")
    # Outside the loop over it a block is a plain size: all of it is there.
    assert known_count(apply("neg", value("u")), 0, "torch.sort") == 8
