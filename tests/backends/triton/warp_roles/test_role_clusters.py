"""Products whose tiles two programs share, run on the CPU as emitted, against fp64."""

from __future__ import annotations

import re
from unittest import mock

import pytest
import torch

import tilesmith
import tilesmith.language as hl
from examples.matmul import bias_relu, matmul
from examples.matmul import reference as matmul_reference
from tests.backends.triton.warp_roles.cluster_model import ClusterExplorer, record_cluster
from tests.backends.triton.warp_roles.cluster_simulator import ClusterSimulation
from tests.backends.triton.warp_roles.gluon_memory import ProtocolError
from tests.backends.triton.warp_roles.warp_role_modules import any_stages, emit
from tilesmith.backends.triton.build import compile_artifact
from tilesmith.backends.triton.role_clusters import offer
from tilesmith.numerics.compare import check_against

FORM = "clustered_roles"
static_matmul = tilesmith.kernel(matmul.fn, static_shapes=True)


@pytest.mark.parametrize("pid", ["flat", "persistent_interleaved"])
@pytest.mark.parametrize(
    ("size", "blocks", "groups", "stages"),
    [
        ((128, 32, 64), [128, 64, 32], 1, 2),
        # The second program has no rows, then some.
        ((64, 40, 72), [128, 64, 16], 1, 1),
        ((72, 40, 72), [128, 64, 16], 1, 3),
        ((300, 72, 136), [256, 64, 32], 2, 2),
        ((260, 40, 328), [256, 320, 16], 2, 4),
        ((400, 40, 136), [384, 128, 16], 3, 3),
    ],
)
def test_products(size, blocks, groups, stages, pid):
    m, k, n = size
    torch.manual_seed(0)
    x, y, bias = (torch.randn(shape).bfloat16() for shape in ((m, k), (k, n), (n,)))
    finish = bias_relu(bias)
    options = {"num_warps": 4 * groups, "num_stages": stages, "pid_type": pid, "structure": FORM}
    text = emit(matmul, (x, y, finish), block_sizes=blocks, **options)
    found = ClusterSimulation(text)["matmul"](x, y, finish)
    check_against(found, matmul_reference(x, y, finish), reduction_length=k)


@pytest.mark.parametrize("turned", ["x", "y", "xy"])
def test_transposed_operands(turned):
    torch.manual_seed(0)
    x, y = torch.randn(264, 48).bfloat16(), torch.randn(48, 136).bfloat16()
    x = x.T.contiguous().T if "x" in turned else x
    y = y.T.contiguous().T if "y" in turned else y
    options = {"num_warps": 8, "num_stages": 2, "structure": FORM}
    text = emit(static_matmul, (x, y), block_sizes=[256, 64, 16], **options)
    check_against(
        ClusterSimulation(text)["matmul"](x, y), x.double() @ y.double(), reduction_length=48
    )


def explore(groups, stages, turns, change=lambda text: text):
    """The roles of both programs of a cluster in every order."""
    args = torch.zeros(128 * groups, 32).bfloat16(), torch.zeros(32, 128).bfloat16()
    pid = "persistent_interleaved" if len(turns) > 1 else "flat"
    options = {"num_warps": 4 * groups, "num_stages": stages, "pid_type": pid, "structure": FORM}
    with any_stages():
        text = emit(static_matmul, args, block_sizes=[128 * groups, 64, 16], **options)
    return ClusterExplorer(record_cluster(change(text), "matmul", args, turns)).explore()


@pytest.mark.parametrize(("groups", "stages"), [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2)])
def test_both_programs_in_every_order(groups, stages):
    for turns in ((1,), (3,), (2, 1)):
        assert explore(groups, stages, turns) > 2 * sum(turns) * groups


@pytest.mark.parametrize(
    ("part", "instead"),
    [
        # The first program fills slots that the second still reads.
        ("_listen(released, event, LENGTH)", "pass"),
        ("_listen(released, event, LENGTH)", "_listen(released, event - 1, LENGTH)"),
        # The second never says that it is done, or says it twice.
        ("    _tell(released, slot)", "    pass"),
        ("    _tell(released, slot)", "    _tell(released, slot)\n    _tell(released, slot)"),
        # Each program fills its own slots while its own groups read them.
        ("_wait(empty, event, LENGTH)", "pass"),
        ("warpgroup_mma_wait(1,", "warpgroup_mma_wait(2,"),
    ],
)
def test_what_breaks_the_protocol_is_noticed(part, instead):
    def change(text):
        assert part in text
        return text.replace(part, instead)

    with pytest.raises(ProtocolError):
        explore(1, 2, (4,), change)


