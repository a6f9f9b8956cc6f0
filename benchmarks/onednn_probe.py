"""Finds an environment in which eager bf16 products survive on this CPU.

Some virtual machines advertise AMX without having it: oneDNN believes them and dies of an illegal
instruction. Each candidate is tried in a process of its own; nothing here imports torch.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping

VARIABLE = "ONEDNN_MAX_CPU_ISA"
LOWER_AND_LOWER = (
    *("AVX512_CORE_FP16", "AVX512_CORE_BF16", "AVX512_CORE_VNNI", "AVX512_CORE", "AVX2"),
)
PROBE = """
import resource
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
import torch
x = torch.ones(1, 2, 128, 64, dtype=torch.bfloat16)
torch.mm(x[0, 0], x[0, 1].t())
torch.nn.functional.scaled_dot_product_attention(x, x, x)
"""


def survives(environment: Mapping[str, str]) -> bool:
    """Whether a small bf16 product and attention run under these variables."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE], env=dict(environment), capture_output=True, check=False
    )
    return done.returncode == 0


def find_environment(environment: Mapping[str, str]) -> tuple[dict[str, str], str]:
    """Variables for a process with bf16 products, and what was changed ("" for nothing)."""
    if survives(environment):
        return dict(environment), ""
    for limit in LOWER_AND_LOWER:
        candidate = {**environment, VARIABLE: limit}
        if survives(candidate):
            return candidate, f"{VARIABLE}={limit}, since eager bf16 products die without it here"
    return dict(environment), "eager bf16 products die here whatever the instruction set"
