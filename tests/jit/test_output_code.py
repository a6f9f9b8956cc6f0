"""Settings that shape or show the generated code."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.artifacts import Artifact
from tilesmith.jit import launchers
from tilesmith.targets import parse_target


def double(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * 2
    return out


class RecordingLauncher:
    """Stands for the GPU: keeps the artifact, launches nothing."""

    path = "double.py"

    def __init__(self, artifact: Artifact, *_: Any) -> None:
        self.artifact = artifact

    def launch(self, *_: Any) -> None:
        return None


def test_origin_lines_can_be_left_out():
    x = torch.empty(8)
    assert "# src[" in helion.kernel(double).bind((x,)).to_triton_code()
    plain = helion.kernel(double, output_origin_lines=False)
    assert "# src[" not in plain.bind((x,)).to_triton_code()


@pytest.mark.parametrize("is_asked", [True, False])
def test_output_code_is_printed_once_and_only_when_asked(
    is_asked: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(launchers, "TritonLauncher", RecordingLauncher)
    kernel = helion.kernel(double, print_output_code=is_asked)
    bound = kernel.bind((torch.ones(8),), target=parse_target("cuda:90"))
    for _ in range(3):
        bound(torch.ones(8))
    assert capsys.readouterr().err.count("def _double(") == int(is_asked)
