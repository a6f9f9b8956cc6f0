"""Products whose tiles two programs share, run on the CPU as emitted, against fp64."""

from __future__ import annotations

import pytest
import torch

import tilesmith
from examples.matmul import bias_relu, matmul
from examples.matmul import reference as matmul_reference
from tests.backends.triton.cluster_model import ClusterExplorer, record_cluster
from tests.backends.triton.cluster_simulator import ClusterSimulation
from tests.backends.triton.gluon_memory import ProtocolError
from tests.backends.triton.warp_role_modules import any_stages, emit
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
