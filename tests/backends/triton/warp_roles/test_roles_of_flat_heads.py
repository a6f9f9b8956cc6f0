"""Warps with roles where heads are laid end to end: tiles may hold rows and keys of the next."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import tilesmith
import tilesmith.language as hl
from examples.attention import LOG2_E
from examples.blackwell_attention import blackwell_attention, reference
from tests.backends.triton.warp_roles.gluon_simulator import Simulation
from tests.backends.triton.warp_roles.warp_role_model import Explorer, record
from tests.backends.triton.warp_roles.warp_role_modules import any_stages, emit
from tilesmith.backends.triton.warp_roles.plan import RolePlan, plan_roles
from tilesmith.exc import InvalidConfig
from tilesmith.numerics.compare import check_against

FORM = "warp_roles"
HEADS, WIDTH = 3, 16


def tensors(queries, keys, width=WIDTH):
    torch.manual_seed(queries)
    q = torch.randn(1, HEADS, queries, width).bfloat16()
    return q, *(torch.randn(1, HEADS, keys, width).bfloat16() for _ in range(2))


def config(groups, columns, pid="flat", stages=2):
    blocks = [64 * groups, columns]
    return {"block_sizes": blocks, "num_warps": 4 * groups, "num_stages": stages, "pid_type": pid}


def check(queries, keys, options):
    args = tensors(queries, keys)
    run = Simulation(emit(blackwell_attention, args, **options))["blackwell_attention"]
    checked: dict[str, Any] = {"reduction_length": keys, "intermediate": [torch.bfloat16] * 2}
    q, k, v = args
    wanted = reference(q, k, v)
    check_against(run(*args), wanted, **checked)
    # What lies behind the last row of a head belongs to the next one.
    for tensor in args:
        tensor[:, 1] = float("nan")
    found = run(*args)
    for head in (0, 2):
        check_against(found[:, head], wanted[:, head], **checked)


@pytest.mark.parametrize(
    ("queries", "keys", "options"),
    [
        (128, 64, config(1, 32)),
        (100, 70, config(1, 32)),
        (65, 130, config(2, 64, "persistent_interleaved")),
        (2, 33, config(2, 16)),
        (200, 96, config(3, 32, "persistent_interleaved", stages=3)),
    ],
)
def test_heads_do_not_see_each_other(queries, keys, options):
    check(queries, keys, options)


@pytest.mark.full
@pytest.mark.parametrize("pid", ["flat", "persistent_interleaved"])
@pytest.mark.parametrize(("groups", "columns", "stages"), [(1, 16, 1), (2, 64, 2), (3, 32, 3)])
@pytest.mark.parametrize("length", [2, 63, 64, 65, 127, 257])
def test_more_lengths(length, groups, columns, stages, pid):
    check(length, length, config(groups, columns, pid, stages))
    check(length, 127, config(groups, columns, pid, stages))


def test_whole_tiles_are_not_cleared():
    whole = emit(blackwell_attention, tensors(128, 64), **config(1, 32))
    assert "_clear_rest" not in whole
    assert "tma.async_copy_shared_to_global" in whole
    cut = emit(blackwell_attention, tensors(100, 70), **config(1, 32))
    assert "_clear_rest" in cut
    # The copy engine would store rows into the next head.
    assert "tma.async_copy_shared_to_global" not in cut


@pytest.mark.parametrize("turns", [(0, 1), (1, 2), (3, 1)])
def test_every_order(turns):
    # A kernel of its own: others must not find what was emitted under changed rules.
    kernel = tilesmith.kernel(blackwell_attention.fn, static_shapes=True)
    q, k, v = (torch.zeros(1, 2, size, WIDTH).bfloat16() for size in (128, 24, 24))
    with any_stages():
        text = emit(kernel, (q, k, v), **config(2, 16, "persistent_interleaved"))
    recorded = record(text, "blackwell_attention", (q, k, v), turns)
    assert Explorer(recorded).explore() > sum(turns)


def spec_of(kernel, args):
    return kernel.bind(kernel.normalize_args(*args), target="cuda:90").config_spec


def many_heads():
    return [torch.empty(4, 32, 1024, 128, dtype=torch.bfloat16, device="meta") for _ in range(3)]


def test_it_is_the_default():
    chosen = spec_of(blackwell_attention, many_heads()).default_config()
    assert (chosen["structure"], chosen["block_sizes"]) == (FORM, [128, 128])


def test_steps_are_wide_where_the_length_is_known():
    def first_step(length):
        spec = spec_of(blackwell_attention, tensors(length, length, 128))
        rules = spec.rules.other_ways(spec.kernel)[FORM]
        return rules.seeds(spec.kernel)[1][0].values(spec.kernel)["block_sizes"][1]

    assert first_step(1024) == first_step(1000) == 128


@tilesmith.kernel(static_shapes=True)
def flat_query_gradients(
    grads_in: torch.Tensor, q_in: torch.Tensor, k_in: torch.Tensor, v_in: torch.Tensor
) -> torch.Tensor:
    """Turns of two parts; weights are powers of two, without a norm."""
    m, n = q_in.size(-2), k_in.size(-2)
    head_dim = hl.specialize(q_in.size(-1))
    grad_out, q, k, v = (x.reshape([-1, head_dim]) for x in (grads_in, q_in, k_in, v_in))
    grad_q = torch.empty_like(q)
    scale = LOG2_E / math.sqrt(head_dim)
    for tile_h, tile_m in hl.tile([q.size(0) // m, m], block_size=[1, None]):
        first = tile_h.begin * m
        queries, grads = q[tile_m + first, :], grad_out[tile_m + first, :]
        acc = hl.zeros([tile_m, head_dim], dtype=torch.float32)
        for tile_n in hl.tile(n):
            keys = k[tile_n + tile_h.begin * n, :]
            weights = torch.exp2(hl.dot(queries, keys.T) * scale)
            along = hl.dot(grads, v[tile_n + tile_h.begin * n, :].T)
            acc = hl.dot((weights * along).to(k.dtype), keys, acc=acc)
        grad_q[tile_m + first, :] = acc.to(q.dtype)
    return grad_q.view(q_in.size())


def gradient_tensors(m, n):
    return (*tensors(m, m)[:2], *tensors(n, n)[1:])


def test_turns_of_two_parts_take_whole_steps():
    args = gradient_tensors(100, 96)
    grad_out, q, k, v = (x.double() for x in args)
    weights = torch.exp2(q @ k.mT * (LOG2_E / math.sqrt(WIDTH)))
    wanted = (weights * (grad_out @ v.mT)) @ k
    text = emit(flat_query_gradients, args, **config(2, 32))
    found = Simulation(text)["flat_query_gradients"](*args)
    check_against(found, wanted, reduction_length=96, intermediate=[torch.bfloat16] * 2)
    with pytest.raises(InvalidConfig, match="steps of 64 over a loop that ends before a tensor"):
        emit(flat_query_gradients, args, **config(2, 64))


def test_turns_of_two_parts_without_whole_steps_have_no_roles():
    spec = spec_of(flat_query_gradients, gradient_tensors(128, 100))
    assert isinstance(plan_roles(spec.kernel.outline.function), RolePlan)
    assert "between whole tiles" in spec.rules.missing_ways(spec.kernel)[FORM]
