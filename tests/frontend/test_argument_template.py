"""Arguments kept for another trace: the same while they live, alike once they are gone."""

from __future__ import annotations

import dataclasses
import gc
import weakref
from collections.abc import Callable
from typing import Any

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.frontend.containers import ArgumentTemplate


@dataclasses.dataclass
class Parts:
    weight: torch.Tensor
    names: dict[str, torch.Tensor]


def layout(tensor: torch.Tensor) -> tuple[Any, ...]:
    return (tensor.dtype, tensor.shape, tensor.stride(), tensor.storage_offset())


def adding(bias: torch.Tensor) -> Callable[[Any], Any]:
    return lambda value: value + bias


def times(factor: torch.Tensor) -> Callable[[Any], Any]:
    return lambda value: value * factor[()]


def test_living_arguments_come_back_themselves() -> None:
    x, numbers = torch.randn(3, 4), [1, 2.5, "a", None]
    again = ArgumentTemplate((x, numbers, 7)).materialise()
    assert again[0] is x
    assert again[1:] == (numbers, 7)


def test_tensors_everywhere_may_go() -> None:
    bias = torch.randn(4)
    arguments = (
        torch.randn(3, 4).t(),
        [torch.randn(8)[2:6:2]],
        Parts(torch.randn(2), {"a": torch.randn(3).half()}),
        adding(bias),
    )
    tensors = [arguments[0], arguments[1][0], arguments[2].weight, arguments[2].names["a"], bias]
    layouts = [layout(tensor) for tensor in tensors]
    references = [weakref.ref(tensor) for tensor in tensors]
    template = ArgumentTemplate(arguments)
    del arguments, tensors, bias
    gc.collect()
    assert [reference() for reference in references] == [None] * 5
    x, (y,), parts, fn = template.materialise()
    found = [x, y, parts.weight, parts.names["a"], fn.__closure__[0].cell_contents]
    assert [layout(tensor) for tensor in found] == layouts
    assert isinstance(parts, Parts)


def test_memory_is_shared_as_before() -> None:
    x = torch.randn(12)
    template = ArgumentTemplate((x, x.view(3, 4), torch.randn(12)))
    first, view, other = template.materialise()
    assert first.untyped_storage().data_ptr() == view.untyped_storage().data_ptr()
    del x, first, view
    gc.collect()
    first, view, other = template.materialise()
    assert first.untyped_storage().data_ptr() == view.untyped_storage().data_ptr()
    assert first.untyped_storage().data_ptr() != other.untyped_storage().data_ptr()


def test_tensors_without_memory() -> None:
    template = ArgumentTemplate((torch.empty(0, 3), torch.empty(5, device="meta")))
    empty, meta = template.materialise()
    assert empty.shape == (0, 3)
    assert meta.device.type == "meta"


@helion.kernel
def scaled(parts, fn):
    block = hl.register_block_size(4, 32)
    x = parts["x"]
    out = torch.zeros([helion.cdiv(x.size(0), block)], device=x.device)
    for t in hl.tile(x.size(0), block_size=block):
        out[t.id] = fn(x[t]).sum(0)
    return out


def test_a_kernel_is_traced_again_when_its_first_arguments_are_gone() -> None:
    x, factor = torch.arange(13.0), torch.tensor(2.0)
    references = [weakref.ref(tensor) for tensor in (x, factor)]
    scaled({"x": x}, times(factor))
    del x, factor
    gc.collect()
    assert [reference() for reference in references] == [None, None]
    y, other = torch.arange(13.0) + 1, torch.tensor(3.0)
    arguments = ({"x": y}, times(other))
    bound = scaled.bind(arguments)
    result = bound.compile_config(helion.Config(block_sizes=[4]))(*arguments)
    assert torch.equal(result, torch.stack([part.sum() * 3 for part in y.split(4)]))
