"""Products with reduced rows on a GPU in every structure: right at odd sizes, twice the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.device.chip import DEVICE, HAS_CHIP, sized
from tests.passes.test_split_rows import FAMILY
from tilesmith.backends.triton.heuristics.row_launches import TWO_LAUNCHES
from tilesmith.backends.triton.heuristics.shared_rows import PRODUCT_FORMS
from tilesmith.numerics.compare import check_against

pytestmark = [
    pytest.mark.device,
    pytest.mark.skipif(not HAS_CHIP, reason="needs a GPU"),
]
SHAPES = [(1, 64, 2), (127, 129, 1000), *sized(((1024, 1024, 1024), (4096, 512, 4096)), ())]
NUM_CONFIGS = sized(4, 2)


def sums(name: str, found: torch.Tensor, exact: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Where results are powers of sums, the sums: a power's last bits are as many as they are."""
    if name != "softmax" or found.dtype != torch.float32:
        return found, exact
    return found.double().log().float(), exact.log()


def misaligned(x: Any) -> Any:
    """The same elements, one element from where tensors begin."""
    if not isinstance(x, torch.Tensor):
        return x
    memory = torch.empty(x.numel() + 1, dtype=x.dtype, device=x.device)
    return memory[1:].view_as(x).copy_(x)


@pytest.mark.parametrize("structure", [*PRODUCT_FORMS, TWO_LAUNCHES])
@pytest.mark.parametrize("name", FAMILY)
def test_misaligned_tensors(name, structure):
    """What the copy engine cannot bring; also where one launch hands a tensor to the next."""
    kernel, reference, make = FAMILY[name]
    named = {
        key: value.to(DEVICE, torch.bfloat16) if isinstance(value, torch.Tensor) else value
        for key, value in make(130, 72, 264).items()
    }
    args = kernel.normalize_args(*named.values())
    bound = kernel.bind(args)
    config = bound.config_spec.others[structure].default_config().updated(structure=structure)
    run, exact = bound.compile_config(config), reference(*named.values())
    for moved in ([misaligned(x) for x in args], args, [misaligned(args[0]), *args[1:]]):
        check_against(*sums(name, run(*moved), exact), reduction_length=72 * 4 + 264)


@pytest.mark.parametrize("structure", PRODUCT_FORMS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("name", FAMILY)
def test_structure_agrees_with_fp64(name, dtype, shape, structure):
    kernel, reference, make = FAMILY[name]
    named = {
        key: value.to(DEVICE, dtype) if isinstance(value, torch.Tensor) else value
        for key, value in make(*shape).items()
    }
    args = kernel.normalize_args(*named.values())
    bound = kernel.bind(args)
    exact = reference(*named.values())
    ranked = bound.config_spec.others[structure].ranked_configs(NUM_CONFIGS)
    assert ranked
    for config in [item.config.updated(structure=structure) for item in ranked]:
        run = bound.compile_config(config)
        found = [run(*args) for _ in range(sized(3, 2))]
        # Sums of k products in fp32, then a few sums of n of those.
        check_against(*sums(name, found[0], exact), reduction_length=shape[1] * 4 + shape[2])
        assert all(torch.equal(found[0], other) for other in found[1:])
