"""The one table from torch function names to rules, and the dispatch all proxies go through."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

import tilesmith.exc as errors
from tilesmith.frontend.advice.torch_names import fix_of
from tilesmith.frontend.functions.combine import RUNNING_LOGS, SCANS
from tilesmith.frontend.functions.combine_functions import COMBINERS
from tilesmith.frontend.functions.creation import CREATION, FACTORIES
from tilesmith.frontend.functions.elementwise import ELEMENTWISE, bitcast
from tilesmith.frontend.functions.moved_elements import MOVES, SUBSCRIPTS
from tilesmith.frontend.functions.norms import LOSSES, NORMS
from tilesmith.frontend.functions.pointwise import POINTWISE
from tilesmith.frontend.functions.random import RANDOM, RANDOM_FACTORIES
from tilesmith.frontend.functions.rearrangement import REARRANGEMENTS
from tilesmith.frontend.functions.reduction import REDUCTIONS
from tilesmith.frontend.functions.shape import SHAPES
from tilesmith.frontend.functions.sorting import LOOKUPS, SORTS
from tilesmith.frontend.functions.special_functions import SPECIAL_FUNCTIONS
from tilesmith.frontend.functions.torch_products import MATMULS, einsum
from tilesmith.frontend.language.memory import MEMORY
from tilesmith.frontend.refusals import unsupported_argument
from tilesmith.frontend.tracing.host_run import is_user_call
from tilesmith.frontend.tracing.merging import Unbound
from tilesmith.frontend.tracing.tensors import TensorRef, reference_of_unknown
from tilesmith.frontend.tracing.tile import Tile, no_arithmetic
from tilesmith.frontend.tracing.tracer import Tracer, current_tracer
from tilesmith.frontend.tracing.values import TileValue

_RULES: dict[str, Callable[..., Any]] = {
    **ELEMENTWISE, **POINTWISE, **SPECIAL_FUNCTIONS, **REDUCTIONS, **NORMS, **LOSSES, **SCANS,
    **RUNNING_LOGS, **SHAPES, **SUBSCRIPTS, **REARRANGEMENTS, **MOVES, **SORTS, **LOOKUPS,
    **MATMULS, "einsum": einsum, **CREATION, **RANDOM, **MEMORY,
}  # fmt: skip
ALIASES: dict[str, str] = {
    "arccos": "acos", "arccosh": "acosh", "arcsin": "asin", "arcsinh": "asinh", "arctan": "atan",
    "arctan2": "atan2", "arctanh": "atanh", "fix": "trunc",
    "greater": "gt", "greater_equal": "ge", "less": "lt", "less_equal": "le", "not_equal": "ne",
    "special_exp2": "exp2", "special_expm1": "expm1", "special_log1p": "log1p",
    "special_round": "round", "special_sinc": "sinc", "special_xlogy": "xlogy",
    "special_logsumexp": "logsumexp", "special_expit": "sigmoid", "special_psi": "digamma",
    "special_digamma": "digamma", "special_erf": "erf", "special_erfc": "erfc",
    "special_erfinv": "erfinv", "special_gammaln": "lgamma", "special_softmax": "softmax",
    "special_log_softmax": "log_softmax", "special_logit": "logit", "special_i0": "i0",
    "special_multigammaln": "mvlgamma",
}  # fmt: skip
"""Other names that torch has for a function, and the row that they share."""
TORCH_FUNCTIONS = {**_RULES, **{name: _RULES[row] for name, row in ALIASES.items()}}
METADATA = frozenset(
    {"size", "stride", "dim", "numel", "element_size", "is_floating_point", "__get__"}
)
"""Questions about the form of a tensor: nothing is computed, so host tensors answer them too."""
_ACCEPTS_HOST_TENSORS = frozenset(
    {*CREATION, *RANDOM_FACTORIES, *MEMORY, "rand_like", "randn_like"}
)
_DATA_DEPENDENT = frozenset({"nonzero", "masked_select", "unique", "argwhere"})
_RANDOM = frozenset({"randperm", "normal", "multinomial", "poisson"})
_REMAPPING = frozenset({"rot90"})


def dispatch(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Apply a torch function to device values."""
    rule = TORCH_FUNCTIONS.get(name)
    if rule is None and name.endswith("_") and not name.startswith("__"):
        # In-place spellings give a new value; the assignment rebinds.
        rule = TORCH_FUNCTIONS.get(name[:-1])
    if rule is None:
        raise unsupported(name)
    _reject_unbound((*args, *kwargs.values()))
    _reject_in_combination(name, args)
    if name not in _ACCEPTS_HOST_TENSORS:
        for arg in (*args, *kwargs.values()):
            _reject_host_value(arg, name)
    # Torch has two functions of that name: to another shape, and to another type.
    if name == "view" and isinstance((*args, *kwargs.values())[-1], torch.dtype):
        rule = bitcast
    if kwargs:
        kwargs = {_PARAMETER_ALIASES.get(key, key): value for key, value in kwargs.items()}
        if kwargs.pop("out", None) is not None:
            raise unsupported_argument(
                f"torch.{name}", "out=", "assign the result instead: out[tile] = ..."
            )
        for position, key in enumerate(_POSITIONAL):
            if len(args) == position and key in kwargs:
                args = (*args, kwargs.pop(key))
    return _call(rule, name, args, kwargs)


