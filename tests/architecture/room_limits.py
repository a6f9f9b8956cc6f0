"""Where each room of src and each figure of tools/house.py stands; they may only go down."""

from __future__ import annotations

ROOMS: dict[str, tuple[int, int]] = {
    "tilesmith/analysis": (13, 2_500),
    "tilesmith/backends": (125, 20_350),
    "tilesmith/backends/cpu": (67, 12_000),
    "tilesmith/backends/reference": (2, 50),
    "tilesmith/backends/triton": (51, 8_100),
    "tilesmith/bench": (23, 4_450),
    "tilesmith/cli": (13, 1_850),
    "tilesmith/compiler": (8, 1_200),
    "tilesmith/diagnostics": (11, 2_100),
    "tilesmith/frontend": (53, 11_750),
    "tilesmith/interpreter": (18, 2_500),
    "tilesmith/ir": (23, 2_950),
    "tilesmith/jit": (11, 2_000),
    "tilesmith/lab": (22, 3_300),
    "tilesmith/measure": (4, 600),
    "tilesmith/numerics": (23, 4_750),
    "tilesmith/passes": (21, 3_850),
    "tilesmith/runtime": (17, 1_600),
    "tilesmith/schedule": (33, 5_450),
    "tilesmith/store": (9, 1_200),
    "tilesmith/tune": (41, 6_650),
}
"""Room: how many files and lines it may have, with all its folders."""

FIGURES: dict[str, int] = {
    "lines in src": 80_200,
    "files in src": 478,
    "longest import chain": 30,
    "frames from BoundKernel to emit": 8,
    "questions about the device outside backends": 3,
    "files that name a lane-mixing op (Sort)": 7,
    "modules with one importer": 127,
    "folders with more than 25 files": 0,
    "unused symbols (vulture)": 1,
}
"""The table of decision 0022."""
