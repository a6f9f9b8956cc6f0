"""From the values host code hands over at the launch point to kernel parameters and guard checks.

Launch expressions such as ``x``, ``xs[1]`` or ``x.size(0)`` come from the compiler; they are
compiled once into one function of the captured names.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch

import tilesmith.exc as errors
from tilesmith.artifacts import LaunchParameter
from tilesmith.ir.types import dynamic_form
from tilesmith.runtime.calls.reader import TensorReader
from tilesmith.runtime.device import is_numbered

_UNIQUE = (type, torch.dtype, type(None))
"""Equal ones are the same object."""
Launcher = Callable[..., None]
Recovery = Callable[[Launcher, errors.TritonError], Launcher]
"""From a launcher that does not build, and why, to the one to use instead."""
FindOther = Callable[[errors.TritonError], Launcher]
"""From why some values are not launched to what launches those."""
_DEVICE = "device="
CPU = torch.device("cpu")


@dataclass(frozen=True)
class LaunchOptions:
    """What a launcher needs besides the artifact."""

    cache_dir: Path
    device: torch.device = CPU
    arguments: frozenset[str] = frozenset()
    """Captured names that are the kernel's own arguments: the key says where they are, and their
    memory is not fresh."""
    reader: TensorReader | None = None
    """Reads addresses; without it each tensor is asked for its own."""
    owner: int = 0
    """The ``id`` of the bound kernel whose arguments need not be read again; 0: they must."""
    find_other: FindOther | None = None
    """Where code for some sizes would take minutes to build; None: it is built all the same."""
    num_threads: int = 0
    """Of a CPU. 0: as many as torch uses at the time of the call."""

    def is_argument(self, source: str) -> bool:
        """Whether a launch expression such as ``xs[1]`` starts from one of them."""
        match = re.match(r"\w+", source)
        return match is not None and match[0] in self.arguments


def compile_reader(
    captured: Sequence[str], expressions: Sequence[str], constants: Sequence[Any] = ()
) -> Callable[..., tuple[Any, ...]]:
    """A function of the captured values that gives the value of every expression.

    Example:
        >>> compile_reader(["a", "b"], ["b", "a + 1"])(1, 2)
        (2, 2)
    """
    listed = "".join(f"{expression}, " for expression in expressions)
    text = f"lambda {', '.join(captured)}: ({listed})"
    return eval(text, {"__constants__": tuple(constants), "float": float, "torch": torch})


_LOST = "except (AttributeError, LookupError, TypeError)"  # something is gone


def compile_guard(
    captured: Sequence[str], guards: Sequence[tuple[Any, ...]], constants: Sequence[Any] = ()
) -> Callable[..., bool] | None:
    """A function that tells whether every guarded expression still has its value.

    A guard starts with an expression and its value; what is gone, as items of lists that are
    shorter now, has another. None when there is nothing to check.
    """
    if not guards:
        return None
    tests, scope = _condition(guards, constants)
    exec(
        f"def __holds({', '.join(captured)}):\n try: return {tests}\n {_LOST}: return False", scope
    )
    return scope["__holds"]


def compile_choice(
    captured: Sequence[str],
    guards: Sequence[tuple[Any, ...]],
    constants: Sequence[Any],
    launcher: Launcher,
    otherwise: Launcher,
    recover: Recovery | None = None,
) -> Launcher:
    """``launcher`` where every guarded expression still has its value, else ``otherwise``.

    ``recover`` replaces a launcher that does not build; the values are then launched again.
    """
    if not guards and recover is None:
        return launcher
    tests, scope = _condition(guards, constants)
    scope |= {"__launcher": launcher, "__otherwise": otherwise, "__recover": recover}
    scope["__TritonError"] = errors.TritonError
    exec(_choice_text(", ".join(captured), tests, is_safe=recover is None), scope)
    return scope["__choose"]


def _choice_text(listed: str, tests: str, *, is_safe: bool) -> str:
    """A Python function, so that nothing stands between host code and a launcher that builds."""
    text = f"""\
