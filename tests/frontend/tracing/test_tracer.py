"""The function under construction: names, slots, types of tensors, and the ambient session."""

from __future__ import annotations

import pytest
import torch

from tests.frontend.traced import open_tracer
from tilesmith import exc
from tilesmith.dtypes import I32, I64
from tilesmith.frontend.tracing.host_session import HostSession
from tilesmith.frontend.tracing.tracer import (
    INT32_LIMIT,
    WIDE_LIMIT,
    current_host_session,
    current_tracer,
    find_host_session,
    find_tracer,
    running_host,
    span_of,
)
from tilesmith.ir.types import scalar


def test_names_are_given_once() -> None:
    with open_tracer() as tracer:
        tracer.parameter("n", "n", scalar(I32))
        assert [tracer.new_block("n").name for _ in range(2)] == ["n_1", "n_2"]
        assert tracer.parameter("other", "n", scalar(I32)).name == "n"


def test_tuned_axes_come_after_registered_ones() -> None:
    with open_tracer() as tracer:
        tracer.host.register_block_size(1, 64)
        assert tracer.next_slot() == 1
        tracer.new_block("t", slot=1)
        tracer.new_block("u", fixed=8)
        assert tracer.next_slot() == 2
        assert [block.slot for block in tracer.blocks] == [1, None]


def test_sizes_and_strides_are_constants_under_static_shapes() -> None:
    with open_tracer() as tracer:
        kind = tracer.tensor_type(torch.zeros(3, 4).t(), "x")
    assert (kind.shape, kind.strides) == ((4, 3), (1, 4))


def test_under_dynamic_shapes_all_but_0_and_1_are_parameters() -> None:
    with open_tracer(static_shapes=False) as tracer:
        kind = tracer.tensor_type(torch.zeros(3, 1), "xs[1]")
        assert kind.shape == ("xs_1_size_0", 1)
        assert tracer.source_of("xs_1_size_0") == "xs[1].size(0)"
        assert tracer.observed["xs_1_size_0"] == 3


def test_a_size_that_host_code_made_a_constant_stays_one_and_is_checked() -> None:
    with open_tracer(static_shapes=False) as tracer:
        x, y = torch.zeros(3), torch.zeros(3)
        tracer.host.constant_sizes.note_made(x, [3])
        assert tracer.tensor_type(x, "x").shape == (3,)
        assert tracer.equal_sizes == [("x.size(0)", "3")]
        assert tracer.tensor_type(y, "y").shape == ("y_size_0",), "equal, but not it"


def test_views_of_one_storage_share_their_alias_group() -> None:
    x = torch.zeros(6)
    with open_tracer() as tracer:
        groups = [tracer.alias_of(t) for t in (x, x[2:], torch.zeros(6))]
    assert groups == [0, 0, 1]


@pytest.mark.parametrize(
    ("value", "dtype"), [(WIDE_LIMIT, I32), (WIDE_LIMIT + 1, I64), (-INT32_LIMIT - 1, I64)]
)
def test_integers_have_room_for_one_more_block(value: int, dtype: object) -> None:
    with open_tracer() as tracer:
        assert tracer.integer_dtype(value) is dtype


def test_spans_count_strides_not_elements() -> None:
    assert span_of(torch.zeros(3, 4)) == 11
    assert span_of(torch.zeros(3, 4)[:, ::2]) == 10
    assert span_of(torch.zeros(0, 4)) == 3


def test_a_narrow_index_type_refuses_a_far_element() -> None:
    far = torch.empty(2, device="meta").as_strided([2], [2**31])
    with (
        open_tracer(index_dtype=I32) as tracer,
        pytest.raises(exc.IndexOffsetOutOfRangeForInt32),
    ):
        tracer.tensor_type(far, "x")


def test_device_code_hides_the_host_session() -> None:
    assert find_tracer() is None
    with pytest.raises(exc.NotInsideKernel):
        current_tracer("hl.zeros")
    session = HostSession()
    with running_host(session):
        assert find_host_session() is session
        with pytest.raises(exc.DeviceAPIOnHost):
            current_tracer("hl.zeros")
        with open_tracer() as tracer:
            assert current_tracer("hl.zeros") is tracer
            with pytest.raises(exc.HostAPIOnDevice):
                current_host_session("hl.specialize")
        assert current_host_session("hl.specialize") is session
