"""Kernels as people port them, on one thread of the CPU, against eager PyTorch in CPU time.

    python -m benchmarks.ports [--only conv] [--rounds 7]

Calls take turns in one process; a row has medians of rounds. CPU time is what counts, so that
others on the machine disturb little. ``first`` is the first call, compiling included.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

import tilesmith as helion
import tilesmith.language as hl
from benchmarks.table import print_table
from examples.ports.causal_conv1d import causal_conv1d
from examples.ports.cholesky import cholesky, random_matrices
from examples.ports.conv2d import conv2d
from tilesmith.measure.statistics import median

MIN_SAMPLE_S = 0.02
HEADERS = ["kernel", "size", "ours ms", "eager ms", "times as long", "first call s"]

Call = Callable[[], Any]


@helion.kernel
def int8_matmul(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The exact int32 product of int8 matrices."""
    m, k = x.size()
    n = y.size(1)
    out = torch.empty([m, n], dtype=torch.int32, device=x.device)
    for tile_m, tile_n in hl.tile([m, n]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.int32)
        for tile_k in hl.tile(k):
            acc = hl.dot(x[tile_m, tile_k], y[tile_k, tile_n], acc=acc)
        out[tile_m, tile_n] = acc
    return out


@helion.kernel
def top_k(x: torch.Tensor, count: hl.constexpr) -> tuple[torch.Tensor, torch.Tensor]:
    """The greatest of each row in order, and where they stand: one argmax for each."""
    rows, columns = x.size()
    values = torch.empty([rows, count], dtype=x.dtype, device=x.device)
    places = torch.empty([rows, count], dtype=torch.int64, device=x.device)
    for tile in hl.tile(rows):
        left = x[tile, :]
        for i in hl.static_range(count):
            place = left.argmax(-1)
            values[tile, i] = left.amax(-1)
            places[tile, i] = place
            left = torch.where(hl.arange(columns)[None, :] == place[:, None], float("-inf"), left)
    return values, places


@helion.kernel
def unrolled_cholesky(a: torch.Tensor) -> torch.Tensor:
    """Lower factors with all columns written out: what is timed is mostly the compiler."""
    batch, n, _ = a.size()
    n = hl.specialize(n)
    out = torch.zeros_like(a)
    for tile in hl.tile(batch):
        rest, place = a[tile, :, :], hl.arange(n)
        for j in hl.static_range(n):
            column = torch.where((place == j)[None, None, :], rest, 0.0).sum(-1)
            pivot = torch.where((place == j)[None, :], column, 0.0).sum(-1)
            column = torch.where((place >= j)[None, :], column / torch.sqrt(pivot)[:, None], 0.0)
            rest = rest - column[:, :, None] * column[:, None, :]
            out[tile, :, j] = column
    return out


def conv1d_eager(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Causal depthwise convolution and SiLU as a model without the kernel has them."""
    d, width = weight.size()
    out = functional.conv1d(x, weight[:, None], bias, padding=width - 1, groups=d)
    return functional.silu(out[..., : x.size(2)])


@dataclass(frozen=True)
class Port:
    """One kernel with its arguments, and what eager does with them."""

    name: str
    size: str
    ours: Call
    eager: Call


def _conv1d_ports() -> list[Port]:
    x, weight, bias = torch.randn(2, 512, 2048), torch.randn(512, 4), torch.randn(512)
    dynamic = helion.kernel(causal_conv1d.fn, static_shapes=False)
    kernels = (("static", causal_conv1d), ("dynamic", dynamic))
    return [
        Port(
            f"causal_conv1d {name}", "2x512x2048, 4 taps",
            lambda kernel=kernel: kernel(x, weight, bias, "silu"),
            lambda: conv1d_eager(x, weight, bias),
        )
        for name, kernel in kernels
    ]  # fmt: skip


def _int8_port(m: int, n: int, k: int) -> Port:
    x = torch.randint(-128, 128, (m, k), dtype=torch.int8)
    y = torch.randint(-128, 128, (k, n), dtype=torch.int8)
    ours, eager = (lambda: int8_matmul(x, y)), (lambda: torch._int_mm(x, y))
    return Port("int8_matmul", f"{m}x{n}x{k}", ours, eager)


def _top_k_port(rows: int, columns: int, count: int) -> Port:
    x = torch.randn(rows, columns)
    ours, eager = (lambda: top_k(x, count)), (lambda: torch.topk(x, count))
    return Port("top_k by argmax", f"{count} of {rows}x{columns}", ours, eager)


def _cholesky_port(batch: int, n: int, kernel: Any = cholesky) -> Port:
    a = random_matrices(batch, n)
    name = "cholesky" if kernel is cholesky else "cholesky, unrolled"
    return Port(name, f"{batch}x{n}x{n}", lambda: kernel(a), lambda: torch.linalg.cholesky(a))


def _conv2d_port(n: int, c: int, side: int) -> Port:
    x, weight = torch.randn(n, c, side, side), torch.randn(c, c, 3, 3)
    return Port(
        "conv2d", f"{n}x{c}x{side}x{side}, 3x3", lambda: conv2d(x, weight, 1, 1),
        lambda: functional.conv2d(x, weight, padding=1),
    )  # fmt: skip


def ports() -> list[Port]:
    """All rows."""
    return [
        *_conv1d_ports(),
        _int8_port(512, 512, 512),
        _int8_port(256, 1024, 2048),
        _top_k_port(1024, 512, 4),
        _top_k_port(256, 4096, 8),
        _cholesky_port(256, 16),
        _cholesky_port(64, 32),
        _cholesky_port(64, 32, unrolled_cholesky),
        _conv2d_port(2, 64, 56),
    ]


def _is_close(ours: Any, eager: Any) -> bool:
    if isinstance(ours, (tuple, list)):
        return all(map(_is_close, ours, eager))
    return bool(torch.allclose(ours.double(), eager.double(), rtol=1e-3, atol=1e-3))


def sample_ms(call: Call) -> float:
    """CPU time of one call, from as many as make a readable sample."""
    calls, start = 0, time.process_time()
    while (spent := time.process_time() - start) < MIN_SAMPLE_S or not calls:
        call()
        calls += 1
    return spent / calls * 1e3


def measure(port: Port, rounds: int) -> list[str]:
    """The cells of a row."""
    start = time.process_time()
    result = port.ours()
    first = time.process_time() - start
    remark = "" if _is_close(result, port.eager()) else " (WRONG)"
    samples = [(sample_ms(port.ours), sample_ms(port.eager)) for _ in range(rounds + 1)][1:]
    ours, eager = (median(list(column)) for column in zip(*samples))
    ratio = median([mine / theirs for mine, theirs in samples])
    cells = [f"{ours:.3f}", f"{eager:.3f}", f"{ratio:.2f}", f"{first:.2f}"]
    return [port.name + remark, port.size, *cells]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--rounds", type=int, default=7)
    parsed = parser.parse_args(arguments)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows = [measure(port, parsed.rounds) for port in ports() if parsed.only in port.name]
    print_table("Ports on one thread, CPU time", HEADERS, rows)


if __name__ == "__main__":
    main()
