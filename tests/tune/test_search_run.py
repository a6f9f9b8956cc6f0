"""What counts as simpler when two Configs are equally fast."""

from __future__ import annotations

import torch

from examples.softmax import softmax
from tilesmith.tune.search_run import complexity


def test_the_default_is_the_simplest_of_all():
    spec = softmax.bind((torch.empty(512, 4096),), target="cuda:90").config_spec
    default = spec.default_config()
    others = [default.updated(num_warps=2), default.updated(num_stages=2), spec.base_config()]
    for other in others:
        if spec.normalize(other) != default:
            assert complexity(default, spec) < complexity(other, spec)


def test_pointers_and_flat_ids_are_simpler():
    spec = softmax.bind((torch.empty(512, 4096),), target="cuda:90").config_spec
    plain = spec.default_config().updated(num_warps=2)
    blocks = plain.updated(indexing=["block_ptr", "pointer"])
    loops = plain.updated(pid_type="persistent_blocked")
    assert complexity(plain, spec) < complexity(blocks, spec)
    assert complexity(plain, spec) < complexity(loops, spec)
