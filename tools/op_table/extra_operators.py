"""Functions of the table that torch's own descriptions leave out, with inputs for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional
from torch.testing import make_tensor

from tools.op_table.samples import Sample

_FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
_ALL = (*_FLOATS, torch.int32, torch.int64, torch.bool)


@dataclass(frozen=True)
class ExtraOperator:
    """A function and the shapes of its operands."""

    row: str
    fn: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...] = ((3, 5),)
    dtypes: tuple[torch.dtype, ...] = _ALL
    is_elementwise: bool = True

    def draw(self, dtype: torch.dtype) -> Iterable[Sample]:
        """One sample of these shapes."""
        torch.manual_seed(0)
        yield Sample(tuple(make_tensor(shape, dtype=dtype, device="cpu") for shape in self.shapes))


_PAIR = ((3, 5), (3, 5))
EXTRA_OPERATORS: list[ExtraOperator] = [
    ExtraOperator("type", lambda x: x.type(torch.float32)),
    ExtraOperator("type_as", lambda x, y: x.type_as(y.float()), _PAIR),
    ExtraOperator("detach", lambda x: x.detach()),
    ExtraOperator("copy", lambda x, y: x.clone().copy_(y), _PAIR),
    ExtraOperator("relu_", lambda x: torch.relu_(x.clone()), dtypes=_ALL[:-1]),
    ExtraOperator("threshold", lambda x: torch.threshold(x, 0.25, 2.0), dtypes=_FLOATS),
    ExtraOperator("logsigmoid", functional.logsigmoid, dtypes=_FLOATS),
    ExtraOperator("subscript", lambda x: x[:, None, :]),
    ExtraOperator("subscript", lambda x: x[..., None]),
    ExtraOperator("subscript", lambda x: x[None]),
    ExtraOperator("zeros", lambda x: x + torch.zeros([3, 5], dtype=x.dtype)),
    ExtraOperator("full", lambda x: torch.where(x > 0, x, torch.full([3, 5], 2, dtype=x.dtype))),
    ExtraOperator("arange", lambda x: x + torch.arange(5), dtypes=_FLOATS),
    ExtraOperator("tensor", lambda x: x + torch.tensor(2), dtypes=_FLOATS),
    ExtraOperator("ones", lambda x: x + torch.ones([3, 5], dtype=x.dtype)),
    ExtraOperator("empty", lambda x: torch.empty([3, 5], dtype=x.dtype)),
    ExtraOperator("rand", lambda x: torch.rand([3, 5], dtype=x.dtype), dtypes=_FLOATS),
    ExtraOperator("randn", lambda x: torch.randn([3, 5], dtype=x.dtype), dtypes=_FLOATS),
    ExtraOperator("randint", lambda x: torch.randint(0, 7, [3, 5]), dtypes=(torch.int64,)),
    ExtraOperator("eye", lambda x: x + torch.eye(5), ((5, 5),), dtypes=_FLOATS),
    ExtraOperator("vecdot", torch.linalg.vecdot, _PAIR, _ALL[:-1], False),
    ExtraOperator("zero", lambda x: torch.zero_(x.clone())),
    ExtraOperator("to", lambda x: x.to(torch.float16), dtypes=_FLOATS),
    ExtraOperator("to", lambda x, y: x.to(y), _PAIR),
    ExtraOperator("movedim", lambda x: torch.movedim(x, 0, 2), ((2, 3, 5),)),
    ExtraOperator("moveaxis", lambda x: torch.moveaxis(x, 2, 0), ((2, 3, 5),)),
]
