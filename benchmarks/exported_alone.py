"""Calls an exported package where tilesmith, Triton and llvmlite cannot be imported.

``benchmarks.exported`` starts this file as a script in the folder where arguments lie.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable
from typing import Any

ABSENT = ("tilesmith", "triton", "llvmlite")
ROUNDS, CALLS = 40, 100


class Hiding:
    """A finder of modules that does not find what a server would not have: it is not installed."""

    def __init__(self, finder: Any) -> None:
        self._finder = finder

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """As the finder says, but for names that are absent."""
        if name.partition(".")[0] in ABSENT:
            return None
        return self._finder.find_spec(name, path, target)


if __name__ == "__main__":
    # Before torch, which looks for Triton when it is imported.
    sys.meta_path[:] = [Hiding(finder) for finder in sys.meta_path]

import torch  # noqa: E402


def time_call(run: Callable[..., Any], args: tuple[Any, ...], rounds: int = ROUNDS) -> float:
    """The least time of a call in microseconds, without waiting for the device."""
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(CALLS):
            run(*args)
        best = min(best, time.perf_counter() - start)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    return best / CALLS * 1e6


def try_package(name: str, device: str) -> float | str:
    """Save the results for both sets of arguments; what a call of the second costs, or an error."""
    try:
        package = importlib.import_module(name)
        run = getattr(package, package.__all__[0])
        large, small = torch.load(f"{name}.args.pt", map_location=device)
        torch.save([run(*large), run(*small)], f"{name}.results.pt")
        return time_call(run, small)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def main() -> None:
    """Print what each package gives."""
    folder, device, *names = sys.argv[1:]
    sys.path.insert(0, folder)
    torch.set_num_threads(1)
    found = {name: try_package(name, device) for name in names}
    assert not [module for module in sys.modules if module.partition(".")[0] in ABSENT]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
