"""Importing the package loads no compiler: not triton or LLVM, not torch's private ones.

Nor does comparing a result with its reference, which every tuning and benchmarking process does.
"""

from __future__ import annotations

import json
import os
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tests.warm_python import warm_python

ROOT = Path(__file__).parents[2]
UNWANTED = ("torch._inductor", "torch._dynamo", "triton", "llvmlite", "sympy")
PUBLIC_MODULES = ("language", "exc", "runtime", "autotuner")
COMPARISON = """
from tilesmith.numerics.compare import check_against
x = torch.ones(3, 5)
check_against(x, x.double())
"""


@cache
def modules_added_by(*names: str, after: str = "sys", then: str = "") -> frozenset[str]:
    """What a new process that has one module loads for others, and for code that follows."""
    code = f"import json, sys\nimport {after}\nbefore = set(sys.modules)\n"
    code += "".join(f"import {name}\n" for name in names) + then
    result = subprocess.run(
        [*warm_python(), "-c", code + "print(json.dumps(sorted(set(sys.modules) - before)))"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return frozenset(json.loads(result.stdout.splitlines()[-1]))


def is_part_of(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


@pytest.mark.parametrize("package", UNWANTED)
def test_importing_the_package_loads_nothing_heavy_beyond_torch(package: str):
    public = [f"tilesmith.{name}" for name in PUBLIC_MODULES]
    added = modules_added_by("tilesmith", *public, after="torch", then=COMPARISON)
    assert "tilesmith.language" in added
    assert not [module for module in sorted(added) if is_part_of(module, package)]


def test_a_loaded_module_is_noticed():
    assert "sympy" in modules_added_by("sympy")
