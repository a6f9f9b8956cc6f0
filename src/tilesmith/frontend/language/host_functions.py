"""Language functions of host code: ``hl.specialize``, ``hl.register_*``, ``hl.constexpr``."""

from __future__ import annotations

from typing import Any, NamedTuple

import tilesmith.exc as errors
from tilesmith.diagnostics.wording import kind_of
from tilesmith.frontend.language.parameter_names import also_named
from tilesmith.frontend.tracing.host_session import RuntimeInt
from tilesmith.frontend.tracing.known_sizes import known_number
from tilesmith.frontend.tracing.tracer import (
    current_host_session,
    find_host_session,
    find_tracer,
    locate,
)
from tilesmith.frontend.tracing.values import TileValue
from tilesmith.ir.types import next_power_of_2 as round_up
from tilesmith.schedule.config import is_reserved
from tilesmith.schedule.space.fragments import Fragment


class _Wrapped(NamedTuple):
    value: Any


class constexpr(_Wrapped):  # noqa: N801 (the name kernels use)
    """A compile-time constant.

    As an annotation, around an argument, or around an expression of constants and block sizes;
    inside a kernel it is that value itself.

    Example:
        ``def k(x: torch.Tensor, mode: hl.constexpr): ...`` or ``k(x, hl.constexpr("fast"))``
    """

    __slots__ = ()

    def __new__(cls, value: Any) -> Any:
        """The wrapper for a call; in the code of a kernel, the value."""
        if isinstance(value, TileValue):
            return known_number(value, "the argument of hl.constexpr")
        session = find_host_session()
        if session is not None:
            session.is_used = True
        is_in_kernel = session is not None or find_tracer() is not None
        return value if is_in_kernel else super().__new__(cls, value)

    def __index__(self) -> int:
        return int(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)


@also_named(v="value")
def specialize(value: Any) -> Any:
    """Make a size, stride or integer argument a constant of the compiled kernel. Host code only.

    Example:
        ``n = hl.specialize(x.size(1))``
    """
    if find_tracer() is not None:
        raise errors.SpecializeOnDevice(loc=locate())
    return current_host_session("hl.specialize").specialize(value)


def next_power_of_2(n: int) -> int:
    """The least power of two that is not below ``n``.

    In a kernel, device values of that size may meet those of size ``n``: zeros follow them.

    Example:
        ``acc = hl.zeros([t, helion.next_power_of_2(n)])``
    """
    size = round_up(n)
    tracer = find_tracer()
    session = find_host_session() if tracer is None else tracer.host
    if session is not None and size != n:
        session.rounded_sizes.add((int(n), int(size)))
    return size


def register_block_size(min_or_max: int, max_or_none: int | None = None, /) -> int:
    """A tuned block size for use in several loops, or in host code. Host code only.

    Example:
        ``block_n = hl.register_block_size(n)``
    """
    if find_tracer() is not None:
        raise errors.RegisterOnDevice(function="hl.register_block_size", loc=locate())
    session = current_host_session("hl.register_block_size")
    low, high = (1, min_or_max) if max_or_none is None else (min_or_max, max_or_none)
    if low < 1 or low & (low - 1):
        raise errors.InvalidConfigValue(
            key="register_block_size min", value=low, allowed="a power of two", loc=locate()
        )
    if int(high) < int(low) and f", {high})" in locate().text:  # a size may well be small
        raise errors.InvalidArgumentValue(
            function="hl.register_block_size",
            problem=f"the least size, {low}, is more than the most, {high}",
            fix="swap them: hl.register_block_size(least, most)",
            loc=locate(),
        )
    most = max(int(low), round_up(int(high)))
    is_runtime_size = isinstance(high, RuntimeInt)
    return session.register_block_size(int(low), most, is_runtime_size=is_runtime_size)


def register_tunable(name: str, fragment: Any) -> Any:
    """A value of your own that the Config decides. Host code only.

    Example:
        ``splits = hl.register_tunable("splits", PowerOfTwoFragment(1, 64))``
    """
    if find_tracer() is not None:
        raise errors.RegisterOnDevice(function="hl.register_tunable", loc=locate())
    session = current_host_session("hl.register_tunable")
    if not isinstance(name, str):
        raise errors.RegisterTunableArgTypes(kind=kind_of(name), argument="name", loc=locate())
    if not isinstance(fragment, Fragment):
        raise errors.RegisterTunableArgTypes(
            kind=kind_of(fragment), argument="fragment", loc=locate()
        )
    for bound in vars(fragment).values():
        if isinstance(bound, RuntimeInt):
            raise errors.ConfigSpecFragmentWithSymInt(name=name, bound=bound, loc=locate())
    if is_reserved(name):
        raise errors.TunableNameConflict(name=name, loc=locate())
    return session.register_tunable(name, fragment)


def cdiv(numerator: Any, denominator: Any) -> Any:
    """Division rounded up.

    Example:
        >>> cdiv(7, 2)
        4
    """
    return (numerator + denominator - 1) // denominator
