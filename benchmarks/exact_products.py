"""Whether products of fp32 by three tf32 products may stand for exact ones: hostile data.

    python -m benchmarks.exact_products [--size 512] [--depth 1024,16384]

A row has the largest error of an element over the sum of magnitudes behind it, in units of the last
place of fp32, for ``ieee``, for ``tf32x3`` and for cuBLAS; and how many elements are not what fp64
has at infinities and NaN. Results that fp32 cannot hold are judged as overflow.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

import torch

import tilesmith as helion
from benchmarks.table import print_table
from examples.matmul import matmul

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
UNIT = 2.0**-24
"""Half the distance of neighbours, relative."""
Pair = tuple[torch.Tensor, torch.Tensor]
Make = Callable[[int, int], Pair]


def normal(rows: int, depth: int, scale: float = 1.0) -> torch.Tensor:
    """Random numbers of that deviation."""
    return torch.randn(rows, depth, dtype=torch.float64, device=DEVICE) * scale


def _pair(x: torch.Tensor, y: torch.Tensor) -> Pair:
    return x.float(), y.t().float()


def _scaled(left: float, right: float) -> Make:
    return lambda size, depth: _pair(normal(size, depth, left), normal(size, depth, right))


def _spread(bits: float) -> Make:
    def make(size: int, depth: int) -> Pair:
        x, y = (
            normal(size, depth) * torch.exp2(bits * (2 * torch.rand_like(normal(size, depth)) - 1))
            for _ in range(2)
        )
        return _pair(x, y)

    return make


def _cancelling(size: int, depth: int) -> Pair:
    x, y = normal(size, depth // 2), normal(size, depth // 2)
    return _pair(torch.cat([x, -x], 1), torch.cat([y, y * (1 + 2.0**-20)], 1))


def _positive(size: int, depth: int) -> Pair:
    return _pair(normal(size, depth).abs(), normal(size, depth).abs())


def _with_some(value: float) -> Make:
    def make(size: int, depth: int) -> Pair:
        x, y = _pair(normal(size, depth), normal(size, depth))
        x[:: size // 8, 3] = value
        return x, y

    return make


def _largest(size: int, depth: int) -> Pair:
    x, y = _with_some(torch.finfo(torch.float32).max)(size, depth)
    return x, y * 2.0**-10


CASES: dict[str, Make] = {
    "normal": _scaled(1.0, 1.0),
    "positive": _positive,
    "halves cancel": _cancelling,
    "exponents of 20 bits": _spread(10.0),
    "exponents of 100 bits": _spread(50.0),
    "2^-60 by 2^60": _scaled(2.0**-60, 2.0**60),
    "2^-110 by 2^100": _scaled(2.0**-110, 2.0**100),
    "2^-124 by 2^120": _scaled(2.0**-124, 2.0**120),
    "denormals by 2^120": _scaled(2.0**-135, 2.0**120),
    "2^-70 by 2^-70": _scaled(2.0**-70, 2.0**-70),
    "2^125 by 2^-120": _scaled(2.0**125, 2.0**-120),
    "some largest numbers by 2^-10": _largest,
    "some infinities": _with_some(float("inf")),
    "some NaN": _with_some(float("nan")),
}


def errors(found: torch.Tensor, exact: torch.Tensor, magnitude: torch.Tensor) -> str:
    """The largest error in units, and elements that are finite in one of the two only."""
    wanted = exact.float()
    is_finite = wanted.isfinite() & found.isfinite()
    same = (found == wanted) | (found.isnan() & wanted.isnan())
    wrong = int((~is_finite & ~same).sum())
    # Below the least normal number, the spacing of fp32 no longer shrinks.
    least = torch.finfo(torch.float32).tiny
    share = (found.double() - exact).abs() / magnitude.clamp_min(least)
    worst = float(torch.where(is_finite, share, 0.0).max()) / UNIT
    return f"{worst:.3g}" + f", {wrong} not alike" * bool(wrong)


def cells(name: str, size: int, depth: int) -> list[str]:
    """One line of the table."""
    torch.manual_seed(0)
    x, y = CASES[name](size, depth)
    exact, magnitude = x.double() @ y.double(), x.double().abs() @ y.double().abs()
    kernels = {
        precision: helion.kernel(matmul.fn, static_shapes=True, dot_precision=precision)
        for precision in ("ieee", "tf32x3")
    }
    found = {precision: kernel(x, y) for precision, kernel in kernels.items()}
    found["cuBLAS"] = x @ y
    return [name, str(depth), *(errors(value, exact, magnitude) for value in found.values())]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=512, help="rows and columns")
    parser.add_argument("--depth", default="1024,16384", help="lengths of sums")
    parsed = parser.parse_args(arguments)
    torch.backends.cuda.matmul.allow_tf32 = False
    depths = [int(text) for text in parsed.depth.split(",")]
    rows = [cells(name, parsed.size, depth) for depth in depths for name in CASES]
    headers = ["data", "depth", "ieee", "tf32x3", "torch"]
    print_table("Largest errors, in 2^-24 of the sum of magnitudes", headers, rows)


if __name__ == "__main__":
    main()
