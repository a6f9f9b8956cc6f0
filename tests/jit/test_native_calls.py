"""Recognised calls run in native code from end to end, and give what Python would."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch

import tilesmith
import tilesmith.language as hl

SCALE = 3.0

pytestmark = pytest.mark.usefixtures("needs_reader")


def is_native(kernel: Any, *args: Any) -> bool:
    """Whether later calls with such arguments need no Python until the launch."""
    bound = kernel.bind(args)
    return type(bound.call).__name__ == "FixedCall"


@tilesmith.kernel
def several(
    x: torch.Tensor, by: float, count: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    m, n = x.size()
    out = torch.empty_like(x)
    sums = torch.zeros([m], dtype=torch.float64, device=x.device)
    flat = out.view(-1)
    lines = x.reshape(-1)
    factor = SCALE / math.sqrt(4)
    for tile in hl.tile(m * n):
        flat[tile] = lines[tile] * by + factor * count
    for row in hl.tile(m):
        sums[row] = sums[row] + x[row, :].sum(-1)
    return out, sums, x


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_several_results_numbers_and_views(dtype: torch.dtype):
    x = torch.arange(12.0, dtype=dtype).view(3, 4)
    seen = set()
    for by, count in ((1.0, 2), (2.0, 3), (2.0, 3), (-1.0, 0)):
        out, sums, same = several(x, by, count)
        assert torch.equal(out, (x * by + 1.5 * count).to(dtype))
        assert torch.equal(sums, x.double().sum(-1))
        assert same is x
        seen.add(out.data_ptr())
        del out
    assert is_native(several, x, 1.0, 2)


def test_a_number_of_the_module_is_watched(monkeypatch: pytest.MonkeyPatch):
    x = torch.randn(2, 5)
    for scale in (3.0, 3.0, 3.0, 4.0, 4.0, 3.0, float("3.0")):
        monkeypatch.setitem(globals(), "SCALE", scale)
        out, _, _ = several(x, 1.0, 2)
        torch.testing.assert_close(out, x + scale)


def test_forms_take_turns():
    shapes = ((3, 4), (4, 3), (1, 12), (12, 1), (0, 4), (3, 0))
    for _ in range(3):
        for shape in shapes:
            x = torch.randint(-9, 9, shape).float()  # sums are exact
            out, sums, _ = several(x, 2.0, 1)
            assert torch.equal(out, x * 2 + 1.5)
            assert torch.equal(sums, x.double().sum(-1))


@tilesmith.kernel
def transposed_like(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = x[tile] + 1
    return out


def test_strides_of_what_is_made_are_those_that_torch_gives():
    for x in (torch.randn(5, 3).t(), torch.randn(4, 6)[:, ::2], torch.randn(3).expand(2, 3)):
        for _ in range(3):
            out = transposed_like(x)
            assert out.stride() == torch.empty_like(x).stride()
            assert torch.equal(out, x + 1)
        assert is_native(transposed_like, x)


@tilesmith.kernel(ignore_warnings=[tilesmith.exc.TensorOperationInWrapper])
def with_an_end(x: torch.Tensor, is_mean: hl.constexpr = True) -> Any:
    losses = torch.empty([x.size(0)], dtype=torch.float32)
    for tile in hl.tile(x.size(0)):
        losses[tile] = x[tile, :].sum(-1)
    offset = torch.zeros([], dtype=x.dtype)
    if is_mean:
        return losses.mean() + offset
    return losses, x.size(0)


def test_what_comes_after_the_loops_is_run_by_python():
    x = torch.randn(6, 5)
    for _ in range(3):
        torch.testing.assert_close(with_an_end(x), x.sum(-1).mean())
        losses, count = with_an_end(x, False)
        torch.testing.assert_close(losses, x.sum(-1))
        assert count == 6
    assert is_native(with_an_end, x, True)
    assert is_native(with_an_end, x, False)


@tilesmith.kernel
def with_epilogue(x: torch.Tensor, epilogue: Callable[[Any, Any], Any]) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = epilogue(x[tile], tile)
    return out


def adding(bias: torch.Tensor) -> Callable[[Any, Any], Any]:
    return lambda acc, tile: acc + bias[tile]


def times(number: float) -> Callable[[Any, Any], Any]:
    return lambda acc, tile: acc * number


def test_closures_hand_over_what_each_call_holds():
    x = torch.randn(9)
    for number in range(5):
        bias = torch.full((9,), float(number))
        assert torch.equal(with_epilogue(x, adding(bias)), x + number)
    assert is_native(with_epilogue, x, adding(x))
    for number in (2.0, 2.0, 2.0, 5.0, 0.0, -0.0):
        result = with_epilogue(x, times(number))
        assert torch.equal(result.signbit(), (x * number).signbit())


class Parts(NamedTuple):
    left: torch.Tensor
    number: int
    right: list[torch.Tensor]


@tilesmith.kernel
def joined(parts: Parts, names: dict[str, torch.Tensor]) -> torch.Tensor:
    out = torch.empty_like(parts.left)
    for tile in hl.tile(parts.left.size(0)):
        out[tile] = parts.left[tile] * parts.number + parts.right[1][tile] - names["last"][tile]
    return out


def test_containers_hand_over_what_they_hold():
    for number in (1, 2, 3, 4):
        left, right, last = torch.randn(3, 7).unbind()
        parts = Parts(left, number, [last, right])
        result = joined(parts, {"first": left, "last": last})
        torch.testing.assert_close(result, left * number + right - last)


def test_gradients_profiles_and_other_ways_are_as_they_were():
    x = torch.randn(4, 4)
    for _ in range(3):
        transposed_like(x)
    with torch.profiler.profile() as profile:
        transposed_like(x)
    assert any("transposed_like" in event.name for event in profile.events() or ())
    bound = transposed_like.bind((x,))
    bound.set_config(tilesmith.Config(block_sizes=[1, 2]))
    for _ in range(3):
        assert torch.equal(transposed_like(x), x + 1)
    assert is_native(transposed_like, x)
    assert torch.equal(bound(torch.ones(2, 3)), torch.full((2, 3), 2.0))
    assert torch.equal(transposed_like(x), x + 1)


def test_tensors_that_torch_fills_are_filled():
    x = torch.randn(4, 4)

    @tilesmith.kernel
    def half(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        for tile in hl.tile(x.size(0)):
            hl.store(out, [tile, 0], x[tile, 0])
        return out

    for _ in range(3):
        half(x)
    torch.use_deterministic_algorithms(True)
    try:
        for _ in range(4):
            assert half(x)[:, 1:].isnan().all()
    finally:
        torch.use_deterministic_algorithms(False)


def test_tensors_are_those_of_the_mode_in_which_they_are_made():
    x = torch.randn(4, 4)
    for _ in range(3):
        transposed_like(x)
    with torch.inference_mode():
        assert transposed_like(x).is_inference()
    made = transposed_like(x)
    assert not made.is_inference()
    assert made.resize_(40).shape == (40,)
    seen: list[str] = []

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(getattr(func, "__name__", ""))
            return func(*args, **(kwargs or {}))

    with Mode():
        transposed_like(x)
    assert any(name.startswith("empty") for name in seen)
    threads = torch.get_num_threads()
    for number in (1, 2, threads):
        torch.set_num_threads(number)
        assert torch.equal(transposed_like(x), x + 1)


def _as_rows(x: torch.Tensor) -> Any:
    out = torch.empty([x.numel()], dtype=x.dtype)
    sums = torch.zeros([x.size(0)], dtype=x.dtype)
    flat = x.reshape(-1)
    for tile in hl.tile(x.numel()):
        out[tile] = flat[tile] * 2
    for tile in hl.tile(x.size(0)):
        sums[tile] = x[tile, :].sum(-1)
    return out.view(x.size()), sums.reshape([-1, 1])


def _with_another_name(x: torch.Tensor) -> Any:
    out = torch.empty_like(x)
    other = out
    for tile in hl.tile(x.size()):
        out[tile] = x[tile] * 2
    return out.view(-1), other


def _of_its_own_size(x: torch.Tensor) -> Any:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = x[tile] * 2
    return out.view(out.size(1), -1)


def _as_integers(x: torch.Tensor) -> Any:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = x[tile] * 2
    return out.view(torch.int32), x.view(-1)


def test_results_that_are_views_are_made_in_their_form():
    for function in (_as_rows, _with_another_name, _of_its_own_size, _as_integers):
        kernel: Any = tilesmith.kernel(function)
        for shape in ((4, 6), (4, 6), (2, 3), (4, 6), (1, 5), (0, 3)):
            x = torch.randint(-9, 9, shape).float()
            if function is _of_its_own_size and not x.numel():
                continue
            found = kernel(x)
            doubled = x * 2
            if function is _as_rows:
                assert torch.equal(found[0], doubled)
                assert torch.equal(found[1], x.sum(1, keepdim=True))
            elif function is _with_another_name:
                assert found[0].shape == (x.numel(),)
                assert found[0].data_ptr() == found[1].data_ptr()
                assert torch.equal(found[1], doubled)
            elif function is _of_its_own_size:
                assert torch.equal(found, doubled.view(x.size(1), -1))
            else:
                assert torch.equal(found[0], doubled.view(torch.int32))
                assert found[1].data_ptr() == x.data_ptr()
