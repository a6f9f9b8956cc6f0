"""Exported packages on a GPU: cubins, descriptors, several launches, where there is torch alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from benchmarks import exported
from tilesmith.runtime.device import target_of

pytestmark = pytest.mark.device


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packages")
    exported.export(folder, str(target_of(torch.device("cuda"))))
    (folder / "work").mkdir()
    return folder


@pytest.fixture(scope="module")
def alone(packages: Path) -> dict[str, float | str]:
    return exported.run_alone(packages, packages / "work", "cuda")


@pytest.mark.parametrize("name", exported.CASES)
def test_the_same_bits_with_torch_alone(
    packages: Path, alone: dict[str, float | str], name: str
) -> None:
    package = exported.package_of(name)
    assert isinstance(alone[package], float), alone[package]
    manifest = json.loads((packages / package / "manifest.json").read_text())
    ours, _ = exported.in_process(exported.CASES[name], manifest, "cuda")
    theirs = torch.load(packages / "work" / f"{package}.results.pt", map_location="cpu")
    for left, right in zip(ours, theirs, strict=True):
        assert exported.same_bits(left, right)
    assert exported.relative_error(exported.CASES[name], theirs[0]) < 1e-3