def __choose({listed}):
    global __launcher
    try: __fits = {tests}
    {_LOST}: __fits = False
    if not __fits: return __otherwise({listed})
"""
    if is_safe:
        return f"{text}    __launcher({listed})"
    again = f"__launcher = __recover(__used, __error); __choose({listed})"
    used = f"    __used = __launcher\n    try: __used({listed})\n"
    return f"{text}{used}    except __TritonError as __error: {again}"


def _condition(
    guards: Sequence[tuple[Any, ...]], constants: Sequence[Any]
) -> tuple[str, dict[str, Any]]:
    """An expression that tests all guards, and the names in it."""
    scope: dict[str, Any] = {f"__expected_{i}": guard[1] for i, guard in enumerate(guards)}
    scope |= {"__constants__": tuple(constants), "dynamic_form": dynamic_form, "torch": torch}
    tests = [
        f"({guard[0]}) {'is' if isinstance(guard[1], _UNIQUE) else '=='} __expected_{position}"
        for position, guard in enumerate(guards)
    ]
    return " and ".join(tests) or "True", scope


def make_launch_tensor(parameter: LaunchParameter, device: torch.device | str) -> torch.Tensor:
    """What the launch expression of such a parameter makes, on a device of the caller's choice."""
    expression, _, _ = parameter.source.rpartition(_DEVICE)
    return eval(f"{expression}{_DEVICE}device)", {"torch": torch, "device": device})


INT64_LIMIT = 1 << 63
NOT_READ = (ValueError, RuntimeError)
"""What reading the address of a tensor without memory raises, by native code or by torch."""
NO_MEMORY = "a tensor without memory (of fake mode, or under a transform of torch.func)"
AS_OPERATOR = (
    'call an operator instead: torch.library.custom_op("mine::name", kernel, mutates_args=());\n'
    "for torch.func.grad, operators in a torch.autograd.Function with setup_context"
)


def refuse(
    parameters: Sequence[LaunchParameter], values: Sequence[Any], device: torch.device
) -> NoReturn:
    """Raise for the first value that code on the device cannot take as it is."""
    for parameter, value in zip(parameters, values):
        problem = _problem_of(value, device)
        if problem:
            where = "the CPU" if device.type == "cpu" else str(device)
            raise errors.UnsupportedArgumentType(
                argument=parameter.source,
                kind=problem,
                expected=f"a dense tensor on {where}, or a number of at most 64 bits",
                fix=AS_OPERATOR if problem == NO_MEMORY else "",
            )
    raise errors.InternalError(problem="arguments of compiled code cannot be handed over")


def refuse_without_memory(
    parameters: Sequence[LaunchParameter], values: Sequence[Any], device: torch.device
) -> None:
    """Raise for a tensor that has no memory though it has elements, or other values there."""
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    if any(tensor.is_neg() or lacks_memory(tensor) for tensor in tensors):
        refuse(parameters, values, device)


def lacks_memory(tensor: torch.Tensor) -> bool:
    """Whether it only stands for others: compiled code would write to address 0."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns for some, and refuses for others
            return not tensor.data_ptr() and bool(tensor.numel())
    except RuntimeError:
        return True


def has_storage(tensor: torch.Tensor) -> bool:
    """Whether torch tells where its storage lies; of a fake one it does, and it is nowhere."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # as above
            tensor.untyped_storage().data_ptr()
    except RuntimeError:
        return False
    return True


def _problem_of(value: Any, device: torch.device) -> str:
    if isinstance(value, torch.Tensor):
        is_other = is_numbered(device) and value.device.index != device.index
        if is_other or value.device.type != device.type:
            return f"a tensor on {value.device}"
        if lacks_memory(value):
            return NO_MEMORY
        return "a view with its sign flipped lazily (call .resolve_neg())" if value.is_neg() else ""
    is_wide = isinstance(value, int) and not -INT64_LIMIT <= value < INT64_LIMIT
    return "an integer of more than 64 bits" if is_wide else ""
