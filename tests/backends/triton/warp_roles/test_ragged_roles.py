"""Warps with roles on sequences laid end to end: tiles without work, loops that end in a tensor."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tilesmith
import tilesmith.language as hl
from examples.jagged_hstu_attn import reference as hstu_reference
from examples.jagged_hstu_attn_2 import jagged_hstu_attn_2
from examples.ports import varlen_attention as varlen_port
from examples.ports.paged_decode import paged_decode
from tests.backends.triton.warp_roles.gluon_memory import ProtocolError
from tests.backends.triton.warp_roles.gluon_simulator import Simulation
from tests.backends.triton.warp_roles.warp_role_model import Explorer, record
from tests.backends.triton.warp_roles.warp_role_modules import any_stages, emit
from tilesmith.backends.triton.build import compile_artifact
from tilesmith.backends.triton.warp_roles.plan import Refusal, plan_roles
from tilesmith.backends.triton.warp_roles.rules import FORM
from tilesmith.numerics.compare import check_against

varlen_attention = tilesmith.kernel(varlen_port.varlen_attention.fn, static_shapes=True)
KERNELS = {
    "silu": (jagged_hstu_attn_2, hstu_reference),
    "softmax": (varlen_attention, varlen_port.reference),
}
LENGTHS = (1, 63, 0, 65, 130, 17)


def make_args(kind, lengths, *, d=16, window=1000, device="cpu") -> tuple[Any, ...]:
    torch.manual_seed(sum(lengths))
    offsets = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()])
    total = int(offsets[-1])
    q, k, v = (torch.randn(total, heads, d).bfloat16() for heads in (2, 2, 2))
    if kind == "silu":
        made = (q, k, v, offsets, max(lengths), d**-0.5)
    else:
        made = (q, k[:, :1].contiguous(), v[:, :1].contiguous())
        made += (torch.randn(2), offsets, max(lengths), window)
    return tuple(x.to(device) if isinstance(x, torch.Tensor) else x for x in made)


def config(groups, columns, pid, stages=2):
    blocks = [64 * groups, columns]
    return {"block_sizes": blocks, "num_warps": 4 * groups, "num_stages": stages, "pid_type": pid}


def spoiled(args, place) -> tuple[Any, ...]:
    """Keys and values of the last sequence are no numbers."""
    keys, values = args[1].clone(), args[2].clone()
    keys[place:], values[place:] = float("nan"), float("inf")
    return args[0], keys, values, *args[3:]


def check(kind, lengths, options, seed=0, **sizes):
    kernel, exact = KERNELS[kind]
    args = make_args(kind, lengths, **sizes)
    run = Simulation(emit(kernel, args, **options), seed=seed)[kernel.fn.__name__]
    wanted = exact(*args)
    checked: dict[str, Any] = {"reduction_length": max(lengths)}
    checked["intermediate"] = [torch.bfloat16] * 2
    check_against(run(*args), wanted, **checked)
    others = sum(lengths[:-1])
    check_against(run(*spoiled(args, others))[:others], wanted[:others], **checked)


@pytest.mark.parametrize(
    ("kind", "lengths", "window", "options"),
    [
        ("silu", LENGTHS, 0, config(1, 64, "flat")),
        ("silu", LENGTHS, 0, config(2, 32, "persistent_interleaved")),
        ("softmax", LENGTHS, 1000, config(1, 64, "flat", stages=1)),
        ("softmax", LENGTHS, 50, config(2, 64, "persistent_interleaved")),
        ("softmax", (70, 129, 3), 17, config(2, 32, "flat")),
    ],
)
def test_others_sequences_are_not_seen(kind, lengths, window, options):
    check(kind, lengths, options, window=window)


@pytest.mark.full
@pytest.mark.parametrize("pid", ["flat", "persistent_interleaved"])
@pytest.mark.parametrize(("groups", "columns", "stages"), [(1, 32, 1), (2, 64, 2), (3, 64, 3)])
@pytest.mark.parametrize("window", [1, 40, 1000])
@pytest.mark.parametrize("kind", KERNELS)
def test_more_lengths(kind, window, groups, columns, stages, pid):
    for lengths in (LENGTHS, (64, 127, 128, 129), (193, 0, 257, 5), (1, 1, 1)):
        check(kind, lengths, config(groups, columns, pid, stages), seed=window, window=window)


@tilesmith.kernel(static_shapes=True)
def stopped(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, stop: int) -> torch.Tensor:
    """Weights that are no softmax, over the first keys only; those past the end count as zeros."""
    out = torch.empty_like(q)
    for tile_b, tile_m in hl.tile([q.size(0), q.size(1)]):
        acc = hl.zeros([tile_b, tile_m, q.size(2)], dtype=torch.float32)
        for tile_n in hl.tile(min(stop, k.size(1))):
            keys = k[tile_b, tile_n, :].transpose(1, 2)
            weights = torch.exp2(torch.bmm(q[tile_b, tile_m, :], keys, torch.float32))
            acc = torch.baddbmm(acc, weights.to(v.dtype), v[tile_b, tile_n, :])
        out[tile_b, tile_m, :] = acc.to(out.dtype)
    return out


@pytest.mark.parametrize("stop", [0, 1, 64, 100, 128, 300])
def test_a_loop_that_ends_before_its_tensors(stop):
    torch.manual_seed(stop)
    q, k, v = (torch.randn(2, 128, 16).bfloat16() for _ in range(3))
    options = {"block_sizes": [1, 64, 32], "num_warps": 4}
    run = Simulation(emit(stopped, (q, k, v, stop), **options), seed=stop)["stopped"]
    weights = torch.exp2(q.double() @ k[:, :stop].double().mT)
    wanted = weights @ v[:, :stop].double()
    k[:, stop:], v[:, stop:] = float("nan"), float("inf")
    check_against(
        run(q, k, v, stop), wanted, reduction_length=128, intermediate=[torch.bfloat16] * 2
    )


def program_text(groups, stages, pid="persistent_interleaved"):
    # A kernel of its own: others must not find what was emitted under changed rules.
    kernel = tilesmith.kernel(jagged_hstu_attn_2.fn, static_shapes=True)
    args = make_args("silu", (64 * groups + 8, 0, 9))
    with any_stages():
        return emit(kernel, args, **config(groups, 16, pid, stages)), args


def explore(groups, stages, turns, change=lambda text: text):
    text, args = program_text(groups, stages)
    name = jagged_hstu_attn_2.fn.__name__
    return Explorer(record(change(text), name, args, turns)).explore()


@pytest.mark.parametrize(("groups", "stages"), [(1, 1), (1, 3), (2, 2)])
def test_every_order(groups, stages):
    # Both heads of two sequences have work: one in two tiles of rows, the other in one.
    for turns in [(0, 1, 1, 0, 2, 1), (1, 2, 1, 1, 0, 1)]:
        assert explore(groups, stages, turns) > sum(turns)


def cleared_early(text):
    """The last tile of values is cleared before it is waited for."""
    lines = text.splitlines()
    (wait,) = (i for i, line in enumerate(lines) if "_wait(late_full, step + turns - 1" in line)
    after = next(i for i in range(wait, len(lines)) if "acc_operand =" in lines[i])
    lines.insert(after - 1, lines.pop(wait))
    return "\n".join(lines)


def test_a_tile_is_cleared_after_it_has_arrived():
    with pytest.raises(ProtocolError, match="v_tiles"):
        explore(2, 2, (1, 1, 1, 1, 1, 1), cleared_early)


def test_lanes_that_are_not_cleared_are_noticed():
    args, others = make_args("silu", LENGTHS), sum(LENGTHS[:-1])
    text = emit(jagged_hstu_attn_2, args, **config(2, 64, "flat"))
    run = Simulation(text.replace("_clear_rest(", "_clear_none("))
    run.names["_clear_none"] = lambda *_: None
    found = run["jagged_hstu_attn_2"](*spoiled(args, others))
    assert found[:others].isnan().any()


def spec_of(kernel, args):
    return kernel.bind(kernel.normalize_args(*args), target="cuda:90").config_spec


def test_defaults_follow_the_mean_length():
    long, short = (make_args("softmax", (length,) * 4, d=128) for length in (1100, 900))
    chosen = spec_of(varlen_attention, long).default_config()
    assert chosen["structure"] == FORM
    assert chosen["block_sizes"] == [128, 64]
    assert "structure" not in spec_of(varlen_attention, short).default_config()
    assert spec_of(varlen_attention, short).default_config()["block_sizes"] == [64, 32]


def weigh(queries, k, v, acc):
    """Values with weights that are no softmax."""
    for tile_n in hl.tile(k.size(0)):
        weights = torch.exp2(hl.dot(queries, k[tile_n, :].T))
        acc = hl.dot(weights.to(v.dtype), v[tile_n, :], acc=acc)
    return acc


@tilesmith.kernel(static_shapes=True)
def unmasked_store(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, length: int) -> torch.Tensor:
    """Rows past the length are those of queries that are zero, and are stored."""
    out = torch.empty_like(q)
    head_dim = hl.specialize(q.size(1))
    for tile_m in hl.tile(q.size(0)):
        is_inside = (tile_m.index < length)[:, None]
        queries = hl.load(q, [tile_m.index, slice(None)], extra_mask=is_inside)
        acc = weigh(queries, k, v, hl.zeros([tile_m, head_dim], dtype=torch.float32))
        out[tile_m, :] = acc.to(out.dtype)
    return out


def test_rows_that_are_left_out_must_not_be_stored():
    args = (*(torch.empty(256, 64, dtype=torch.bfloat16) for _ in range(3)), 100)
    found = plan_roles(spec_of(unmasked_store, args).kernel.outline.function)
    assert isinstance(found, Refusal)


def test_rows_of_known_number_keep_their_tiles():
    q, cache = torch.empty(4, 8, 64).bfloat16(), torch.empty(64, 16, 2, 64).bfloat16()
    pages, lengths = torch.zeros(4, 16, dtype=torch.int64), torch.full((4,), 200)
    args = (q, cache, cache.clone(), pages, lengths)
    name, _ = spec_of(paged_decode, args).rules.seeds(spec_of(paged_decode, args).kernel)
    assert name == "attention"


@tilesmith.kernel(static_shapes=True)
def some_columns(x: torch.Tensor, y: torch.Tensor, columns: int) -> torch.Tensor:
    out = torch.zeros(x.size(0), y.size(1), dtype=x.dtype, device=x.device)
    for tile_m, tile_n in hl.tile([x.size(0), columns]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(x.size(1)):
            acc = hl.dot(x[tile_m, tile_k], y[tile_k, tile_n], acc=acc)
        out[tile_m, tile_n] = acc.to(out.dtype)
    return out


def test_columns_that_end_before_the_tensor_are_refused():
    args = (*(torch.empty(256, 256, dtype=torch.bfloat16) for _ in range(2)), 100)
    found = plan_roles(spec_of(some_columns, args).kernel.outline.function)
    assert isinstance(found, Refusal)
    assert "a tile of y may end before the tensor does" in found.reason


@tilesmith.kernel(static_shapes=True)
def early_queries(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, some: int) -> torch.Tensor:
    """Queries are loaded before it is known whether a tile has work."""
    out = torch.zeros_like(q)
    head_dim = hl.specialize(q.size(1))
    for tile_m in hl.tile(q.size(0)):
        queries = q[tile_m, :]
        if tile_m.begin < some:
            acc = weigh(queries, k, v, hl.zeros([tile_m, head_dim], dtype=torch.float32))
            out[tile_m, :] = acc.to(out.dtype)
    return out


def test_tiles_that_are_kept_may_be_loaded_before_the_branch():
    torch.manual_seed(0)
    q, k, v = (torch.randn(256, 16).bfloat16() for _ in range(3))
    options = {"block_sizes": [64, 32], "num_warps": 4, "pid_type": "persistent_interleaved"}
    text = emit(early_queries, (q, k, v, 100), **options)
    assert "gl.load" not in text
    wanted = torch.exp2(q.double() @ k.double().T) @ v.double()
    wanted[128:] = 0
    found = Simulation(text)["early_queries"](q, k, v, 100)
    check_against(found, wanted, reduction_length=256, intermediate=[torch.bfloat16] * 2)


@tilesmith.kernel(static_shapes=True)
def otherwise(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, some: int) -> torch.Tensor:
    out = torch.empty_like(q)
    head_dim = hl.specialize(q.size(1))
    for tile_m in hl.tile(q.size(0)):
        if tile_m.begin < some:  # refused
            acc = weigh(q[tile_m, :], k, v, hl.zeros([tile_m, head_dim], dtype=torch.float32))
            out[tile_m, :] = acc.to(out.dtype)
        else:
            out[tile_m, :] = q[tile_m, :]
    return out


def test_two_branches_are_refused():
    args = (*(torch.empty(256, 64, dtype=torch.bfloat16) for _ in range(3)), 100)
    found = plan_roles(spec_of(otherwise, args).kernel.outline.function)
    assert isinstance(found, Refusal)
    assert "not exactly one loop" in found.reason


@pytest.mark.full
@pytest.mark.parametrize("kind", KERNELS)
def test_the_default_compiles_without_a_stack(kind, tmp_path):
    from tests.backends.triton.warp_roles.test_warp_role_rules import stack_bytes

    kernel, _ = KERNELS[kind]
    bound = kernel.bind(make_args(kind, (1500, 1700), d=128), target="cuda:90")
    assert bound.config_spec.default_config()["structure"] == FORM
    built = compile_artifact(bound.to_artifact(bound.config_spec.default_config()))
    assert stack_bytes(built, tmp_path) == 0
