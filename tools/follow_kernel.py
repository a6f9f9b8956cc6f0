"""Follows the first call of a softmax on the CPU through the source.

``python -m tools.follow_kernel`` prints how many calls, functions and modules it takes, and how
often it changes folders (``--path``: which). The drawing of the house numbers rooms by it.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from types import CodeType, FrameType
from typing import Any

import torch

import tilesmith
import tilesmith.language as hl


@tilesmith.kernel
def softmax(x: torch.Tensor) -> torch.Tensor:
    """The kernel that is followed."""
    out = torch.empty_like(x)
    for row in hl.tile(x.size(0)):
        out[row, :] = torch.softmax(x[row, :], dim=1)
    return out


@dataclass(frozen=True)
class Walk:
    """What one call entered."""

    calls: Counter[CodeType]
    modules: tuple[str, ...]
    """By first entry."""

    @property
    def folders(self) -> list[str]:
        """Folders by first entry of their modules; one that is returned to counts again."""
        names = (module.rpartition(".")[0] for module in self.modules)
        return [folder for folder, _ in groupby(names)]

    @property
    def room_changes(self) -> int:
        """How often a module entered for the first time stands in another room than the last."""
        names = (module.split(".")[1] for module in self.modules if "." in module)
        return sum(1 for _ in groupby(names)) - 1

    @property
    def rooms(self) -> list[str]:
        """Top-level folders and modules, each once, in the order of the first entry."""
        names = (module.split(".")[1] for module in self.modules if "." in module)
        return list(dict.fromkeys(names))


def follow(sample: torch.Tensor) -> Walk:
    """Call the kernel with a profiler watching."""
    calls: Counter[CodeType] = Counter()
    modules: dict[str, None] = {}

    def watch(frame: FrameType, event: str, _: Any) -> None:
        module = str(frame.f_globals.get("__name__", ""))
        if event == "call" and module.partition(".")[0] == "tilesmith":
            calls[frame.f_code] += 1
            modules.setdefault(module)

    # Backends load with the first compile; their import is no part of the way.
    assert softmax.definition.backends
    sys.setprofile(watch)
    try:
        softmax(sample)
    finally:
        sys.setprofile(None)
    return Walk(calls, tuple(modules))


def main() -> None:
    """Print what a cold and a warm call take."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--path", action="store_true", help="print the folders in order")
    is_listed = parser.parse_args().path
    sample = torch.randn(64, 128)
    for kind in ("cold", "warm"):
        walk = follow(sample)
        print(
            f"{kind}: {sum(walk.calls.values()):,} calls, {len(walk.calls):,} functions, "
            f"{len(walk.modules)} modules; by first entry {len(walk.folders)} folders, "
            f"{walk.room_changes} changes of room"
        )
        if is_listed:
            print("  " + "\n  ".join(walk.folders))


if __name__ == "__main__":
    main()
