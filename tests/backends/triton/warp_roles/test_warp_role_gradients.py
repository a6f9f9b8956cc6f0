"""Gradients of attention with warp roles: turns of two parts, in every order and against fp64."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
import torch
from triton.backends.nvidia.compiler import get_ptxas

import tilesmith
import tilesmith.language as hl
from examples import attention, causal_attention
from examples.attention_backward import (
    key_gradients,
    key_value_gradients,
    query_gradients,
    value_gradients,
)
from tests.backends.triton.warp_roles.gluon_memory import ProtocolError
from tests.backends.triton.warp_roles.gluon_simulator import Simulation
from tests.backends.triton.warp_roles.test_warp_role_protocol import WAIT, earlier, instead, without
from tests.backends.triton.warp_roles.warp_role_model import Explorer, record
from tests.backends.triton.warp_roles.warp_role_modules import emit, model_args, model_text
from tests.examples.ports.test_ports_on_hopper import stand_in
from tilesmith.backends.triton.build import build_kernel
from tilesmith.backends.triton.warp_roles.order import find_order, find_vectors
from tilesmith.backends.triton.warp_roles.plan import RolePlan, plan_roles

KV = "key_value_gradients"
FEW_TURNS = [(0,), (1,), (3,)]
ONE_PIECE = [(turns,) for turns in range(6)]
TWO_PIECES = [(0, 2), (2, 0), (1, 1), (2, 3), (3, 2)]


def kept_reads(turns, extra, is_held):
    """A kept tile is read once a turn, and once more by the product before the first turn.

    Where it is held in registers, threads read it once for all turns.
    """
    if is_held:
        return list(range(len(turns)))
    return [piece for piece, t in enumerate(turns) for _ in range(t + extra if t else 0)]


def ring_reads(turns, *offsets, first=()):
    """Tiles that a turn reads, as steps from its own; the turn after the last one is the last."""
    found, begin = [], 0
    for count in turns:
        found += [begin + step for step in first if count]
        for turn in range(count):
            found += [begin + min(turn + step, count - 1) for step in offsets]
        begin += count
    return found


def expected_reads(name, turns):
    # See model_text: one kernel reads kept tiles in every turn.
    is_held = not name.startswith("causal")
    if name == "query_gradients":
        return {
            "q_tiles": kept_reads(turns, 1, is_held),
            "grad_out_tiles": kept_reads(turns, 0, is_held),
            "k_tiles": ring_reads(turns, 0, 1, first=[0]),
            "v_tiles": ring_reads(turns, 0),
        }
    return {
        "k_tiles": kept_reads(turns, 1, is_held),
        "v_tiles": kept_reads(turns, 0, is_held),
        "q_tiles": ring_reads(turns, 0, 1, first=[0]),
        "grad_out_tiles": ring_reads(turns, 0, 0),
        "lse_tiles": ring_reads(turns, 0),
        "inner_tiles": ring_reads(turns, 0),
    }


def explore(name, groups, stages, kept, turns, text=None):
    text = model_text(name, groups, stages, kept) if text is None else text
    entry = name.removeprefix("causal_")
    reads = expected_reads(name, turns)
    recorded = record(text, entry, model_args(name, groups), turns, reads)
    return Explorer(recorded).explore()


@pytest.mark.parametrize(("name", "stages"), [("query_gradients", 2), (KV, 3)])
def test_one_piece_in_every_order(name, stages):
    for turns in FEW_TURNS:
        assert explore(name, 2, stages, 0, turns) > sum(turns)


@pytest.mark.parametrize(
    ("name", "kept"), [("query_gradients", 1), (KV, 2), ("causal_key_value_gradients", 1)]
)
def test_two_pieces_in_every_order(name, kept):
    explore(name, 2, 2, kept, (2, 1))


@pytest.mark.full
@pytest.mark.parametrize("kept", [0, 1, 2])
@pytest.mark.parametrize("stages", [2, 3])
@pytest.mark.parametrize("groups", [1, 2, 3])
@pytest.mark.parametrize(
    "name", ["query_gradients", "key_value_gradients", "causal_key_value_gradients"]
)
def test_more_sizes_in_every_order(name, groups, stages, kept):
    for turns in TWO_PIECES if kept else ONE_PIECE:
        explore(name, groups, stages, kept, turns)


def test_a_ring_without_room_is_shorter():
    assert "late_full = _barriers(1, 1)" in model_text("query_gradients", 2, 2, 1)
    assert "late_full = _barriers(STAGES, 1)" in model_text("query_gradients", 2, 2, 2)
    assert "late_full = _barriers(STAGES, 1)" in model_text("key_value_gradients", 2, 2, 1)


MISTAKES = {
    "an early release is missing": (KV, without(r"mbarrier\.arrive\(early_empty")),
    "a late release is missing": (KV, without(r"mbarrier\.arrive\(late_empty")),
    "an early release before its sum is done": (
        KV,
        earlier(r"mbarrier\.arrive\(early_empty", than=WAIT),
    ),
    "a late release before its product is done": (
        "query_gradients",
        earlier(r"mbarrier\.arrive\(late_empty", than=WAIT),
    ),
    "the next turn's tile is not waited for": (KV, without(r"_wait\(early_full, following")),
    "this turn's tiles are not waited for": (KV, without(r"_wait\(late_full, step \+ turn,")),
    "the last turn waits for one more": (
        KV,
        instead("gl.minimum(turn + 1, turns - 1)", "(turn + 1)"),
    ),
    "a sum reads the next turn's tile": (
        KV,
        instead("q_tiles.index((step + turn)", "q_tiles.index((step + turn + 1)"),
    ),
    "a vector is read from the next slot": (
        KV,
        instead("lse_tiles.index((step + turn)", "lse_tiles.index((step + turn + 1)"),
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_noticed(mistake):
    name, change = MISTAKES[mistake]
    # A ring that is shorter than the other one does not hide behind it.
    kept = 1 if name == "query_gradients" else 2
    text = model_text(name, 2, 2, kept)
    begin, end = text.index(f"def _{name}_compute("), text.index(f"def _{name}(")
    wrong = text[:begin] + change(text[begin:end]) + text[end:]
    assert wrong != text
    with pytest.raises(ProtocolError):
        explore(name, 2, 2, kept, (2, 2), wrong)


KERNELS = {
    "q": (query_gradients, slice(0, 1)),
    "kv": (key_value_gradients, slice(1, 3)),
    "k": (key_gradients, slice(1, 2)),
    "v": (value_gradients, slice(2, 3)),
}


def make_args(kind, sizes, is_causal):
    (m, n), d = sizes, 16
    torch.manual_seed(m)
    grads, q = (torch.randn(2, m, d).bfloat16() for _ in range(2))
    k, v = (torch.randn(2, n, d).bfloat16() for _ in range(2))
    source = causal_attention if is_causal else attention
    exact, lse = source.reference_fwd(q, k, v)
    out, lse = exact.bfloat16(), lse.float()
    wanted = source.reference_bwd(grads, q, k, v, out, lse)
    inner = (grads.double() * out.double()).sum(-1).float()
    args = (grads, q, k, lse) if kind == "v" else (grads, q, k, v, lse, inner)
    return (*args, is_causal), wanted


def simulate(kind, sizes, is_causal, seed=0, text=None, **options):
    kernel, part = KERNELS[kind]
    args, wanted = make_args(kind, sizes, is_causal)
    text = emit(kernel, args, num_warps=8, **options) if text is None else text
    found = Simulation(text, seed=seed)[kernel.fn.__name__](*args)
    for result, exact in zip(found if isinstance(found, tuple) else (found,), wanted[part]):
        # Causal rows differ in scale, so the largest error is measured by the largest value.
        error = (result.double() - exact).abs()
        assert result.dtype == torch.bfloat16
        assert error.norm() <= 4e-3 * exact.norm()
        assert error.max() <= 1e-2 * exact.abs().max()
    return text


FEW = [
    ("q", (129, 129), True, "flat"),
    ("q", (64, 65), False, "persistent_interleaved"),
    ("q", (129, 128), False, "persistent_interleaved"),
    ("kv", (136, 136), True, "persistent_interleaved"),
    ("kv", (64, 129), False, "flat"),
    ("kv", (65, 65), True, "flat"),
    ("kv", (100, 72), False, "flat"),
    ("k", (72, 72), True, "flat"),
    ("v", (72, 72), True, "flat"),
]


@pytest.mark.parametrize(("kind", "sizes", "is_causal", "pid"), FEW)
def test_gradients(kind, sizes, is_causal, pid):
    simulate(kind, sizes, is_causal, block_sizes=[1, 128, 64], pid_type=pid)


@pytest.mark.full
@pytest.mark.parametrize("n", [63, 64, 65, 127, 129, 257, 260])
@pytest.mark.parametrize("columns", [16, 32, 64])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("kind", KERNELS)
def test_more_gradients(kind, is_causal, columns, n):
    for seed, pid in enumerate(("flat", "persistent_interleaved")):
        blocks = [1, 128, columns]
        options = {"block_sizes": blocks, "pid_type": pid, "num_stages": 2 + seed}
        simulate(kind, (n, n), is_causal, seed, **options)


def test_kept_operands_are_read_once_where_registers_and_turns_allow():
    def is_held(head_dim, n, is_causal, kernel: Any = query_gradients, columns=64):
        tile = torch.empty(2, n, head_dim, dtype=torch.bfloat16, device="meta")
        row = torch.empty(2, n, device="meta")
        args = (tile, tile, tile, tile, row, row, is_causal)
        text = emit(kernel, args, block_sizes=[1, 128, columns], num_warps=8)
        return [f"{name}_operand = {name}_tiles" in text for name in ("q", "grad_out", "k", "v")]

    both = [True, True, False, False]
    assert is_held(64, 256, False, columns=128) == both
    assert is_held(64, 255, True, columns=128) == both
    assert is_held(32, 256, False, key_value_gradients) == [False, False, True, True]
    # Wide sums: the operand of the deferred product alone, without masks.
    assert is_held(128, 256, False) == [False, True, False, False]
    assert is_held(128, 256, True) == is_held(128, 255, False) == [False] * 4
    # Two sums and wide steps leave no registers.
    assert is_held(64, 256, False, key_value_gradients, 128) == [False] * 4
    assert is_held(128, 256, False, key_value_gradients) == [False] * 4


def test_vectors_are_copied_where_their_rows_are_aligned():
    options: dict[str, Any] = {"block_sizes": [1, 128, 64], "pid_type": "flat"}
    assert "lse_tiles" in simulate("kv", (72, 72), False, **options)
    assert "lse_tiles" not in simulate("kv", (71, 71), False, **options)


@tilesmith.kernel(static_shapes=True)
def one_tensor(q: torch.Tensor, k: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Keys are the values too: the ring that early products read has vectors alone."""
    m, n, head_dim = q.size(1), k.size(1), hl.specialize(q.size(2))
    out = torch.empty_like(q)
    for tile_b, tile_m in hl.tile([q.size(0), m]):
        acc = hl.zeros([tile_b, tile_m, head_dim], dtype=torch.float32)
        queries = q[tile_b, tile_m, :]
        for tile_n in hl.tile(n):
            keys = k[tile_b, tile_n, :]
            scores = torch.bmm(queries, keys.transpose(1, 2), torch.float32)
            weights = scores * bias[tile_b, tile_n][:, None, :]
            acc = torch.baddbmm(acc, weights.to(k.dtype), keys)
        out[tile_b, tile_m, :] = acc.to(out.dtype)
    return out


