"""Captures run host code only: they bind what a launch would get, for one Config or for all."""

from __future__ import annotations

import resource
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.lab.workload.launching import launch_native
from tests.warm_python import warm_python
from tilesmith.lab.workload import capture as module
from tilesmith.lab.workload.binding import TensorRef
from tilesmith.lab.workload.capture import Captured, CaptureError, capture, workload_folder
from tilesmith.lab.workload.loading import Workload
from tilesmith.tune.workspace import CandidateBinder


@helion.kernel(backend="cpu")
def scaled(x: torch.Tensor, factor: float) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * factor
    return out * 2


@helion.kernel(backend="cpu")
def counting(x: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
    total.fill_(5)
    for tile in hl.tile(x.size(0)):
        total[tile] += x[tile]
    return total


@helion.kernel(backend="cpu")
def partial_sums(x: torch.Tensor) -> torch.Tensor:
    block = hl.register_block_size(x.size(0))
    sums = torch.empty([(x.size(0) + block - 1) // block])
    for tile in hl.tile(x.size(0), block_size=block):
        sums[tile.id] = x[tile].sum()
    return sums.sum()


@helion.kernel(backend="cpu")
def guarded(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    if x.size(0) > 1000:
        return out
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile]
    return out


def captured(kernel: Any, *args: Any, **config: Any) -> Captured:
    bound = kernel.bind(args)
    return capture(bound, args, bound.config_spec.normalize(helion.Config(**config)))


def test_arguments_are_bound_and_nothing_is_launched() -> None:
    x = torch.randn(100)
    found = captured(scaled, x, 3.0, block_sizes=[16])
    binding = dict(found.bind_function().arguments)
    assert binding["factor"] == 3.0
    assert isinstance(binding["x"], TensorRef)
    assert (binding["x"].dtype, binding["x"].size) == ("float32", (100,))
    assert not found.depends_on_config


def test_roles_say_what_is_read_and_written() -> None:
    found = captured(scaled, torch.randn(100), 3.0, block_sizes=[16])
    references = {n: a for n, a in found.bind_function().arguments if isinstance(a, TensorRef)}
    x, out = (found.roles[references[name].storage] for name in ("x", "out"))
    assert (x.is_read, x.is_written) == (True, False)
    assert (out.is_read, out.is_written) == (False, True)


def test_host_code_changes_copies(tmp_path: Path) -> None:
    x, total = torch.ones(50), torch.zeros(50)
    found = captured(counting, x, total, block_sizes=[16])
    assert total.tolist() == [0] * 50
    workload = Workload.load(found.save(tmp_path), "cpu")
    assert workload.arguments(found.bind_function())["total"].tolist() == [5] * 50  # type: ignore[union-attr]


def test_torch_s_random_numbers_are_left_alone() -> None:
    @helion.kernel(backend="cpu")
    def noisy(x: torch.Tensor) -> torch.Tensor:
        noise = torch.randn(x.size(0))
        for tile in hl.tile(x.size(0)):
            noise[tile] += x[tile]
        return noise

    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    captured(noisy, torch.ones(20), block_sizes=[16])
    assert torch.equal(torch.rand(3), expected)


def test_a_workload_restores_what_the_kernel_updates_and_poisons_what_it_only_writes(
    tmp_path: Path,
) -> None:
    x, total = torch.ones(50), torch.zeros(50)
    updating = captured(counting, x, total, block_sizes=[16])
    workload = Workload.load(updating.save(tmp_path), "cpu")
    binding = updating.bind_function()
    assert workload.must_restore(binding)
    workload.outputs(binding)["total"].fill_(-1)
    workload.restore(binding)
    assert workload.outputs(binding)["total"].tolist() == [5] * 50

    writing = captured(scaled, x, 3.0, block_sizes=[16])
    workload = Workload.load(writing.save(tmp_path), "cpu")
    binding = writing.bind_function()
    assert not workload.must_restore(binding)
    workload.restore(binding)
    assert list(workload.outputs(binding)) == ["out"]
    assert workload.outputs(binding)["out"].isnan().all()


def test_snapshots_compare_bits_and_name_what_differs(tmp_path: Path) -> None:
    found = captured(scaled, torch.randn(100), 3.0, block_sizes=[16])
    workload = Workload.load(found.save(tmp_path), "cpu")
    binding = found.bind_function()
    out = workload.outputs(binding)["out"]
    out.fill_(0.0)
    before = workload.snapshot(binding)
    assert before.is_same(workload.snapshot(binding))
    out[7] = -0.0
    after = workload.snapshot(binding)
    assert not before.is_same(after)
    assert workload.describe_difference(binding, before, after) == (
        "1 of 100 elements of `out`, first at [7]"
    )


def test_a_candidate_runs_on_a_workload_as_in_the_parent(tmp_path: Path) -> None:
    x = torch.randn(100)
    bound = scaled.bind((x, 3.0))
    config = bound.config_spec.normalize(helion.Config(block_sizes=[16]))
    found = capture(bound, (x, 3.0), config)
    workload = Workload.load(found.save(tmp_path), "cpu")
    artifact = bound.to_artifact(config)
    binding = found.bind_artifact(artifact)
    launch_native(artifact, list(workload.arguments(binding).values()), tmp_path)
    assert torch.equal(workload.outputs(binding)["out"] * 2, scaled(x, 3.0))


def test_memory_made_for_a_config_is_saved_for_its_candidate_alone(tmp_path: Path) -> None:
    x = torch.arange(100.0)
    bound = partial_sums.bind((x,))
    first, second = (
        bound.config_spec.normalize(helion.Config(block_sizes=[size])) for size in (64, 16)
    )
    basis = capture(bound, (x,), first)
    assert basis.depends_on_config
    workload = Workload.load(basis.save(tmp_path), "cpu")
    candidates = CandidateBinder(bound, (x,), basis, tmp_path)
    for config, count in ((second, 7), (first, 2)):
        artifact = bound.to_artifact(config)
        binding = candidates.bind(config, artifact)
        assert binding.extra_storages is not None
        launch_native(artifact, list(workload.arguments(binding).values()), tmp_path)
        (sums,) = workload.outputs(binding).values()
        assert sums.numel() == count
        assert float(sums.sum()) == float(x.sum())
        assert dict(binding.arguments)["x"] == dict(basis.bind_function().arguments)["x"]
        workload.forget(binding)
        candidates.release(binding)
        assert not binding.extra_storages.exists()


def test_host_code_that_returns_early_is_refused() -> None:
    x = torch.randn(100)
    bound = guarded.bind((x,))
    config = bound.config_spec.normalize(helion.Config(block_sizes=[16]))
    with pytest.raises(CaptureError, match="returned before"):
        capture(bound, (torch.randn(2000),), config)


def test_files_hold_no_code(tmp_path: Path) -> None:
    found = captured(scaled, torch.randn(100), 3.0, block_sizes=[16])
    path = found.save(tmp_path)
    script = f"import torch; torch.load({str(path)!r}, weights_only=True)"
    subprocess.run([*warm_python(), "-c", script], check=True)


def test_a_disk_without_room_is_a_reason_not_to_search(tmp_path: Path) -> None:
    found = captured(scaled, torch.randn(4096), 3.0, block_sizes=[16])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, hard))
    try:
        with pytest.raises(CaptureError, match=r"cannot be written to .*: .*File too large"):
            found.save(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_without_any_place_for_files_there_is_no_search(monkeypatch) -> None:
    monkeypatch.setattr(module, "_MEMORY_DISK", Path("nowhere"))
    monkeypatch.setattr(tempfile, "tempdir", "/proc/nowhere")
    with pytest.raises(CaptureError, match="no place to write"), workload_folder(1):
        pass
