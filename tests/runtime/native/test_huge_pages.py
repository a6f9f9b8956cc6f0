"""Advice about memory: whole pages only, and never an error."""

from __future__ import annotations

import mmap
import re
from pathlib import Path

import pytest
import torch

from tilesmith.runtime.launchers import cpu as huge_pages
from tilesmith.runtime.launchers.cpu import advise_huge_pages, inner_pages


@pytest.mark.parametrize(
    ("address", "size", "expected"),
    [
        (4096, 8192, (4096, 8192)),
        (4097, 8191, (8192, 4096)),
        (4095, 8193, (4096, 8192)),
        (4100, 100, (8192, 0)),
        (4097, 4095, (8192, 0)),
        (0, 0, (0, 0)),
    ],
)
def test_only_whole_pages_are_named(address: int, size: int, expected: tuple[int, int]):
    assert inner_pages(address, size, 4096) == expected


def test_the_whole_storage_is_advised(monkeypatch: pytest.MonkeyPatch):
    calls: list[tuple[int, int, int]] = []

    def madvise(*values: int) -> int:
        calls.append(values)  # type: ignore[arg-type]
        return -1

    monkeypatch.setattr(huge_pages, "_madvise", lambda: madvise)
    whole = torch.empty(3 << 20)
    advise_huge_pages(whole[7:1000, None])
    ((start, size, _),) = calls
    assert 0 <= start - whole.data_ptr() < 4096
    assert whole.nbytes - 8192 < size <= whole.nbytes
    advise_huge_pages(torch.empty(3))
    assert len(calls) == 1, "less than a page"


def flags_of_mapping(address: int) -> list[str]:
    """What the kernel notes about the mapping in which an address lies."""
    is_inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        bounds = re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line)
        if bounds:
            is_inside = int(bounds[1], 16) <= address < int(bounds[2], 16)
        elif is_inside and line.startswith("VmFlags:"):
            return line.split()[1:]
    return []


HAS_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled").exists()


@pytest.mark.skipif(not HAS_HUGE_PAGES, reason="this kernel has no transparent huge pages")
def test_the_system_takes_the_advice():
    # A mapping of its own: a tensor of torch may lie in memory that was advised before.
    x = torch.frombuffer(mmap.mmap(-1, 64 << 20), dtype=torch.uint8).fill_(7)
    middle = x.data_ptr() + x.nbytes // 2
    assert "hg" not in flags_of_mapping(middle)
    advise_huge_pages(x)
    assert "hg" in flags_of_mapping(middle), "the kernel was told"
    assert x.min().item() == x.max().item() == 7


def test_elsewhere_nothing_happens(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(huge_pages, "_madvise", lambda: None)
    advise_huge_pages(torch.empty(8 << 20))