def test_vectors_have_a_ring_where_no_tile_has():
    torch.manual_seed(0)
    q, k = (torch.randn(2, 136, 16).bfloat16() for _ in range(2))
    bias = torch.rand(2, 136)
    text = emit(one_tensor, (q, k, bias), block_sizes=[1, 128, 64], num_warps=8)
    assert "early_full = _barriers" in text
    exact = (q.double() @ k.double().mT * bias.double()[:, None, :]) @ k.double()
    for seed in range(3):
        found = Simulation(text, seed=seed)["one_tensor"](q, k, bias)
        assert (found.double() - exact).norm() <= 4e-3 * exact.norm()


def plan_of(kernel, args) -> RolePlan:
    spec = kernel.bind(kernel.normalize_args(*args), target="cuda:90").config_spec
    plan = plan_roles(spec.kernel.outline.function)
    assert isinstance(plan, RolePlan)
    return plan


def test_the_product_with_most_to_do_after_it_goes_ahead():
    tile = torch.empty(2, 256, 64, dtype=torch.bfloat16, device="meta")
    row = torch.empty(2, 256, device="meta")
    plan = plan_of(key_value_gradients, (tile, tile, tile, tile, row, row, True))
    order = find_order(plan)
    assert order is not None
    assert order.ahead.dot.result.name == "scores"
    assert [product.dot.result.name for product in order.deferred] == ["along"]
    assert [product.dot.result.name for product in order.first_sums] == ["for_values"]
    assert [product.dot.result.name for product in order.second_sums] == ["for_keys"]
    assert [load.tensor.name for load in find_vectors(plan)] == ["lse", "inner"]
    assert order.last_readers == order.first_sums


