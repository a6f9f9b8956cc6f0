"""The one table from torch function names to rules.

And the dispatch that every proxy goes through.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from tilesmith.diagnostics import errors
from tilesmith.frontend.activations import ACTIVATIONS
from tilesmith.frontend.creation import CREATION, FACTORIES
from tilesmith.frontend.elementwise import ELEMENTWISE, bitcast
from tilesmith.frontend.matmul import MATMULS
from tilesmith.frontend.memory import MEMORY
from tilesmith.frontend.merging import Unbound
from tilesmith.frontend.reduction import REDUCTIONS
from tilesmith.frontend.scan import SCANS
from tilesmith.frontend.shape import SHAPES
from tilesmith.frontend.tensors import TensorRef
from tilesmith.frontend.tile import Tile
from tilesmith.frontend.tracer import Tracer, locate
from tilesmith.frontend.values import TileValue

TORCH_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **ELEMENTWISE,
    **ACTIVATIONS,
    **REDUCTIONS,
    **SCANS,
    **SHAPES,
    **MATMULS,
    **CREATION,
    **MEMORY,
}
_METADATA = frozenset(
    {"size", "stride", "dim", "numel", "element_size", "is_floating_point", "__get__"}
)
_ACCEPTS_HOST_TENSORS = frozenset(name for name in (*CREATION, *MEMORY))
_DATA_DEPENDENT = frozenset({"nonzero", "masked_select", "unique", "argwhere"})
_RANDOM = frozenset({"rand", "randn", "randint", "rand_like", "randn_like", "dropout"})
_REMAPPING = frozenset({"flip", "roll", "rot90", "fliplr", "flipud"})


def dispatch(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Apply a torch function to device values."""
    rule = TORCH_FUNCTIONS.get(name)
    if rule is None and name.endswith("_") and not name.startswith("__"):
        # In-place spellings give a new value; the assignment rebinds.
        rule = TORCH_FUNCTIONS.get(name[:-1])
    if rule is None:
        raise _unsupported(name)
    _reject_unbound((*args, *kwargs.values()))
    if name not in _ACCEPTS_HOST_TENSORS:
        for arg in (*args, *kwargs.values()):
            _reject_host_value(arg, name)
    if name in ("view",) and len(args) == 2 and isinstance(args[1], torch.dtype):
        rule = bitcast
    if kwargs:
        kwargs = {_PARAMETER_ALIASES.get(key, key): value for key, value in kwargs.items()}
        if kwargs.pop("out", None) is not None:
            raise errors.UnsupportedTorchArgument(
                name=f"torch.{name}", argument="out=", loc=locate()
            )
    return rule(*args, **kwargs)


_PARAMETER_ALIASES = {"axis": "dim", "keepdims": "keepdim"}


def _reject_unbound(args: tuple[Any, ...]) -> None:
    for arg in args:
        if isinstance(arg, Unbound):
            arg.fail()
        if isinstance(arg, tuple):
            _reject_unbound(arg)


def _reject_host_value(arg: Any, name: str) -> None:
    if isinstance(arg, TensorRef):
        raise errors.HostTensorDirectUsage(name=arg.source, loc=locate())
    if isinstance(arg, torch.Tensor):
        raise errors.HostTensorDirectUsage(name="a captured tensor", loc=locate())
    if isinstance(arg, Tile) and name not in _TAKES_SIZES:
        raise errors.IncorrectTileUsage(
            problem=f"a tile is an index or a size, not an operand of {name}", loc=locate()
        )


_TAKES_SIZES = frozenset({"view", "reshape", "expand", "broadcast_to", "subscript"})


def _unsupported(name: str) -> errors.BaseError:
    if name in _DATA_DEPENDENT:
        return errors.DataDependentOutputShapeNotSupported(operation=f"torch.{name}", loc=locate())
    if name in _REMAPPING:
        return errors.UnsupportedIndexRemapping(function=f"torch.{name}", loc=locate())
    if name == "item":
        return errors.NotAllowedOnDevice(statement="`.item()`", loc=locate())
    # A function that torch has is no misspelling of another.
    is_known = hasattr(torch, name) or hasattr(torch.Tensor, name)
    near = [] if is_known else difflib.get_close_matches(name, TORCH_FUNCTIONS, n=3)
    if name in _RANDOM:
        return errors.UnsupportedTorchFunction(
            name=f"torch.{name}",
            fix="use hl.rand(shape, seed) or hl.randint(shape, low, high, seed)",
            loc=locate(),
        )
    fix = f"did you mean {', '.join(f'torch.{other}' for other in near)}?" if near else ""
    return errors.UnsupportedTorchFunction(name=f"torch.{name}", fix=fix, loc=locate())


class DeviceMode(TorchFunctionMode):
    """Active while device code is traced.

    Factory calls make device values, host tensors stay behind subscripts.
    """

    def __init__(self, tracer: Tracer) -> None:
        super().__init__()
        self._tracer = tracer

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Decide for each torch call in device code where it goes."""
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if self._tracer.is_eager or name in _METADATA:
            return func(*args, **kwargs)
        if name in FACTORIES or _mentions_device_value((*args, *kwargs.values())):
            return dispatch(name, args, kwargs)
        tensor = next((arg for arg in args if isinstance(arg, torch.Tensor)), None)
        if tensor is None:
            result = func(*args, **kwargs)
            if isinstance(result, torch.Tensor):
                # Made now, at compile time, it would be the same in every call (torch.rand!).
                raise _unsupported(name)
            return result
        known = self._tracer.tensor_refs.get(id(tensor))
        if name in _ACCEPTS_HOST_TENSORS:
            return dispatch(name, args, kwargs)
        raise errors.HostTensorDirectUsage(
            name=known.source if known else "a captured tensor", loc=locate()
        )


def _mentions_device_value(args: tuple[Any, ...]) -> bool:
    for arg in args:
        if isinstance(arg, (TileValue, Tile, TensorRef)):
            return True
        if isinstance(arg, (tuple, list)) and _mentions_device_value(tuple(arg)):
            return True
    return False
