"""The store's key of a bound kernel: all that may change the time of a call."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from copy import copy
from typing import Any, cast

from tilesmith.ir.printer import print_function
from tilesmith.jit.bound_kernel import BoundKernel
from tilesmith.runtime.device import describe_device
from tilesmith.settings import Settings
from tilesmith.tune.store.key import StoreKey, digest_text
from tilesmith.tune.store.toolchain import toolchain

CODE_SETTINGS = (
    "backend",
    "num_threads",
    "static_shapes",
    "index_dtype",
    "dot_precision",
    "fast_math",
    "persistent_reserved_sms",
    "allow_warp_specialize",
    "triton_do_not_specialize",
    "debug_dtype_asserts",
)
"""Settings that change generated code or how it is launched."""


def make_key(bound: BoundKernel, args: Sequence[Any], regime: str = "cold") -> StoreKey:
    """The key of a bound kernel with arguments, as of now."""
    definition = bound.definition
    facts = bound.facts
    return StoreKey(
        kernel=definition.name,
        source=digest_text(_source_text(definition.split.source.tree)),
        program=digest_text(_program_text(bound)),
        facts=facts.fingerprint(),
        shapes=facts.shape_class(),
        arguments=_describe_all(definition.parameters, args),
        settings=_describe_settings(definition.settings),
        target=str(bound.target),
        device=describe_device(bound.target),
        regime=regime,
        toolchain=toolchain(),
    )


def _source_text(tree: ast.FunctionDef) -> str:
    plain = copy(tree)
    plain.decorator_list = []
    return ast.unparse(plain)


def _program_text(bound: BoundKernel) -> str:
    """The IR without the comments that say where its operations stand in the user's file."""
    return re.sub(r'  // [^"\n]*$', "", print_function(bound.function), flags=re.MULTILINE)


def _describe_settings(settings: Settings) -> str:
    return " ".join(f"{name}={getattr(settings, name)}" for name in CODE_SETTINGS)


def _describe_all(names: Sequence[str], arguments: Sequence[Any]) -> str:
    return ", ".join(f"{name}: {_describe(value)}" for name, value in zip(names, arguments))


def _describe(value: Any) -> str:
    """Types and shapes; numbers by their type, since they may differ from call to call."""
    if hasattr(value, "dtype") and hasattr(value, "stride"):
        dtype = str(value.dtype).removeprefix("torch.")
        strides = "" if value.is_contiguous() else f" strides {list(value.stride())}"
        return f"{dtype}{list(value.shape)}{strides}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_describe(item) for item in cast('Sequence[Any]', value))}]"
    if value is None or isinstance(value, (bool, str)):
        return repr(value)
    return getattr(value, "__name__", type(value).__name__)