def test_one_early_product_needs_no_order():
    tile = torch.empty(2, 256, 64, dtype=torch.bfloat16, device="meta")
    row = torch.empty(2, 256, device="meta")
    assert find_order(plan_of(value_gradients, (tile, tile, tile, row, True))) is None


@pytest.mark.full
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(
    ("kernel", "head_dim"),
    [
        *((query_gradients, d) for d in (64, 128, 256)),
        *((key_value_gradients, d) for d in (64, 128)),
        (key_gradients, 256),
    ],
)
def test_products_are_not_taken_one_by_one(kernel, head_dim, is_causal, tmp_path):
    """The assembler says so where it has too few registers for products in flight."""
    tile = torch.empty(64, 4096, head_dim, dtype=torch.bfloat16, device="meta")
    row = torch.empty(64, 4096, device="meta")
    args = kernel.normalize_args(tile, tile, tile, tile, row, row, is_causal)
    bound = kernel.bind(args, target="cuda:90")
    artifact = bound.to_artifact(bound.config_spec.default_config())
    given = {item.name: stand_in(item, {}) for item in artifact.parameters}
    source = tmp_path / "kernel.ptx"
    source.write_text(build_kernel(artifact, given).asm["ptx"])
    command = [get_ptxas(90).path, "-v", "--gpu-name=sm_90a", str(source)]
    command += ["-o", str(tmp_path / "kernel.cubin")]
    report = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert "spill stores" in report
    assert "serialized" not in report


