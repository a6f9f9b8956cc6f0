"""Recognised calls with tensors of a GPU: what native code tells apart, and what it must not keep.

Each kernel is called a few times first, so that the calls that are looked at are recognised ones.
"""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
import torch

import tilesmith
import tilesmith.language as hl
from tests.device.chip import DEVICE, HAS_CHIP
from tests.jit.random_host_code import check_calls
from tilesmith import exc
from tilesmith.jit.kernel import Kernel
from tilesmith.runtime.calls.reader import process_readers

pytestmark = [
    pytest.mark.device,
    pytest.mark.skipif(not HAS_CHIP, reason="needs a GPU"),
]
OFFSET = 1.0
RANDOM_SEEDS = 40
SLEEP = 200_000_000
"""Cycles: about a tenth of a second."""


@tilesmith.kernel
def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = x[tile] + y[tile]
    return out


@tilesmith.kernel(static_shapes=False)
def add_any(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = x[tile] + y[tile]
    return out


@tilesmith.kernel
def add_into(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    for tile in hl.tile(x.size()):
        out[tile] = x[tile] + y[tile]
    return out


@tilesmith.kernel
def swapped_difference(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = y, x
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = x[tile] - y[tile]
    return out, x


@tilesmith.kernel
def flat_double(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    out = torch.empty([x.numel()], dtype=x.dtype, device=x.device)
    lines = x.reshape(-1)
    for tile in hl.tile(x.numel()):
        out[tile] = lines[tile] * 2
    return out.view(x.size()), x


@tilesmith.kernel
def shifted(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = x[tile] + OFFSET
    return out


KERNELS = pytest.mark.parametrize("kernel", [add, add_any], ids=["static", "any sizes"])


def learned(kernel: Any, *args: Any) -> Any:
    """The kernel, after calls that it recognises from now on."""
    for _ in range(4):
        kernel(*args)
    return kernel


def pair(*shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(shape, device=DEVICE), torch.randn(shape, device=DEVICE)


def python_code_of(call: Callable[[], Any]) -> set[CodeType]:
    """What runs during a call."""
    seen: set[CodeType] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            seen.add(frame.f_code)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return seen


@KERNELS
def test_recognised_calls_begin_in_native_code(kernel):
    x, y = pair(5, 7)
    learned(kernel, x, y)
    if process_readers().obstacle:
        pytest.skip(process_readers().obstacle)
    seen = python_code_of(lambda: kernel(x, y))
    assert not {Kernel.__call__.__code__, Kernel._call_anew.__code__} & seen


@KERNELS
def test_results_have_memory_of_their_own_and_the_form_of_the_argument(kernel):
    x, y = pair(5, 7)
    wide, _ = pair(8, 64)
    forms = [(x, y), (x.t(), y.t()), (wide[:, 1::9], wide[:, :63:9]), (wide[::2], wide[::2])]
    kept: list[tuple[torch.Tensor, torch.Tensor]] = []
    for _ in range(3):
        for left, right in forms:
            found = kernel(left, right)
            assert found.stride() == torch.empty_like(left).stride()
            assert found.device == left.device
            kept.append((found, left + right))
    assert len({found.data_ptr() for found, _ in kept}) == len(kept)
    assert all(torch.equal(*found) for found in kept)


@KERNELS
def test_sizes_types_and_alignments_take_turns(kernel):
    memory = torch.randn(4100, device=DEVICE)
    forms = [(memory[:n], memory[-n:]) for n in (1, 2, 16, 17, 4096)]
    forms += [(memory[i : i + 64], memory[i + 64 : i + 128]) for i in range(6)]
    forms += [(x.to(dtype), y.to(dtype)) for x, y in forms[:3] for dtype in (torch.half, torch.int)]
    forms += [(memory[:4096].view(64, 64), memory[:64].expand(64, 64)), (memory[:0], memory[:0])]
    for _ in range(3):
        for x, y in (*forms, *reversed(forms)):
            assert torch.equal(kernel(x, y), x + y), (x.shape, x.stride(), x.storage_offset())


def test_results_go_where_out_says():
    x, y = pair(33, 5)
    learned(add_into, x, y, torch.zeros_like(x))
    for _ in range(3):
        for call in (add_into, lambda x, y, out: add_into(x, y, out=out)):
            other = torch.full_like(x, torch.nan)
            assert call(x, y, other) is other
            assert torch.equal(other, x + y)
        memory = torch.full((33, 11), torch.nan, device=DEVICE)
        add_into(x, y, memory[:, 1:6])
        assert torch.equal(memory[:, 1:6], x + y)
        assert memory[:, [0, *range(6, 11)]].isnan().all()
        changed = x.clone()
        assert add_into(changed, y, changed) is changed
        assert torch.equal(changed, x + y)


def test_names_that_host_code_swaps():
    for _ in range(2):
        for n in (9, 9, 9, 4):
            x, y = pair(n)
            out, same = swapped_difference(x, y)
            assert torch.equal(out, y - x)
            assert same is y


def test_results_that_are_views():
    for _ in range(2):
        for shape in ((3, 8), (3, 8), (3, 8), (8, 3)):
            x, _ = pair(*shape)
            for given in (x, x.t()):
                out, same = flat_double(given)
                assert out.shape == given.shape
                assert torch.equal(out, given * 2)
                assert same is given


def test_numbers_of_the_module_are_looked_at_in_every_call(monkeypatch: pytest.MonkeyPatch):
    x, _ = pair(70)
    for offset in (1.0, 1.0, 1.0, 2.0, 2.0, 1.0, float("2.0")):
        monkeypatch.setitem(globals(), "OFFSET", offset)
        assert torch.equal(shifted(x), x + offset)


@KERNELS
def test_calls_run_on_the_callers_stream(kernel):
    x, y = pair(1000)
    learned(kernel, x, y)
    wanted = x + y
    given = torch.zeros_like(x)
    kernel(given, y)
    streams = [torch.cuda.Stream() for _ in range(3)]
    for stream in (*streams, *streams):
        given.zero_()
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(SLEEP)
            given.copy_(x)  # not before the stream has slept
            found = kernel(given, y)
        assert not stream.query()
        early = kernel(given, y)  # another stream: waits for nothing
        stream.synchronize()
        assert torch.equal(found, wanted)
        assert early.shape == wanted.shape
    assert torch.equal(kernel(x, y), wanted)


@KERNELS
def test_the_device_may_be_named_in_any_way(kernel):
    x, y = pair(100)
    learned(kernel, x, y)
    number = torch.cuda.current_device()
    for device in ("cuda", number, torch.device("cuda", number)):
        with torch.cuda.device(torch.device(device)):
            assert torch.equal(kernel(x.to(device), y.to(f"cuda:{number}")), x + y)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@KERNELS
def test_calls_run_on_the_device_of_their_tensors(kernel):
    for current in (0, 1, 0):
        with torch.cuda.device(current):
            for own in (0, 1, 1, 0):
                x, y = (t.to(f"cuda:{own}") for t in pair(100))
                assert torch.equal(kernel(x, y), x + y)


@KERNELS
def test_tensors_of_the_cpu_are_recognised_as_such(kernel):
    x, y = pair(100)
    for _ in range(3):
        learned(kernel, x, y)
        with pytest.raises(exc.TensorsOnDifferentDevices):
            kernel(x, y.cpu())
        with pytest.raises(exc.TensorsOnDifferentDevices):
            kernel(x.cpu(), y)
        assert torch.equal(kernel(x, y), x + y)


@KERNELS
def test_devices_take_turns(kernel):
    pytest.importorskip("llvmlite")
    x, y = pair(100)
    for _ in range(3):
        learned(kernel, x, y)
        learned(kernel, x.cpu(), y.cpu())
        assert torch.equal(kernel(x.cpu(), y.cpu()), x.cpu() + y.cpu())
        assert torch.equal(kernel(x, y), x + y)


@pytest.mark.parametrize("calls_before", [1, 4])
@KERNELS
def test_recorded_calls_read_what_is_there_when_they_are_replayed(kernel, calls_before):
    x, y = pair(50 + calls_before, 3)  # sizes of its own: the first call of them is seen here
    for _ in range(calls_before):
        kernel(x, y)
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        first = kernel(x, y)
        second = kernel(first, y)
    kernel(y, x)  # what is called meanwhile changes nothing
    for _ in range(3):
        x.normal_()
        y.normal_()
        graph.replay()
        assert torch.equal(first, x + y)
        assert torch.equal(second, first + y)


def test_recorded_calls_write_where_out_says():
    x, y = pair(60, 3)
    out = torch.zeros_like(x)
    learned(add_into, x, y, out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        add_into(x, y, out)
        add_into(out, y, out=out)
    for _ in range(3):
        x.normal_()
        graph.replay()
        assert torch.equal(out, x + y + y)


@KERNELS
def test_no_tensor_is_kept(kernel):
    x, y = pair(64, 64)
    learned(kernel, x, y)
    del x, y
    gc.collect()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    x, y = pair(64, 64)
    found = kernel(x, y)
    seen = [weakref.ref(tensor) for tensor in (x, y, found)]
    del x, y, found
    assert [tensor() for tensor in seen] == [None] * 3
    assert torch.cuda.memory_allocated() == before


@KERNELS
def test_tensors_may_go_as_soon_as_the_call_returns(kernel):
    """Their memory is given to the next tensors, whose elements come after the launch."""
    wanted: list[torch.Tensor] = []
    found: list[torch.Tensor] = []
    for turn in range(60):
        x, y = pair(3000)
        wanted.append(x + y)
        torch.cuda._sleep(SLEEP // 200)
        found.append(kernel(x, y))
        del x, y
        torch.full((3000,), float(turn), device=DEVICE)
    assert all(map(torch.equal, found, wanted))


@contextmanager
def on_a_stream() -> Iterator[None]:
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        yield
    stream.synchronize()


@KERNELS
def test_threads_with_streams_of_their_own(kernel):
    failures: list[Exception] = []

    def work(seed: int) -> None:
        generator = torch.Generator(device=DEVICE).manual_seed(seed)
        try:
            with on_a_stream():
                for step in range(60):
                    shape = ((seed + step) % 8 + 1, 5)
                    x, y = (
                        torch.randn(shape, device=DEVICE, generator=generator) for _ in range(2)
                    )
                    assert torch.equal(kernel(x, y), x + y)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_modes_and_gradients_see_the_call():
    x, y = pair(6)
    learned(shifted, x)
    compiled = torch.compile(lambda x: shifted(x) + 1, fullgraph=True, backend="eager")
    assert torch.equal(compiled(x), x + OFFSET + 1)
    parameter = torch.randn(6, device=DEVICE, requires_grad=True)
    shifted(parameter).sum().backward()
    assert parameter.grad is not None
    assert torch.equal(parameter.grad, torch.ones_like(x))
    learned(add, x, y)
    with torch.inference_mode():
        assert torch.equal(add(x, y), x + y)


@pytest.mark.parametrize("seed", range(RANDOM_SEEDS))
def test_random_host_code(seed: int, tmp_path: Path):
    check_calls(seed, tmp_path, DEVICE)
