"""What the tests of this folder run on: a GPU, or the PTX machine, which needs none.

``DEVICE_OF_TESTS=ptx`` chooses the machine (``make test-device DEVICE=ptx``). Tensors are those of
the host then, and kernels what Triton compiles of them for ``cuda:90``.
"""

from __future__ import annotations

import os
from typing import TypeVar

import torch

T = TypeVar("T")

IS_PTX = os.environ.get("DEVICE_OF_TESTS") == "ptx"
DEVICE = "cpu" if IS_PTX else "cuda"
"""Of tensors."""
MODE = "ptx" if IS_PTX else "cuda"
"""Of random programs."""
HAS_CHIP = IS_PTX or torch.cuda.is_available()
IS_HOPPER = IS_PTX or (HAS_CHIP and torch.cuda.get_device_capability() == (9, 0))


def sized(on_a_gpu: T, by_the_machine: T) -> T:
    """Sizes, or how often something is done: the machine is a million times slower."""
    return by_the_machine if IS_PTX else on_a_gpu