@pytest.mark.parametrize(
    ("kernel", "head_dim", "is_causal", "columns", "pid"),
    [
        (query_gradients, 128, False, 64, "persistent_interleaved"),
        (query_gradients, 128, True, 128, "flat"),
        (key_value_gradients, 128, False, 64, "persistent_interleaved"),
        (key_value_gradients, 128, True, 64, "persistent_interleaved"),
        (key_value_gradients, 64, True, 128, "flat"),
        (key_gradients, 256, False, 64, "flat"),
    ],
)
def test_defaults_are_those_that_were_fastest(kernel, head_dim, is_causal, columns, pid):
    tile = torch.empty(64, 4096, head_dim, dtype=torch.bfloat16, device="meta")
    row = torch.empty(64, 4096, device="meta")
    args = kernel.normalize_args(tile, tile, tile, tile, row, row, is_causal)
    config = kernel.bind(args, target="cuda:90").config_spec.default_config()
    assert config["structure"] == "warp_roles"
    assert config["block_sizes"] == [1, 128, columns]
    assert (config["pid_type"], config["num_stages"]) == (pid, 2)
    # Walking programs take the rows of a head in turn; others begin with the longest of several.
    is_flat = is_causal and pid == "flat"
    assert config["loop_orders"] == [[0, 1] if is_flat else [1, 0]]
