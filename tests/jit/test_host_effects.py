# type: ignore
"""What host code does, it does once for each call: neither where a kernel is bound, nor twice."""

from __future__ import annotations

import inspect
import logging
import sys

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith import exc

LOG = logging.getLogger(__name__)
CALLS: list[int] = []
COUNT = 0
STATE = {"calls": 0}
SCALE = 2.0
NAME = "scale"
BUFFER = torch.zeros(4)


def note(x) -> None:
    """A helper that nothing in the kernel depends on."""
    CALLS.append(x.size(0))


def fresh(function, **settings):
    return helion.kernel(function, ignore_warnings=[exc.TensorOperationInWrapper], **settings)


def noisy(x):
    global COUNT  # noqa: PLW0603
    print("host", x.size(0))  # noqa: T201
    LOG.warning("host %s", x.size(0))
    logging.getLogger(__name__)
    CALLS.append(x.size(0))
    STATE["calls"] += 1
    COUNT += 1
    if x.size(0) > 2:
        print("large")  # noqa: T201
    note(x)
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * SCALE
    print("after")  # noqa: T201
    return out


@pytest.fixture(autouse=True)
def _start_anew(monkeypatch):
    CALLS.clear()
    monkeypatch.setitem(globals(), "COUNT", 0)
    monkeypatch.setitem(globals(), "SCALE", 2.0)
    STATE["calls"] = 0
    BUFFER.zero_()


@pytest.mark.parametrize("backend", ["auto", "reference"])
@pytest.mark.parametrize("static_shapes", [True, False])
def test_effects_happen_once_for_each_call(backend, static_shapes, capsys, caplog) -> None:
    kernel = fresh(noisy, backend=backend, static_shapes=static_shapes)
    x = torch.arange(4.0)
    for _ in range(2):
        kernel.bind((x,)).to_triton_code()
        assert (capsys.readouterr().out, CALLS, COUNT, STATE["calls"]) == ("", [], 0, 0)
        assert not caplog.records
    for number in range(1, 4):
        assert torch.equal(kernel(x), x * 2)
        assert capsys.readouterr().out == "host 4\nlarge\nafter\n"
        assert (CALLS, COUNT, STATE["calls"]) == ([4, 4] * number, number, number)
        assert len(caplog.records) == number


def test_a_new_trace_repeats_nothing(monkeypatch, capsys) -> None:
    kernel, x = fresh(noisy), torch.arange(4.0)
    for number, scale in enumerate([2.0, 3.0, 4.0, 5.0], start=1):
        monkeypatch.setitem(globals(), "SCALE", scale)
        assert torch.equal(kernel(x), x * scale)
        assert capsys.readouterr().out == "host 4\nlarge\nafter\n"
        assert number == COUNT


def adding(x):
    x.add_(1)
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * SCALE
    return out


def test_arguments_are_changed_once_where_a_trace_no_longer_fits(monkeypatch) -> None:
    """Host code began again where a guard failed, and added 1 once more."""
    kernel, x = fresh(adding), torch.zeros(4)
    for number, scale in enumerate([2.0, 3.0, 4.0], start=1):
        monkeypatch.setitem(globals(), "SCALE", scale)
        assert torch.equal(kernel(x), torch.full([4], number * scale))
        assert torch.equal(x, torch.full([4], float(number)))


class Counter(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls, self.log = 0, []
        self.register_buffer("steps", torch.zeros(1))

    @helion.kernel(ignore_warnings=[exc.TensorOperationInWrapper])
    def scaled(self, x):
        self.calls += 1
        self.log.append(x.size(0))
        self.steps += 1
        steps = self.steps
        BUFFER.add_(1)
        out = torch.empty_like(x)
        for tile in hl.tile(x.size(0)):
            out[tile] = x[tile] * steps[0] + BUFFER[tile]
        return out


def test_objects_and_tensors_from_outside_are_left_alone_by_bind() -> None:
    module, x = Counter(), torch.arange(4.0)
    module.scaled.bind((x,))
    assert (module.calls, module.log, module.steps.item()) == (0, [], 0)
    assert not BUFFER.any()
    for number in (1, 2, 3):
        assert torch.equal(module.scaled(x), x * number + number)
        assert (module.calls, len(module.log), module.steps.item()) == (number, number, number)


def counted(x):
    global COUNT  # noqa: PLW0603
    COUNT += 1
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] + COUNT
    return out