def test_nobody_leaves_while_the_other_reaches_for_its_memory():
    x, y = torch.ones(128, 160).bfloat16(), torch.ones(160, 64).bfloat16()
    options = {"num_warps": 4, "num_stages": 2, "structure": FORM}
    text = emit(static_matmul, (x, y), block_sizes=[128, 64, 16], **options)
    # Both roles meet the other program's at their start and at their end.
    before, loads, between, computes, after = text.split("    _meet()\n")
    hasty = f"{before}    _meet()\n{loads}{between}    _meet()\n{computes}{after}"
    run = ClusterSimulation(hasty)["matmul"]
    with pytest.raises(ProtocolError, match="has left already"):
        [run(x, y) for _ in range(40)]


def bound(m, k, n, kernel=static_matmul):
    args = [torch.empty(s, dtype=torch.bfloat16, device="meta") for s in ((m, k), (k, n))]
    return kernel.bind(kernel.normalize_args(*args), target="cuda:90")


def test_one_copy_goes_to_both_programs():
    found = bound(4000, 3000, 5000)
    made = found.to_artifact(found.default_config())
    assert made.options["num_ctas"] == 2
    ptx = compile_artifact(made, scalars={"num_sms": 132}).assembly["ptx"]
    assert ".reqnctapercluster 2" in ptx
    # Tiles behind barriers of our own begin where the copy engine wants them.
    assert ".shared .align 1024 .b64 peer_released[128];" in ptx
    (copies,) = re.findall(r"cp\.async\.bulk.*multicast::cluster \[.*?\]", ptx)
    assert "shared::cluster.global" in copies
    assert ptx.count("barrier.cluster.wait") == 2 * 3
    assert ptx.count("mapa.shared::cluster") == 2 * 2


@pytest.mark.parametrize(
    ("shape", "structure"),
    [
        # Rows begin between sectors, and pairs fill waves as well as others do.
        ((4000, 3000, 5000), FORM),
        # One program has narrower tiles, which fill one wave.
        ((1536, 1536, 1536), "warp_roles"),
        # Operands are shared in time by the cache, where rows begin with a line of it.
        ((4096, 4096, 4096), None),
        # 660 tiles fill five waves of 132 programs; of 336, six are left after five of 66 pairs.
        ((7000, 2000, 3000), None),
    ],
)
def test_products_that_clusters_are_the_default_for(shape, structure):
    assert bound(*shape).config_spec.default_config().get("structure") == structure


def test_an_older_triton_has_no_clusters():
    with mock.patch.object(offer, "installed_version", return_value=(3, 6)):
        fresh = tilesmith.kernel(matmul.fn, static_shapes=True)
        spec = bound(4000, 3000, 5000, fresh).config_spec
        reasons = spec.rules.missing_ways(spec.kernel)
        assert "need Triton 3.7, not 3.6" in reasons[FORM]
        default = spec.default_config()
        assert (default["structure"], default["pid_type"]) == ("warp_roles", "flat")
        assert default["block_sizes"] == [128, 320, 64]
        with pytest.raises(tilesmith.exc.InvalidConfigValue, match="structure"):
            spec.normalize(tilesmith.Config(block_sizes=[256, 256, 64], structure=FORM))


def test_clusters_are_the_default_of_what_ran_on_a_device():
    args = [
        torch.empty(s, dtype=torch.bfloat16, device="meta") for s in ((4000, 3000), (5000, 3000))
    ]
    x, y = args[0], args[1].T
    found = static_matmul.bind(static_matmul.normalize_args(x, y), target="cuda:90")
    spec = found.config_spec
    assert FORM in spec.rules.other_ways(spec.kernel)
    assert found.config_spec.default_config()["structure"] == "warp_roles"


@tilesmith.kernel(static_shapes=True)
def a_part_of_the_sum(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0), y.size(1)], dtype=x.dtype, device=x.device)
    for tile_m, tile_n in hl.tile([x.size(0), y.size(1)]):
        acc = hl.zeros([tile_m, tile_n])
        for tile_k in hl.tile(1000):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, tile_n])
        out[tile_m, tile_n] = acc.to(out.dtype)
    return out


def test_tiles_that_threads_change_are_not_shared():
    spec = bound(4000, 3000, 5000, a_part_of_the_sum).config_spec
    assert "whole tiles" in spec.rules.missing_ways(spec.kernel)[FORM]
    assert FORM not in spec.rules.other_ways(spec.kernel)


def test_rows_are_those_of_both_programs():
    spec = bound(4000, 3000, 5000).config_spec
    config = tilesmith.Config(block_sizes=[128, 256, 64], num_warps=8, structure=FORM)
    with pytest.raises(tilesmith.exc.InvalidConfig, match="2 groups of warps with 64 rows"):
        spec.normalize(config)
