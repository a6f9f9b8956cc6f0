"""Launchers: the interpreter's, and what Triton's does before a device is needed."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path

import pytest
import torch

import tilesmith as helion
import tilesmith.exc as errors
import tilesmith.language as hl
from tilesmith.artifacts import load_module, write_module
from tilesmith.jit.launchers import reference_launcher
from tilesmith.runtime.device import target_of

X = torch.arange(1, 14, dtype=torch.float32)
CONFIG = helion.Config(block_sizes=[4])


@helion.kernel
def scale(x, alpha):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = x[t] * alpha
    return out


@helion.kernel
def depends_on_order(x):
    for t in hl.tile(x.size(0) - 1):
        x[t.index + 1] = x[t] + 1


def test_reference_launcher_reads_the_captured_values() -> None:
    function = scale.bind((X, 2.0)).function
    launch = reference_launcher(function, {"t": 4}, ["x", "out", "alpha"], ())
    for alpha in (0.5, 3.0):
        out = torch.empty_like(X)
        launch(X, out, alpha)
        assert torch.equal(out, X * alpha)


def test_reference_launcher_finds_races() -> None:
    function = depends_on_order.bind((X.clone(),)).function
    launch = reference_launcher(function, {"t": 4}, ["x"], (), races=True)
    with pytest.raises(errors.BaseError):
        launch(X.clone())


def test_modules_are_written_once_under_a_name_of_their_content(tmp_path: Path) -> None:
    artifact = scale.bind((X, 2.0), target="cuda:90").to_artifact(CONFIG)
    path = write_module(artifact, tmp_path)
    assert path.read_text() == artifact.source
    assert path.stem.startswith("scale_")
    written = path.stat().st_mtime_ns
    assert write_module(artifact, tmp_path) == path
    assert path.stat().st_mtime_ns == written
    other = dataclasses.replace(artifact, source=artifact.source + "\n")
    assert write_module(other, tmp_path) != path
    assert [file.suffix for file in path.parent.iterdir()] == [".py", ".py"]


def test_concurrent_writers_leave_one_whole_file(tmp_path: Path) -> None:
    artifact = scale.bind((X, 2.0), target="cuda:90").to_artifact(CONFIG)
    copies = [dataclasses.replace(artifact) for _ in range(8)]
    threads = [threading.Thread(target=write_module, args=(copy, tmp_path)) for copy in copies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (file,) = (tmp_path / "modules").iterdir()
    assert file.read_text() == artifact.source


def test_a_written_module_can_be_imported(tmp_path: Path) -> None:
    artifact = scale.bind((X, 2.0), target="cuda:90").to_artifact(CONFIG)
    module = load_module(write_module(artifact, tmp_path))
    assert callable(module.launch)
    assert hasattr(module, artifact.name)


def test_targets_of_devices() -> None:
    assert not target_of(torch.device("cpu")).is_gpu
    assert not target_of(torch.device("meta")).is_gpu
    with pytest.raises(errors.BackendUnsupported):
        target_of(torch.device("xpu"))
