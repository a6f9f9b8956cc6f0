"""Which target a torch device is, and what a live device can say about itself."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import torch

import tilesmith.exc as errors
from tilesmith.runtime.native.host_cpu import host_target
from tilesmith.targets import CPU, Target, cuda_target, hip_target, parse_target


@lru_cache(maxsize=64)
def target_of(device: torch.device) -> Target:
    """The compilation target of a device."""
    if device.type in ("cpu", "meta"):
        return host_target()
    if device.type != "cuda":
        raise errors.BackendUnsupported(operation=f"device {device.type}", backend="triton")
    properties = torch.cuda.get_device_properties(device)
    if torch.version.hip is not None:
        target = hip_target(properties.gcnArchName.split(":")[0])
    else:
        target = cuda_target(properties.major * 10 + properties.minor)
    return replace(target, num_sms=properties.multi_processor_count, model=properties.name)


def is_numbered(device: torch.device) -> bool:
    """Whether a device says which one it is; if not, the current one is meant."""
    return ":" in str(device)


def describe_device(target: Target) -> str:
    """What times of the target depend on, in words: the model, or a CPU with its threads."""
    name = target.model or str(target)
    # Torch's threads decide times on a CPU only; launching knows no backends to ask.
    return name if target.is_gpu else f"{name}, {torch.get_num_threads()} threads"


def resolve_target(target: str | Target) -> Target:
    """A target as the user names it; a CPU without a name of its architecture is this machine's."""
    resolved = parse_target(target) if isinstance(target, str) else target
    return host_target() if resolved == CPU else resolved


def device_targets(kind: str) -> list[tuple[str, Target]]:
    """The devices of a kind that torch sees, by name."""
    if kind != "cuda":
        return [(kind, target_of(torch.device(kind)))]
    names = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    return [(name, target_of(torch.device(name))) for name in names]
