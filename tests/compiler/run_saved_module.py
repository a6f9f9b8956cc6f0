"""Runs the host function of a saved module under Triton's interpreter, in a process of its own.

Arguments: the module's file, the function's name, a file of inputs, a file for the result. Nothing
of tilesmith may be imported on the way.
"""

from __future__ import annotations

import importlib.util
import sys

import torch

from tests.backends.triton.interpreter_worker import _patch as patch_interpreter


def main(path: str, name: str, inputs: str, output: str) -> None:
    patch_interpreter()
    spec = importlib.util.spec_from_file_location("saved", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    result = getattr(module, name)(*torch.load(inputs))
    assert not [module for module in sys.modules if module.startswith("tilesmith")]
    torch.save(result, output)


if __name__ == "__main__":
    main(*sys.argv[1:])
