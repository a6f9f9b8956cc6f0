"""A process that runs emitted modules under Triton's interpreter: pickled jobs in, results out.

A separate process, since TRITON_INTERPRET decides how ``triton.language`` itself is imported.
"""

from __future__ import annotations

import importlib.util
import os
import pickle
import struct
import sys
import tempfile
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"

import numpy as np
import torch
import triton.language as tl
from triton.language.extra import cuda, libdevice
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle, _get_np_dtype

NUM_SMS = 3


def _lane_by_lane(function):
    """A numpy function in the place of a libdevice one, which the interpreter lacks."""

    def apply(*args):
        # Numbers are tensors of no axes to the compiler; here they are Python's.
        tensors = [arg for arg in args if isinstance(arg, tl.tensor)]
        element = tensors[0].handle.data.dtype if tensors else np.dtype(np.float32)
        arrays = [
            arg.handle.data if isinstance(arg, tl.tensor) else np.array([arg], element)
            for arg in args
        ]
        with np.errstate(all="ignore"):
            data = function(*arrays).astype(element)
        dtype = tensors[0].dtype if tensors else tl.float32
        is_block = any(tensor.shape for tensor in tensors)
        kind = tl.block_type(dtype, list(data.shape)) if is_block else dtype
        return tl.tensor(TensorHandle(data, dtype), kind)

    return apply


def _all_ones(builder: InterpreterBuilder, kind: Any) -> TensorHandle:
    """All bits set: NumPy takes no -1 for an unsigned number, as Triton's own function wants."""
    is_bool = kind.scalar.is_int1()
    ones = np.full(1, True) if is_bool else ~np.zeros(1, dtype=_get_np_dtype(kind))
    return TensorHandle(ones, kind.scalar)


def _patch() -> None:
    InterpreterBuilder.get_all_ones_value = _all_ones  # type: ignore[method-assign]
    for name in ("exp", "exp2", "expm1", "log10", "log1p", "tan", "sinh", "cosh", "tanh", "fmod"):
        setattr(libdevice, name, _lane_by_lane(getattr(np, name)))
    renamed = {
        "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "asinh": np.arcsinh,
        "acosh": np.arccosh, "atanh": np.arctanh, "atan2": np.arctan2, "pow": np.power,
        "trunc": np.trunc, "nearbyint": np.rint, "sqrt": np.sqrt, "copysign": np.copysign,
        "rsqrt": lambda x: 1 / np.sqrt(x),
        "erfc": lambda x: torch.erfc(torch.from_numpy(np.ascontiguousarray(x))).numpy(),
    }  # fmt: skip
    for name, function in renamed.items():
        setattr(libdevice, name, _lane_by_lane(function))
    # Launches run one after the other here.
    cuda.gdc_wait = cuda.gdc_launch_dependents = lambda: None
    properties = SimpleNamespace(multi_processor_count=NUM_SMS)
    torch.cuda.get_device_properties = lambda device: properties


def _run(source: str, args: list[Any]) -> list[Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "emitted.py"
        path.write_text(source)
        spec = importlib.util.spec_from_file_location("emitted", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        module.launch(*args)
    return args


def _serve() -> None:
    _patch()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what kernels print must not get between the answers
    while head := sys.stdin.buffer.read(8):
        source, args = pickle.loads(sys.stdin.buffer.read(struct.unpack("q", head)[0]))
        try:
            answer: Any = _run(source, args)
        except Exception:
            answer = traceback.format_exc()
        data = pickle.dumps(answer)
        answers.write(struct.pack("q", len(data)) + data)
        answers.flush()


if __name__ == "__main__":
    _serve()