def test_a_global_that_device_code_reads_is_counted_once() -> None:
    kernel, x = fresh(counted), torch.arange(4.0)
    kernel.bind((x,))
    assert COUNT == 0
    for number in (1, 2, 3):
        assert torch.equal(kernel(x), x + number)


def fill(sizes, x) -> None:
    sizes.append(x.size(0))


def with_needed_calls(x, sizes):
    own = []
    own.append(2)
    fill(own, x)
    fill(sizes, x)
    table = {}
    table["scale"] = 3.0
    hl.specialize(x.size(0))
    out = torch.empty_like(x)
    out.zero_()
    for tile in hl.tile(x.size(0)):
        out[tile] = out[tile] + x[tile] * own[0] * own[1] * table["scale"] * sizes[0]
    return out


@pytest.mark.parametrize("static_shapes", [True, False])
def test_statements_that_device_code_depends_on_stay(static_shapes) -> None:
    kernel = fresh(with_needed_calls, static_shapes=static_shapes)
    for n in (4, 5):
        x = torch.arange(float(n))
        assert torch.equal(kernel(x, [7]), x * 2 * n * 3 * 7)


class Lazy:
    def __init__(self) -> None:
        self.scale = 1.0

    def prepare(self, x) -> None:
        vars(self)["scale"] = 5.0

    @helion.kernel
    def scaled(self, x):
        Registry.current = self
        Registry.hide(x)
        scale = getattr(self, NAME)
        out = torch.empty_like(x)
        for tile in hl.tile(x.size(0)):
            out[tile] = x[tile] * scale
        return out


class Registry:
    current = None

    @classmethod
    def hide(cls, x) -> None:
        cls.current.prepare(x)


def test_an_effect_that_was_needed_after_all_is_found_out() -> None:
    lazy, x = Lazy(), torch.arange(4.0)
    for _ in range(3):
        assert torch.equal(lazy.scaled(x), x * 5)
        lazy.scale = 1.0


def check(x) -> None:
    if x.dim() != 1:
        raise ValueError("one dimension, please")


def checked(x):
    check(x)
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile].sum(1)[None, :]
    return out


def test_checks_of_host_code_speak_before_the_compiler() -> None:
    with pytest.raises(ValueError, match="one dimension"):
        fresh(checked)(torch.ones(4, 4))


def stopping(x):
    out = torch.empty_like(x)
    breakpoint()
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * 2
    return out


def test_breakpoints_stop_in_the_users_code(monkeypatch) -> None:
    stops = []

    def stop() -> None:
        frame = sys._getframe(1)
        stops.append((frame.f_code.co_filename, frame.f_lineno, set(frame.f_locals)))

    monkeypatch.setattr(sys, "breakpointhook", stop)
    kernel, x = fresh(stopping), torch.arange(4.0)
    kernel.bind((x,))
    assert not stops
    assert torch.equal(kernel(x), x * 2)
    lines, first = inspect.getsourcelines(stopping)
    line = first + next(i for i, text in enumerate(lines) if "breakpoint()" in text)
    assert [stop[:2] for stop in stops] == [(__file__, line)]
    assert {"x", "out"} <= stops[0][2]


def with_block_size(x):
    print("host")  # noqa: T201
    block = hl.register_block_size(x.size(0))
    parts = torch.zeros([helion.cdiv(x.size(0), block)])
    for tile in hl.tile(x.size(0), block_size=block):
        parts[tile.id] = x[tile].sum()
    return parts.sum()


def test_host_code_that_looks_at_its_config_speaks_once(capsys) -> None:
    kernel, x = fresh(with_block_size, config=helion.Config(block_sizes=[8])), torch.arange(40.0)
    for _ in range(2):
        assert kernel(x) == x.sum()
        assert capsys.readouterr().out == "host\n"
    kernel.autotune((x,), force=False)
    assert capsys.readouterr().out == ""
