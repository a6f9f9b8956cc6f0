"""Calls that native code recognises go there at once; everything else goes through ``__call__``."""

from __future__ import annotations

import copy
import gc
import subprocess
import sys
import weakref
from types import FrameType
from typing import Any

import pytest
import torch

import tilesmith
import tilesmith.language as hl
from tests.warm_python import warm_python
from tilesmith.runtime.calls.reader import process_readers


@tilesmith.kernel
def scaled(x: torch.Tensor, by: float = 2.0) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * by
    return out


def frames_of(kernel: Any, *args: Any, **keywords: Any) -> list[str]:
    """The Python functions that run during a call."""
    seen: list[str] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            seen.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        kernel(*args, **keywords)
    finally:
        sys.setprofile(None)
    return seen


def learned(kernel: Any, *args: Any) -> Any:
    for _ in range(4):
        kernel(*args)
    if process_readers().obstacle:
        pytest.skip(process_readers().obstacle)
    return kernel


def test_a_recognised_call_runs_no_python():
    x = torch.arange(5.0)
    learned(scaled, x, 3.0)
    assert not {"__call__", "_call_anew"} & {*frames_of(scaled, x, 3.0)}
    assert torch.equal(scaled(x, -1.0), -x)


def test_keywords_defaults_and_mistakes_take_the_way_of_python():
    x = torch.arange(5.0)
    learned(scaled, x, 3.0)
    assert frames_of(scaled, x)[0] == "__call__"
    assert frames_of(scaled, x, by=3.0)[0] == "__call__"
    assert torch.equal(scaled(x), 2 * x)
    assert torch.equal(scaled(by=4.0, x=x), 4 * x)
    wrong: Any = scaled
    for args in ((), (x, 1.0, 2.0)):
        with pytest.raises(TypeError, match="argument"):
            wrong(*args)
    with pytest.raises(TypeError, match="other"):
        wrong(x, other=1)


def test_other_arguments_are_learned_in_turn():
    learned(scaled, torch.arange(5.0), 3.0)
    for n in (5, 0, 1, 7, 5, 33):
        for dtype in (torch.float32, torch.float64, torch.int32):
            x = torch.arange(n, dtype=dtype)
            assert torch.equal(scaled(x, 3.0), x * 3)


def test_a_changed_kernel_forgets_what_it_has_learned():
    kernel = learned(copy.copy(scaled), torch.arange(5.0), 3.0)
    kernel.settings.static_shapes = False
    x = torch.arange(6.0)
    assert "__call__" in frames_of(kernel, x, 3.0)
    assert torch.equal(kernel(x, 3.0), 3 * x)
    assert "__call__" in frames_of(copy.deepcopy(kernel), x, 3.0)


def test_graphs_gradients_and_modes_see_the_call():
    x = torch.randn(6)
    learned(scaled, x, 3.0)
    compiled = torch.compile(lambda x: scaled(x, 3.0) + 1, fullgraph=True, backend="eager")
    assert torch.equal(compiled(x), 3 * x + 1)
    parameter = torch.randn(6, requires_grad=True)
    scaled(parameter, 3.0).sum().backward()
    assert parameter.grad is not None
    assert torch.equal(parameter.grad, torch.full((6,), 3.0))
    rows = x.view(2, 3)
    assert torch.equal(torch.func.vmap(lambda row: scaled(row, 3.0))(rows), 3 * rows)
    with torch.profiler.profile() as profile:
        scaled(x, 3.0)
    assert any("scaled" in event.name for event in profile.events() or ())


def test_a_kernel_that_is_let_go_is_collected():
    kernel = learned(copy.copy(scaled), torch.arange(5.0), 3.0)
    seen = weakref.ref(kernel)
    del kernel
    gc.collect()
    assert seen() is None


OTHERS = """
import sys
from unittest import mock
import torch
from tests.jit.test_direct_calls import frames_of, learned, scaled
from tilesmith.jit.kernel import Kernel

class Counting(Kernel):
    count = 0
    def __call__(self, *args, **kwargs):
        type(self).count += 1
        return super().__call__(*args, **kwargs)

class Plain(Kernel):
    pass

x = torch.arange(5.0)
learned(scaled, x, 3.0)
counting, plain = Counting(scaled.fn), Plain(scaled.fn)
for kernel in (counting, plain):
    for _ in range(5):
        assert torch.equal(kernel(x, 3.0), 3 * x)
assert Counting.count == 5
with mock.patch.object(Kernel, "__call__", lambda self, *args: "patched"):
    assert scaled(x, 3.0) == "patched"
assert torch.equal(scaled(x, 3.0), 3 * x)
"""


def test_other_classes_and_other_functions_in_the_class_count():
    """In a process of its own: a class that was changed keeps the way of Python for good."""
    command = [*warm_python(), "-c", OTHERS]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_an_interrupt_while_asking_what_a_call_is_ends_it():
    kernel = learned(copy.copy(scaled), torch.arange(5.0), 3.0)

    def interrupt() -> bool:
        raise KeyboardInterrupt

    kernel._signatures.watches = (interrupt,)
    with pytest.raises(KeyboardInterrupt):
        kernel(torch.arange(5.0), 3.0)
    kernel._signatures.watches = ()
    assert torch.equal(kernel(torch.ones(5), 3.0), torch.full((5,), 3.0))
