"""Tensors become views of regions: bytes, sharing of memory and alignment stay as they are."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tilesmith.interpreter.torch_dtypes import _TO_TORCH as ALL_TYPES
from tilesmith.lab.workload.binding import ALIGNMENT, Binding, TensorRef
from tilesmith.lab.workload.capture import CaptureError, Memory, Region, find_fill, workload_folder
from tilesmith.lab.workload.loading import Workload


def loaded(*tensors: torch.Tensor) -> tuple[list[torch.Tensor], Memory]:
    """The tensors after a trip through regions, as a runner gets them."""
    memory = Memory(tensors)
    saved = [
        {
            "nbytes": region.nbytes,
            "fill": find_fill(region),
            "content": region.read() if find_fill(region) is None else None,
            "is_read": True,
            "is_written": True,
        }
        for region in memory.regions
    ]
    binding = Binding(tuple((str(i), reference(memory, x)) for i, x in enumerate(tensors)))
    found = list(Workload(saved, "cpu").arguments(binding).values())
    return [x for x in found if isinstance(x, torch.Tensor)], memory


def reference(memory: Memory, tensor: torch.Tensor) -> TensorRef:
    found = memory.reference(tensor)
    assert found is not None
    return found


def assert_same_bits(left: torch.Tensor, right: torch.Tensor) -> None:
    assert (left.dtype, left.shape, left.stride()) == (right.dtype, right.shape, right.stride())
    bits = [x.contiguous().reshape(-1).view(torch.uint8) for x in (left, right)]
    assert torch.equal(*bits)


def random_bits(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    shape = (*shape[:-1], shape[-1] * dtype.itemsize)
    high = 2 if dtype is torch.bool else 256
    return torch.randint(0, high, shape, dtype=torch.uint8, generator=generator).view(dtype)


@pytest.mark.parametrize("dtype", ALL_TYPES.values(), ids=str)
def test_every_element_type_keeps_its_bits(dtype: torch.dtype) -> None:
    x = random_bits(dtype, 7, 5)
    (found,), _ = loaded(x)
    assert_same_bits(found, x)


def test_layouts_survive() -> None:
    x = torch.randn(6, 8, 10)
    views = [x.transpose(0, 2), x[::2, 1:, ::3], x[2, 3, 4], torch.randn(5, 1).expand(5, 9)]
    found, _ = loaded(*views)
    for one, other in zip(found, views):
        assert_same_bits(one, other)


@pytest.mark.parametrize("shape", [(0,), (3, 0, 2)])
def test_tensors_without_elements_survive(shape: tuple[int, ...]) -> None:
    (empty, other), _ = loaded(torch.empty(shape), torch.ones(3))
    assert empty.shape == shape
    assert other.tolist() == [1, 1, 1]


def test_tensors_that_overlap_still_do() -> None:
    x = torch.arange(100.0)
    (head, tail, same), memory = loaded(x[:60], x[40:], x)
    assert len(memory.regions) == 2
    head[50] = -1
    assert tail[10] == same[50] == -1


def test_memory_that_torch_knows_twice_is_one_region() -> None:
    numpy = torch.arange(100, dtype=torch.float32).numpy()
    (whole, part), _ = loaded(torch.from_numpy(numpy), torch.from_numpy(numpy[30:]))
    whole[35] = -1
    assert part[5] == -1


@pytest.mark.parametrize("shift", [0, 1, 3, 17])
def test_addresses_stay_as_aligned_as_they_were(shift: int) -> None:
    x = torch.randn(1000)[shift:900]
    (found,), _ = loaded(x)
    assert (found.data_ptr() - x.data_ptr()) % ALIGNMENT == 0
    assert_same_bits(found, x)


def test_of_a_large_storage_only_what_is_used_is_kept() -> None:
    x = torch.randn(1 << 20)
    used = x[5000:5100]
    (found,), memory = loaded(used)
    assert memory.nbytes < 2048
    assert_same_bits(found, used)
    assert memory.reference(x[4000:4100]) is None


def test_a_storage_that_is_mostly_used_is_kept_whole() -> None:
    x = torch.randn(1000)
    (found,), memory = loaded(x[100:900])
    assert memory.reference(x) is not None
    assert_same_bits(found, x[100:900])


@pytest.mark.parametrize(
    ("tensor", "problem"),
    [
        (torch.ones(3, dtype=torch.complex64), "complex64 is not supported"),
        (torch.ones(3).to_sparse(), "no plain memory"),
        (torch.ones(3, device="meta"), "no plain memory"),
        (torch.ones(3, dtype=torch.complex64).conj().imag, "resolve_neg"),
    ],
)
def test_what_cannot_be_copied_is_refused(tensor: torch.Tensor, problem: str) -> None:
    with pytest.raises(CaptureError, match=problem):
        Memory([tensor])


def region_of(tensor: torch.Tensor) -> Region:
    content = tensor.view(torch.uint8)
    return Region(0, content.numel(), ((0, content),))


@pytest.mark.parametrize("count", [16, 17, 31, 1 << 21])
def test_memory_of_one_value_is_a_fill(count: int) -> None:
    assert find_fill(region_of(torch.zeros(count, dtype=torch.uint8))) == 0
    assert find_fill(region_of(torch.full((count,), 1.5, dtype=torch.bfloat16))) is not None
    for odd in (0, count // 2, count - 1):
        values = torch.zeros(count, dtype=torch.uint8)
        values[odd] = 1
        assert find_fill(region_of(values)) is None


def test_filled_tensors_are_kept_as_one_value() -> None:
    x = torch.full((3000,), -2.5, dtype=torch.float16)
    memory = Memory([x])
    assert find_fill(memory.regions[1]) is not None
    (found,), _ = loaded(x)
    assert_same_bits(found, x)


def test_folders_are_removed_with_what_dead_processes_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilesmith.lab.workload.capture._MEMORY_DISK", tmp_path)
    (tmp_path / "tilesmith-workload-abc").mkdir()
    (tmp_path / "tilesmith-workload-abc.lock").touch()
    with workload_folder(10) as folder:
        assert folder.parent == tmp_path
        (folder / "file").touch()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_on_disk_where_memory_is_short(tmp_path: Path) -> None:
    with workload_folder(1 << 60) as folder:
        assert not str(folder).startswith("/dev/shm")


def test_without_inodes_in_memory_a_folder_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full, disk = tmp_path / "full", tmp_path / "disk"
    disk.mkdir()
    full.write_text("has room for bytes, and not for another file")
    monkeypatch.setattr("tilesmith.lab.workload.capture._MEMORY_DISK", full)
    monkeypatch.setattr("tempfile.tempdir", str(disk))
    with workload_folder(10) as folder:
        assert folder.parent == disk
    assert list(disk.iterdir()) == []