def _call(rule: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: Any) -> Any:
    try:
        return rule(*args, **kwargs)
    except TypeError as error:
        trace = error.__traceback__
        if trace is None or trace.tb_next is not None:
            raise
        # The rule was not entered: no such parameter, or one too few. Users know another name.
        complaint = str(error).partition("() ")[2] or str(error)
        raise unsupported_argument(f"torch.{name}", f"these arguments ({complaint})") from None


_PARAMETER_ALIASES = {"axis": "dim", "keepdims": "keepdim"}
_POSITIONAL = ("input", "other")
"""Operands by keyword; the rules know them by position."""


def _reject_unbound(args: tuple[Any, ...]) -> None:
    for arg in args:
        if isinstance(arg, Unbound):
            arg.fail()
        if isinstance(arg, tuple):
            _reject_unbound(arg)


def _reject_in_combination(name: str, args: tuple[Any, ...]) -> None:
    """Combine functions see single elements: what combines many has no meaning there."""
    regions = current_tracer(name).regions
    kind = regions[-1].kind if regions else ""
    is_pairwise = name in ("max", "min") and len(args) > 1 and isinstance(args[1], TileValue)
    if kind in COMBINERS and name in _NOT_POINTWISE and not is_pairwise:
        raise errors.NotAllowedInHelperFunction(operation=f"torch.{name}", function=kind)


_NOT_POINTWISE = frozenset(
    (*REDUCTIONS, *SCANS, *MATMULS, *REARRANGEMENTS, *MOVES, *SORTS, *LOOKUPS)
)


def _reject_host_value(arg: Any, name: str) -> None:
    if isinstance(arg, TensorRef):
        raise errors.HostTensorDirectUsage(name=arg.source)
    if isinstance(arg, torch.Tensor):
        raise errors.CapturedTensorUsage(operation=name)
    if isinstance(arg, Tile) and name not in _TAKES_SIZES:
        raise no_arithmetic(f"{name}(..., tile)")


_TAKES_SIZES = frozenset({"view", "reshape", "unflatten", "expand", "broadcast_to", "subscript"})


def unsupported(name: str) -> errors.BaseError:
    """The error for a torch function without a row."""
    if name in _DATA_DEPENDENT:
        return errors.DataDependentOutputShapeNotSupported(operation=f"torch.{name}")
    if name in _REMAPPING:
        return errors.UnsupportedIndexRemapping(function=f"torch.{name}")
    if name == "item":
        return errors.NotAllowedOnDevice(statement="`.item()`")
    # A function that torch has is no misspelling of another.
    is_known = hasattr(torch, name) or hasattr(torch.Tensor, name)
    near = [] if is_known else difflib.get_close_matches(name, TORCH_FUNCTIONS, n=3)
    if name in _RANDOM:
        return errors.UnsupportedTorchFunction(
            name=f"torch.{name}",
            fix="use hl.rand(shape, seed) or hl.randint(shape, low, high, seed)",
        )
    fix = f"did you mean {', '.join(f'torch.{other}' for other in near)}?" if near else fix_of(name)
    return errors.UnsupportedTorchFunction(name=f"torch.{name}", fix=fix)


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
        if self._tracer.is_eager or name in METADATA:
            result = func(*args, **kwargs)
            return result if self._tracer.is_eager else self._runtime_extents(name, args, result)
        is_factory = name in FACTORIES or name in RANDOM_FACTORIES
        if is_factory or _mentions_device_value((*args, *kwargs.values())):
            return dispatch(name, args, kwargs)
        tensor = next((arg for arg in args if isinstance(arg, torch.Tensor)), None)
        if tensor is None:
            result = func(*args, **kwargs)
            if isinstance(result, torch.Tensor):
                # Made now, at compile time, it would be the same in every call (torch.rand!).
                raise unsupported(name)
            return result
        known = self._tracer.tensor_refs.get(id(tensor))
        if name in _ACCEPTS_HOST_TENSORS:
            return dispatch(name, args, kwargs)
        if known is None:
            raise errors.CapturedTensorUsage(operation=name)
        raise errors.HostTensorDirectUsage(name=known.source)

    def _runtime_extents(self, name: str, args: tuple[Any, ...], result: Any) -> Any:
        """Sizes and strides of a tensor that a helper holds; under dynamic shapes they vary."""
        attribute = "size" if isinstance(result, torch.Size) else name
        is_answered = self._tracer.options.static_shapes or attribute not in _EXTENTS
        if is_answered or not isinstance(args[0], torch.Tensor) or not is_user_call(__name__):
            return result
        asked = () if name == "__get__" else args[1:]
        return getattr(reference_of_unknown(args[0]), attribute)(*asked)


_EXTENTS = frozenset({"size", "stride", "numel"})


def _mentions_device_value(args: tuple[Any, ...]) -> bool:
    for arg in args:
        if isinstance(arg, (TileValue, Tile, TensorRef)):
            return True
        if isinstance(arg, (tuple, list)) and _mentions_device_value(tuple(arg)):
            return True
    return False
