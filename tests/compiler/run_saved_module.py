"""Runs host functions of saved modules under Triton's interpreter, in a process of its own.

Each line of the input is a list: the module's file, the function's name, a file of inputs, a file
for the result. Each line of the output is what went wrong, or nothing. Nothing of tilesmith may be
imported on the way.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import traceback

import torch

from tests.backends.triton.interpreter_worker import _patch as patch_interpreter


def run(path: str, name: str, inputs: str, output: str) -> None:
    spec = importlib.util.spec_from_file_location("saved", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    result = getattr(module, name)(*torch.load(inputs))
    assert not [module for module in sys.modules if module.startswith("tilesmith")]
    torch.save(result, output)


def main() -> None:
    patch_interpreter()
    answers = sys.stdout
    sys.stdout = sys.stderr
    for line in sys.stdin:
        try:
            run(*json.loads(line))
            problem = ""
        except Exception:
            problem = traceback.format_exc()
        answers.write(json.dumps(problem) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
