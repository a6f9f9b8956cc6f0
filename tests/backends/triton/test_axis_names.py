"""Index tiles and masks of axes: lines written at the head of a function clash with no loop."""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from examples import split_k_barrier
from tilesmith.backends.triton.build import compile_artifact
from tilesmith.backends.triton.emission.spelling import NamePool

TARGET = "cuda:90"


@helion.kernel(static_shapes=False)
def loop_then_slice(x: torch.Tensor) -> torch.Tensor:
    m, k = x.size()
    out = torch.empty([m], dtype=x.dtype, device=x.device)
    for tile_m in hl.tile(m):
        total = hl.zeros([tile_m], dtype=torch.float32)
        for tile_k in hl.tile(k):
            total = total + x[tile_m, tile_k].sum(1)
        out[tile_m] = total + x[tile_m, :].amax(1)
    return out


def test_a_slice_after_a_loop_over_its_size_has_names_of_its_own(run):
    """The loop has given its names back; the lines of the slice stand before it nevertheless."""
    x = torch.randn(5, 13)
    bound = loop_then_slice.bind((x,), target=TARGET)
    config = helion.Config(block_sizes=[4, 8], reduction_loops=[None])
    artifact = bound.to_artifact(config)
    given = {"x": x, "out": torch.zeros(5), "m": 5, "k": 13, "x_stride_0": 13}
    names = [parameter.name for parameter in artifact.parameters]
    results = dict(zip(names, run(artifact, *(given[name] for name in names))))
    torch.testing.assert_close(results["out"], x.sum(1) + x.amax(1))


def test_one_slice_of_the_contracted_axis_per_element_compiles() -> None:
    args = (torch.randn(37, 53), torch.randn(53, 21))
    kernel = helion.kernel(split_k_barrier.split_k_barrier.fn, static_shapes=False)
    sizes = [16, 16, 16, 64, 2]
    config = helion.Config(block_sizes=sizes, splits=64)  # pyright: ignore[reportCallIssue]
    artifact = kernel.bind(args, target=TARGET).to_artifact(config)
    compile_artifact(artifact, scalars={"m": 37, "n": 21, "k": 53})


def test_a_name_for_an_earlier_place_was_not_used_in_between() -> None:
    names = NamePool()
    names.release(names.fresh("before"))
    moment = names.moment
    names.release(names.fresh("offs_k"))
    assert names.fresh("offs_k", moment) == "offs_k_1"
    assert names.fresh("before", moment) == "before"
    assert names.fresh("offs_k") == "offs_k"
