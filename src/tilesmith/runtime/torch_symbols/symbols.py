"""Finds functions of torch's libraries for native code (``runtime/calls/torch_calls.c``).

Python takes 0.8 to 1.6 us to make a tensor, of which 0.2 are the tensor. Handles of tensors are of
the C interface that torch keeps stable; the other names are of C++, where a version may change what
they mean. So only versions of torch that were tried are asked, and what they make is looked at.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

import torch

TRIED = ("2.13.",)
"""Versions of torch for which the whole test suite has run with these functions."""
_NAMES = {
    "libtorch_cpu.so": (
        "aoti_torch_empty_strided", "aoti_torch_get_data_ptr", "aoti_torch_delete_tensor_object",
    ),
    "libtorch_python.so": ("_Z16THPVariable_WrapRKN2at10TensorBaseE",),
    "libtorch_cpu.so ": (
        "_ZN2at15get_num_threadsEv", "_ZN3c108GradMode10is_enabledEv",
        "_ZN2at4impl27torch_function_mode_enabledEv", "_ZN2at13globalContextEv",
        "_ZNK2at7Context23deterministicAlgorithmsEv",
    ),
}  # fmt: skip
"""By library, in the order of native code; a library also knows those that it was linked with."""
_TYPES = {
    torch.uint8: 0, torch.int8: 1, torch.int16: 2, torch.int32: 3, torch.int64: 4,
    torch.float16: 5, torch.float32: 6, torch.float64: 7, torch.bool: 11, torch.bfloat16: 15,
}  # fmt: skip
"""Numbers that torch has for them in its C interface."""
MOST_AXES = 8


def use_torch_symbols(module: Any) -> bool:
    """Give native code the functions; whether they are there, and make what Python would."""
    if not (sys.platform == "linux" and torch.__version__.startswith(TRIED)):
        return False
    addresses = find_symbols()
    if addresses is None:
        return False
    module.use_torch(addresses, torch.get_num_threads, torch.is_grad_enabled)
    if all(_is_made_right(module, dtype) for dtype in _TYPES):
        return True
    module.use_torch((0,) * len(addresses), torch.get_num_threads, torch.is_grad_enabled)
    return False


def find_symbols() -> tuple[int, ...] | None:
    """Addresses of all functions, in libraries that this process has loaded."""
    folder = Path(torch.__file__).parent / "lib"
    try:
        found = [
            ctypes.cast(getattr(ctypes.CDLL(str(folder / library.strip())), name), ctypes.c_void_p)
            for library, names in _NAMES.items()
            for name in names
        ]
    except (OSError, AttributeError):
        return None
    return tuple(pointer.value or 0 for pointer in found)


def quick_maker(tensor: torch.Tensor, *, is_zeroed: bool) -> tuple[Any, ...] | None:
    """How native code makes a tensor of this form on the CPU; None where it cannot."""
    number = _TYPES.get(tensor.dtype)
    is_plain = tensor.is_cpu and tensor.numel() > 0 and tensor.dim() <= MOST_AXES
    if number is None or not is_plain or (is_zeroed and not tensor.is_contiguous()):
        return None
    return number, tuple(tensor.size()), tensor.stride(), tensor.nbytes if is_zeroed else 0


def _is_made_right(module: Any, dtype: torch.dtype) -> bool:
    """Whether a tensor that is made so differs in nothing from one that Python makes."""
    example = torch.empty_strided((3, 1, 2), (2, 9, 1), dtype=dtype)
    made = module.make_tensor(quick_maker(example, is_zeroed=False))
    if made is None:
        return torch.are_deterministic_algorithms_enabled()  # nothing can be said just now
    tensor, address = made
    is_same = all(
        getattr(tensor, name) == getattr(example, name)
        for name in ("dtype", "device", "shape", "requires_grad", "layout", "_version", "is_leaf")
    )
    is_same &= tensor.stride() == example.stride() and tensor.data_ptr() == address
    storages = [x.untyped_storage() for x in (tensor, example)]
    is_same &= storages[0].nbytes() == storages[1].nbytes() and storages[0].resizable()
    return is_same and type(tensor) is torch.Tensor
