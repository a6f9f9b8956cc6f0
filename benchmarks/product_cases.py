"""Products that are timed: shapes, and configs around their defaults."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
Tile = tuple[int, int, int, int, int, str, int]
"""Rows, columns, depth, warps, stages, form, grouping."""

FORMS: dict[str, str] = {
    "pointers": "operands and results by pointers, a program for each tile",
    "loads": "operands through the copy engine",
    "copies": "operands and results through it",
    "loop": "the same, programs walk several tiles in one loop, and store in parts",
    "roles": "warps with roles",
}

HALF_TILES: tuple[Tile, ...] = (
    (128, 256, 64, 8, 4, "loop", 8), (128, 256, 64, 8, 4, "loop", 4),
    (128, 256, 64, 8, 3, "loop", 8), (128, 256, 64, 8, 3, "loop", 4),
    (128, 256, 64, 8, 4, "copies", 1), (128, 256, 64, 8, 4, "copies", 8),
    (256, 128, 64, 8, 4, "loop", 8), (128, 256, 64, 8, 3, "pointers", 4),
    (128, 128, 64, 8, 5, "loop", 8), (128, 128, 64, 4, 4, "loop", 8),
    (128, 128, 64, 4, 5, "copies", 1), (128, 128, 64, 4, 3, "copies", 1),
    (128, 128, 64, 4, 3, "copies", 4), (128, 128, 64, 4, 3, "copies", 8),
    (128, 128, 64, 4, 3, "copies", 16), (128, 128, 64, 4, 3, "loads", 4),
    (128, 128, 64, 4, 3, "pointers", 4), (128, 128, 64, 8, 3, "pointers", 4),
    (128, 128, 32, 4, 4, "pointers", 4), (64, 256, 64, 4, 4, "loop", 8),
    (64, 128, 128, 4, 4, "copies", 1), (64, 128, 64, 4, 4, "copies", 1),
    (64, 128, 64, 4, 4, "copies", 4), (64, 128, 64, 4, 4, "copies", 8),
    (64, 128, 64, 4, 3, "copies", 4), (64, 128, 64, 4, 4, "loop", 8),
    (64, 128, 64, 4, 6, "pointers", 1), (64, 128, 64, 4, 4, "pointers", 4),
    (64, 128, 64, 4, 3, "pointers", 4), (64, 128, 32, 4, 4, "pointers", 4),
    (128, 64, 64, 4, 4, "copies", 4), (128, 64, 128, 4, 4, "copies", 1),
    (128, 64, 64, 4, 4, "pointers", 4), (64, 64, 128, 4, 4, "pointers", 1),
    (64, 64, 128, 4, 4, "copies", 1), (64, 64, 64, 4, 6, "pointers", 1),
    (64, 64, 64, 4, 4, "pointers", 4), (64, 32, 128, 4, 4, "pointers", 1),
)  # fmt: skip
ROUNDED_TILES: tuple[Tile, ...] = (
    (128, 128, 32, 4, 3, "loads", 4), (128, 128, 32, 4, 4, "loads", 4),
    (128, 128, 32, 8, 3, "loads", 4), (128, 128, 32, 8, 4, "copies", 4),
    (128, 128, 64, 4, 2, "loads", 4), (128, 128, 64, 8, 3, "loads", 4),
    (256, 128, 32, 8, 3, "loads", 4), (256, 64, 32, 4, 3, "loads", 4),
    (128, 64, 32, 4, 4, "loads", 4), (128, 64, 64, 4, 2, "loads", 4),
    (128, 256, 32, 8, 3, "loads", 4), (128, 256, 32, 8, 3, "loop", 8),
    (64, 64, 32, 4, 4, "loads", 4), (64, 64, 32, 2, 4, "pointers", 4),
    (128, 64, 32, 2, 4, "pointers", 4),
)  # fmt: skip
SPLIT_TILES: tuple[Tile, ...] = (
    (256, 64, 32, 8, 3, "loads", 4), (256, 64, 32, 8, 4, "loads", 4),
    (256, 64, 32, 8, 2, "loads", 4), (256, 64, 32, 8, 3, "pointers", 4),
    (256, 64, 16, 8, 4, "loads", 4), (256, 32, 32, 8, 3, "loads", 4),
    (128, 64, 32, 4, 3, "loads", 4), (128, 64, 32, 4, 3, "pointers", 4),
    (128, 64, 32, 4, 4, "pointers", 4), (128, 64, 32, 8, 3, "pointers", 4),
    (128, 32, 32, 4, 3, "pointers", 4), (64, 64, 32, 2, 4, "pointers", 4),
    (64, 64, 32, 2, 3, "pointers", 4), (64, 64, 32, 4, 3, "pointers", 4),
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One product."""

    m: int
    k: int
    n: int
    precision: str = "bf16"
    """``bf16``, or that of a product of fp32."""
    layout: str = "nn"
    has_gelu: bool = False

    @property
    def name(self) -> str:
        """For tables and the command line."""
        plain = f"{self.precision} {self.m}x{self.k}x{self.n}"
        return plain + f" {self.layout}" * (self.layout != "nn") + " + bias, gelu" * self.has_gelu

    @property
    def dtype(self) -> torch.dtype:
        """Of operands and result."""
        return torch.bfloat16 if self.precision == "bf16" else torch.float32

    def operands(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Both factors, and the bias."""
        torch.manual_seed(0)
        y_shape = (self.k, self.n) if self.layout == "nn" else (self.n, self.k)
        shapes = ((self.m, self.k), y_shape, (self.n,))
        x, y, bias = (torch.randn(shape, dtype=self.dtype, device=DEVICE) for shape in shapes)
        return x, y if self.layout == "nn" else y.t(), bias

    def tiles(self) -> Iterator[Tile]:
        """Configs to try: enough tiles to be used, but not hundreds for each multiprocessor."""
        words = ROUNDED_TILES if self.precision == "tf32" else SPLIT_TILES
        for tile in HALF_TILES if self.precision == "bf16" else words:
            count = -(-self.m // tile[0]) * -(-self.n // tile[1])
            is_copyable = self.k % 8 == self.n % 8 == 0 or tile[5] == "pointers"
            if 16 <= count <= 8192 and is_copyable:
                yield tile


def _cubes(precision: str, *sides: int) -> list[Case]:
    return [Case(side, side, side, precision) for side in sides]


CASES: tuple[Case, ...] = (
    *_cubes("bf16", 512, 1024, 2048, 4096, 8192),
    Case(1024, 1024, 4096), Case(16384, 2048, 2048), Case(4096, 14336, 4096),
    # Awkward: no whole number of waves, no multiples of a tile, a short sum, odd.
    Case(1536, 1536, 1536), Case(4000, 3000, 5000), Case(20120, 512, 1536), Case(2999, 3001, 3003),
    Case(8192, 4096, 16384, has_gelu=True),
    *_cubes("tf32", 1024, 2048, 4096), Case(4096, 4096, 4096, "tf32", "nt"),
    *_cubes("tf32x3", 1024, 2048, 4096), Case(4096, 4096, 4096, "ieee"),
)  # fmt: skip
OTHERS: tuple[Case, ...] = (
    *_cubes("bf16", 768, 2560, 3072, 6144), Case(2000, 2000, 2000), Case(1000, 4096, 6000),
    Case(12000, 640, 2560), Case(300, 5000, 5000), Case(4096, 4096, 4096, layout="nt"),
    Case(5001, 1000, 1001), Case(8192, 1024, 4096, has_gelu=True),
    *_cubes("tf32", 1536, 8192), Case(3000, 3000, 3000, "tf32"),
    Case(2048, 2048, 2048, "tf32", "nt"), *_cubes("tf32x3", 1536), Case(8192, 1024, 2048, "tf32x3"),
)  # fmt: skip
"""Shapes that defaults were chosen by as well."""
HELD: tuple[Case, ...] = (
    *_cubes("bf16", 1280, 1792, 5120), Case(3584, 2048, 3584), Case(2304, 4096, 1152),
    Case(7000, 2000, 3000), Case(15000, 800, 1000), Case(3333, 2222, 1111),
    Case(10240, 2560, 2560, has_gelu=True), Case(2560, 2560, 2560, "tf32"),
    Case(1000, 3000, 2000, "tf32"), Case(6144, 2048, 1024, "tf32"),
    Case(3072, 1024, 3072, "tf32", "nt"), Case(1280, 1280, 1280, "tf32x3"),
    Case(3072, 1024, 3072, "tf32x3"), Case(6144, 6144, 6144, "tf32x3"),
)  # fmt: skip
"""Shapes that were held out until tiles of columns in parts were fitted to them as well."""
GRAINS = (256, 64, 8, 1)
"""What sizes are multiples of: tiles, instructions, what the copy engine takes, anything."""
FRESH_SEED, FRESH_CASES = 20261118, 16


def drawn(seed: int, count: int = FRESH_CASES) -> tuple[Case, ...]:
    """Shapes that nobody chose: sizes from 256 to 16384, as many of each grain.

    Once something is fitted to them, another seed draws others.
    """
    random, known = Random(seed), {(c.m, c.k, c.n) for c in (*CASES, *OTHERS, *HELD)}
    found: dict[tuple[int, int, int], Case] = {}
    while len(found) < count:
        grain = GRAINS[len(found) % len(GRAINS)]
        m, k, n = (max(grain, int(2 ** random.uniform(8, 14)) // grain * grain) for _ in range(3))
        if LEAST_WORK <= m * k * n <= MOST_WORK and (m, k, n) not in known:
            precision = "bf16" if len(found) % 8 < 6 else "tf32"
            found[m, k, n] = Case(m, k, n, precision)
    return tuple(found.values())


LEAST_WORK, MOST_WORK = 1 << 28, 1 << 38
"""Multiply-adds: shorter ones are launches, and longer ones take minutes of the device."""
FRESH = drawn(FRESH_SEED)
"""Shapes that nothing was chosen by. Times of them are for tables, not for heuristics."""
SETS = {"issue": CASES, "others": OTHERS, "held": HELD, "fresh": FRESH}
