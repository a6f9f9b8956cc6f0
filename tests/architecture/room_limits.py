"""Where each room of src and each figure of tools/house.py stands; they may only go down."""

from __future__ import annotations

ROOMS: dict[str, tuple[int, int]] = {
    "tilesmith/analysis": (13, 2_250),
    "tilesmith/backends": (94, 18_200),
    "tilesmith/backends/cpu": (52, 10_600),
    "tilesmith/backends/reference": (2, 50),
    "tilesmith/backends/triton": (36, 7_350),
    "tilesmith/bench": (19, 4_050),
    "tilesmith/cli": (13, 1_700),
    "tilesmith/compiler": (9, 1_450),
    "tilesmith/diagnostics": (10, 1_700),
    "tilesmith/frontend": (61, 13_700),
    "tilesmith/gradients": (24, 4_050),
    "tilesmith/interpreter": (15, 2_150),
    "tilesmith/ir": (22, 2_950),
    "tilesmith/jit": (23, 3_500),
    "tilesmith/lab": (20, 3_000),
    "tilesmith/measure": (4, 500),
    "tilesmith/numerics": (20, 4_250),
    "tilesmith/passes": (14, 3_300),
    "tilesmith/runtime": (13, 1_500),
    "tilesmith/schedule": (24, 5_050),
    "tilesmith/store": (7, 1_150),
    "tilesmith/tune": (29, 5_550),
}
"""Room: how many files and lines it may have, with all its folders."""

FIGURES: dict[str, int] = {
    "lines in src": 81_350,
    "files in src": 445,
    "longest import chain": 25,
    "frames from BoundKernel to emit": 8,
    "questions about the device outside backends": 3,
    "files that name a lane-mixing op (Sort)": 8,
    "modules with one importer": 102,
    "folders with more than 25 files": 0,
    "unused symbols (vulture)": 1,
}
"""The table of decision 0022."""
