"""Fourier transforms of many short rows, each held in registers as a whole.

Radix two, in the order of Stockham: each stage combines the halves of all rows, and writes sums and
differences side by side, so nothing has to be put in order at the end.
"""

from __future__ import annotations

import math

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against

Two = tuple[torch.Tensor, torch.Tensor]


@helion.kernel
def fft(real: torch.Tensor, imaginary: torch.Tensor) -> Two:
    """Real and imaginary parts of the transforms of rows, whose length is a power of two."""
    rows, n = real.size()
    n = hl.specialize(n)
    assert n & (n - 1) == 0, f"rows of {n} elements: their number has to be a power of two"
    out_real, out_imaginary = torch.empty_like(real), torch.empty_like(imaginary)
    for tile in hl.tile(rows):
        re, im = real[tile, :], imaginary[tile, :]
        for stage in hl.static_range(n.bit_length() - 1):
            done = 1 << stage  # elements of the transforms that are finished
            shape = [tile, 2, n // 2 // done, done]
            even_re, odd_re = hl.split(re.reshape(shape).permute(0, 2, 3, 1))
            even_im, odd_im = hl.split(im.reshape(shape).permute(0, 2, 3, 1))
            angle = hl.arange(done).to(torch.float32) * (-math.pi / done)
            cos, sin = torch.cos(angle), torch.sin(angle)
            turned_re, turned_im = odd_re * cos - odd_im * sin, odd_re * sin + odd_im * cos
            re = torch.stack([even_re + turned_re, even_re - turned_re], 2).reshape(tile, n)
            im = torch.stack([even_im + turned_im, even_im - turned_im], 2).reshape(tile, n)
        out_real[tile, :] = re
        out_imaginary[tile, :] = im
    return out_real, out_imaginary


def reference(real: torch.Tensor, imaginary: torch.Tensor) -> Two:
    transformed = torch.fft.fft(torch.complex(real.double(), imaginary.double()))
    return transformed.real, transformed.imag


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows, n = (8192, 256) if device == "cuda" else (50, 64)
    parts = torch.randn(2, rows, n, device=device)
    found, right = fft(parts[0], parts[1]), reference(parts[0], parts[1])
    errors = [check_against(a, b, reduction_length=n).relative_norm for a, b in zip(found, right)]
    print(f"fft: relative error {max(errors):.1e}")


if __name__ == "__main__":
    main()
