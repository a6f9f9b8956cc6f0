"""What is called meanwhile: kernels with shapes in turn, kernels that come and go, searches."""

from __future__ import annotations

import gc
import importlib.util
import linecache
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType

import torch

import tilesmith
import tilesmith.language as hl
from examples.layer_norm import layer_norm_fwd
from examples.matmul import matmul
from examples.softmax import softmax

ROWS = (1, 7, 64, 100, 129, 512)
COLUMNS = (64, 100, 1000, 1024)
FEWER = 2
"""On a GPU every so many of them: code for each takes a second to compile."""
CHECK_EVERY = 50
MOST_TIMES = 4000
"""Calls between two samples whose times are noted: the first ones."""
SEARCH_EVERY_S = 20.0
SEARCHED_ROWS = 8
"""Shapes that are searched in turn; each has a specialization that stays."""
MADE = """import torch
import tilesmith
import tilesmith.language as hl


@tilesmith.kernel(static_shapes={is_static})
def made(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * x[tile] * {factor} + {term}
    return out
"""

Eager = Callable[..., torch.Tensor]
Pair = tuple[Callable[[], torch.Tensor], Eager]


@tilesmith.kernel(static_shapes=False)
def scaled_gelu(x: torch.Tensor) -> torch.Tensor:
    """Sizes are arguments; its gradient is derived."""
    out = torch.empty_like(x)
    for rows, columns in hl.tile(x.size()):
        out[rows, columns] = torch.nn.functional.gelu(x[rows, columns]) * 2.0
    return out


@dataclass
class Counts:
    """What happened since the last sample, and problems so far."""

    ours: list[float] = field(default_factory=list[float])
    eager: list[float] = field(default_factory=list[float])
    checked: int = 0
    made: int = 0
    searches: int = 0
    problems: list[str] = field(default_factory=list[str])
    calls: int = 0

    def take_times(self) -> tuple[list[float], list[float]]:
        """Those since it was last asked."""
        ours, self.ours = self.ours, []
        eager, self.eager = self.eager, []
        return ours, eager

    def timed(self, call: Callable[[], torch.Tensor], *, is_ours: bool) -> torch.Tensor:
        """Call and note the time."""
        begin = time.perf_counter()
        result = call()
        if result.is_cuda:
            torch.cuda.synchronize()
        times = self.ours if is_ours else self.eager
        # Lists that follow how many calls there are would look like growth.
        if len(times) < MOST_TIMES:
            times.append(time.perf_counter() - begin)
        self.calls += is_ours
        return result

    def compare(self, name: str, result: torch.Tensor, wanted: torch.Tensor, bound: float) -> None:
        """With what fp64 gives."""
        self.checked += 1
        error = (result.double() - wanted).abs().max().item()
        if not error <= bound:
            self.problems.append(f"{name}: off by {error}")


def _pairs(x: torch.Tensor) -> list[Pair]:
    """Ours, and eager of the same in the type that it is given."""
    columns = x.size(1)
    weight, y = torch.ones(columns).to(x), torch.ones(columns, 32).to(x) / columns
    norm, shape = torch.nn.functional.layer_norm, [columns]
    gelu = torch.nn.functional.gelu
    return [
        (lambda: softmax(x), lambda x: torch.softmax(x, 1)),
        (
            lambda: layer_norm_fwd(x, weight, weight)[0],
            lambda x: norm(x, shape, weight.to(x), weight.to(x)),
        ),
        (lambda: matmul(x, y), lambda x: x @ y.to(x)),
        (lambda: scaled_gelu(x), lambda x: gelu(x) * 2.0),
        (lambda: _gradient(scaled_gelu, x), lambda x: _gradient(lambda x: gelu(x) * 2.0, x)),
    ]


def _gradient(function: Eager, x: torch.Tensor) -> torch.Tensor:
    leaf = x.detach().requires_grad_()
    (found,) = torch.autograd.grad(function(leaf).sum(), leaf)
    return found


def call_kernels(counts: Counts, stop: threading.Event, device: str, seed: int) -> None:
    """Calls kernels with shapes in turn; some results are compared with fp64."""
    draw, number = random.Random(seed), 0
    step = 1 if device == "cpu" else FEWER
    while not stop.is_set():
        shape = draw.choice(ROWS[::step]), draw.choice(COLUMNS[::step])
        x = torch.randn(shape, device=device)
        ours, eager = draw.choice(_pairs(x))
        number += 1
        # Who is second finds data and threads warm.
        if number % 2:
            result = counts.timed(ours, is_ours=True)
            counts.timed(partial(eager, x), is_ours=False)
        else:
            counts.timed(partial(eager, x), is_ours=False)
            result = counts.timed(ours, is_ours=True)
        if number % CHECK_EVERY < 2:
            counts.compare(str(tuple(x.shape)), result, eager(x.double()), 1e-5 * x.size(1))


def make_and_drop(counts: Counts, stop: threading.Event, device: str, folder: Path) -> None:
    """Kernels of their own text: imported, called with two shapes, differentiated, forgotten."""
    x = torch.randn(100, device=device)
    while not stop.wait(0.5):
        number = counts.made
        factor, term = number % 97 + 1, number % 1009
        text = MADE.format(factor=factor, term=term, is_static=number % 2 == 0)
        path = folder / f"made_{number}.py"
        made = _import(path, text).made
        for part in (x, x[:50]):
            wide = part.double()
            counts.compare(f"made {number}", made(part), wide * wide * factor + term, 1e-2)
        if number % 8 < 2:
            counts.compare(f"gradient {number}", _gradient(made, x), 2 * factor * x.double(), 1e-2)
        del made
        path.unlink()
        # Python keeps lines of files until it finds them gone.
        linecache.checkcache(str(path))
        counts.made += 1
        gc.collect()


def _import(path: Path, text: str) -> ModuleType:
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def search(counts: Counts, stop: threading.Event, device: str) -> None:
    """A short search now and then, of eight shapes in turn, while others call the kernel."""
    while not stop.wait(SEARCH_EVERY_S):
        x = torch.randn(64 + counts.searches % SEARCHED_ROWS, 256, device=device)
        softmax.autotune((x,), budget=3, log_level=50, progress_bar=False)
        counts.searches += 1
