"""Tensors that cannot be described run without warp roles, whatever tiles roles have."""

from __future__ import annotations

import pytest

from tests.device.warp_role_cases import KERNELS, Case, choose_config, make_args
from tests.fuzzing import unlaunched
from tilesmith.runtime.launchers import triton as launching


@pytest.mark.parametrize("kind", ["lse", "plain"])
def test_tiles_of_roles_become_plain_ones(kind: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(launching, "get_num_sm", launching.get_num_sm)
    first = launching.TritonLauncher._first_launch
    monkeypatch.setattr(launching.TritonLauncher, "_first_launch", first)
    unlaunched.launch_nothing()
    case = Case(kind, 577, 64, "misaligned")
    args = make_args(case, "cpu")
    bound = KERNELS[kind][0].bind(args, target=unlaunched.GPU)
    config = choose_config(case, bound)
    assert config is not None
    assert 192 in config["block_sizes"]
    bound.compile_config(config)(*args)
