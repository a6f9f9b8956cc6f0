"""A device breakpoint stops in a frame at the user's line whose variables are tensors."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch

from tests.frontend.language import printing_kernels as kernels
from tests.host_backends import on_backend
from tilesmith import exc


@pytest.fixture
def stops(monkeypatch) -> list[tuple[FrameType, dict[str, Any]]]:
    """Where the debugger was called, with the variables of that moment."""
    found: list[tuple[FrameType, dict[str, Any]]] = []

    def hook(*_: Any) -> None:
        frame = sys._getframe(1)
        copies = {name: held.clone() for name, held in frame.f_locals.items()}
        found.append((frame, copies))

    monkeypatch.setattr(sys, "breakpointhook", hook)
    return found


def test_it_stops_once_for_each_time_it_is_reached(stops):
    x = torch.arange(6.0)
    assert torch.equal(kernels.stop_in_a_loop(x, 3), x * 3)
    assert len(stops) == 2


def test_variables_are_the_tensors_of_that_moment(stops):
    x = torch.arange(6.0)
    kernels.stop_in_a_loop(x, 3)
    _, variables = stops[1]
    assert variables["value"].tolist() == [12.0, 15.0]
    assert variables["partial"].tolist() == [13.0, 16.0]
    assert variables["i"].item() == 1
    assert variables["tile"].tolist() == [4, 5]
    assert variables["scale"].item() == 3
    assert torch.equal(variables["x"], x)
    assert variables["out"][:4].tolist() == [0.0, 3.0, 6.0, 9.0]


def test_the_frame_stands_at_the_users_line(stops):
    kernels.stop_in_a_loop(torch.ones(2), 1)
    frame, _ = stops[0]
    source = Path(kernels.__file__).read_text().splitlines()
    assert frame.f_code.co_filename == kernels.__file__
    assert source[frame.f_lineno - 1].strip() == "breakpoint()"
    assert frame.f_code.co_name == "stop_in_a_loop"


def test_a_loop_that_only_stops_is_not_empty(stops):
    kernels.stop_at_a_language_function(torch.ones(3))
    assert stops[0][1]["value"].tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize(
    "settings", [{"check": True}, {"backend": "reference"}, {"triton_interpret": True}]
)
def test_every_interpreter_mode_stops(stops, settings):
    kernel = on_backend(kernels.stop_in_a_loop, settings.pop("backend", "auto"), **settings)
    kernel(torch.ones(3), 2)
    assert stops


def test_compiled_code_cannot_stop():
    with pytest.raises(exc.BreakpointInDeviceLoopRequiresInterpret):
        on_backend(kernels.stop_in_a_loop, "cpu").bind((torch.ones(3), 2))


def test_a_module_for_the_interpreter_of_triton_has_the_call():
    kernel = on_backend(kernels.stop_in_a_loop, "auto", triton_interpret=True)
    assert "    breakpoint()\n" in kernel.bind((torch.ones(3), 2)).to_triton_code()
