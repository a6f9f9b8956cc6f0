"""No launch waits for ever: whoever waits is resident with those it waits for, whatever the config.

Either all programs are resident, which the driver sees to, or they are numbered as they begin and
at most ``MOST_IN_GROUP`` wait for each other on a device that has room for twice as many.
"""

from __future__ import annotations

import random
import re
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from examples.layer_norm import layer_norm_fwd
from examples.matmul_layernorm import matmul_layernorm
from examples.softmax import softmax
from tests.conformance.barrier_kernels import centred_columns, two_stages
from tilesmith.artifacts import Artifact
from tilesmith.ir.ops.control_flow import LEAST_SMS_FOR_GROUPS, MOST_IN_GROUP

CONFIGS, DRAWN = 3, 40
BARRIERS = ("two_stages", "centred_columns")


def empty(*shape: int) -> torch.Tensor:
    return torch.empty(shape, device="meta")


KERNELS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "two_stages": (two_stages, (empty(3000, 200),)),
    "centred_columns": (centred_columns, (empty(3000, 200),)),
    "softmax": (softmax, (empty(8, 128256),)),
    "layer_norm": (layer_norm_fwd, (empty(8, 65536), empty(65536), empty(65536))),
    "matmul_layernorm": (
        matmul_layernorm,
        (empty(1024, 256), empty(256, 4096), empty(4096), empty(4096)),
    ),
}


def waits_of(artifact: Artifact) -> list[str]:
    """What is waited for, as written: the number of arrivals."""
    body = artifact.source.partition(f"def {artifact.name}(")[2]
    return re.findall(r"_wait_for_arrivals\(.*, (.*)\)$", body, re.MULTILINE)


def check_bounded(artifact: Artifact) -> str:
    """That the launch cannot hang; how."""
    waits = waits_of(artifact)
    if not waits:
        return "nobody waits"
    if artifact.options.get("launch_cooperative_grid"):
        assert artifact.grid[0].startswith("min(num_sms, ")
        assert all("tl.num_programs(0)" in wait for wait in waits)
        return "all are resident"
    assert "tl.program_id" not in artifact.source
    assert artifact.least_sms >= LEAST_SMS_FOR_GROUPS >= 2 * MOST_IN_GROUP
    for times, wait in enumerate(waits, 1):
        assert arrivals_of(artifact, wait) <= times * MOST_IN_GROUP
    return "numbered as they begin"


def arrivals_of(artifact: Artifact, text: str) -> int:
    """The value of an expression of constants of the module, and of what is made of them."""
    constants = re.findall(r"^(\w+) = tl.constexpr\((\d+)\)$", artifact.source, re.MULTILINE)
    locals_ = re.findall(r"^    (\w+) = (.*)$", artifact.source, re.MULTILINE)
    for name, value in (*reversed(locals_), *constants):
        text = re.sub(rf"\b{name}\b", f"({value})", text)
    known = {"tl": SimpleNamespace(cdiv=lambda a, b: -(-a // b))}
    return int(eval(text, known))


@pytest.mark.parametrize("name", KERNELS)
def test_random_configs(name: str) -> None:
    kernel, args = KERNELS[name]
    bound = kernel.bind(args, target="cuda:90")
    spec, draw = bound.config_spec, random.Random(name)
    configs = [spec.default_config(), *spec.seed_configs()]
    drawn = [spec.random_config(draw) for _ in range(DRAWN)]
    waiting = [config for config in drawn if config.get("structure") == "exchange"]
    configs += [*drawn[:CONFIGS], *waiting[:CONFIGS]]
    found = {check_bounded(bound.to_artifact(config)) for config in configs}
    if name in BARRIERS:
        assert found == {"all are resident"}
    else:
        assert found >= {"nobody waits", "numbered as they begin"}
