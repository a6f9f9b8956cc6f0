"""Runs example kernels under Triton's interpreter: JSON lists of jobs in and of outcomes out.

A process of its own, since TRITON_INTERPRET decides how ``triton.language`` itself is imported.
A job is [case, size, dtype, static shapes or not, seed]; an outcome is null, or what went wrong.
"""

from __future__ import annotations

import importlib.util
import json
import random
import sys
import tempfile
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

import tilesmith as helion

# Imported first of all that may import triton: it sets TRITON_INTERPRET.
from tests.backends.triton.interpreter_worker import _patch as patch_interpreter
from tests.examples.case import copies
from tests.examples.cases import EXAMPLES
from tests.examples.ports.ports import PORTS

TARGET = "cuda:90"
CASES = {case.name: case for case in (*EXAMPLES, *PORTS)}


def import_text(source: str, folder: str) -> ModuleType:
    """Import a module from its text; Triton reads the source of functions from their file."""
    path = Path(folder) / "emitted.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location("emitted", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_job(name: str, size: list[int], dtype_name: str, static_shapes: bool, seed: int) -> None:
    """Export a kernel with a random config, run the exported module, compare with fp64."""
    case, dtype = CASES[name], getattr(torch, dtype_name)
    args = case.make_inputs(tuple(size), dtype, "cpu")
    before = copies(args)
    kernel = helion.kernel(case.kernel.fn, static_shapes=static_shapes)
    bound = kernel.bind(args, target=TARGET)
    config = bound.config_spec.random_config(random.Random(seed))
    source = bound.to_triton_code(config)
    try:
        with tempfile.TemporaryDirectory() as folder:
            module = import_text(source, folder)
            result = getattr(module, case.kernel.name)(*args)
        case.check(result, before, tuple(size), dtype)
    except Exception as error:
        raise RuntimeError(f"with {config}\n{source}") from error


def outcome(job: list[Any]) -> str | None:
    """None, or the traceback of a job that failed."""
    try:
        run_job(*job)
    except Exception:
        return traceback.format_exc()
    return None


if __name__ == "__main__":
    patch_interpreter()
    json.dump([outcome(job) for job in json.load(sys.stdin)], sys.stdout)
