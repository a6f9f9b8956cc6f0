"""Where each room of src and each figure of tools/house.py stands; they may only go down."""

from __future__ import annotations

ROOMS: dict[str, tuple[int, int]] = {
    "tilesmith/analysis": (11, 2_150),
    "tilesmith/backends": (89, 18_150),
    "tilesmith/backends/cpu": (50, 10_500),
    "tilesmith/backends/cpu/planning/single_positions": (2, 250),
    "tilesmith/backends/cpu/positions": (3, 400),
    "tilesmith/backends/reference": (2, 50),
    "tilesmith/backends/triton": (33, 7_380),
    "tilesmith/backends/triton/warp_roles": (13, 2_418),
    "tilesmith/bench": (18, 4_000),
    "tilesmith/cli": (13, 1_650),
    "tilesmith/cli/export": (2, 90),
    "tilesmith/compiler": (7, 1_250),
    "tilesmith/compiler/launch_guards": (2, 285),
    "tilesmith/diagnostics": (9, 1_700),
    "tilesmith/diagnostics/operators": (2, 61),
    "tilesmith/disk": (4, 330),
    "tilesmith/export": (4, 860),
    "tilesmith/frontend": (54, 12_550),
    "tilesmith/frontend/source/rewriting": (5, 670),
    "tilesmith/gradients": (26, 5_767),
    "tilesmith/interpreter": (10, 2_050),
    "tilesmith/ir": (20, 2_600),
    "tilesmith/jit": (12, 2_320),
    "tilesmith/jit/function_protocol": (3, 250),
    "tilesmith/jit/graphs": (3, 300),
    "tilesmith/jit/output": (3, 350),
    "tilesmith/jit/shards": (4, 600),
    "tilesmith/jit/staging": (5, 1_000),
    "tilesmith/jit/typed": (2, 200),
    "tilesmith/jit/visible": (5, 430),
    "tilesmith/lab": (18, 2_850),
    "tilesmith/measure": (4, 500),
    "tilesmith/numerics": (18, 4_150),
    "tilesmith/operators": (6, 1_173),
    "tilesmith/passes": (13, 3_200),
    "tilesmith/runtime": (12, 1_500),
    "tilesmith/schedule": (23, 5_200),
    "tilesmith/store": (7, 1_100),
    "tilesmith/tune": (28, 5_450),
}
"""Room: how many files and lines it may have, with all its folders but rooms that are new."""

FIGURES: dict[str, int] = {
    "lines in src": 89_020,
    "files in src": 473,
    "longest import chain": 25,
    "frames from BoundKernel to emit": 8,
    "questions about the device outside backends": 3,
    "files that name a lane-mixing op (Sort)": 7,
    "modules with one importer": 80,
    "folders with more than 25 files": 0,
    "unused symbols (vulture)": 1,
}
"""The table of decision 0022."""
