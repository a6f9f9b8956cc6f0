"""Input tensors for checks: random, adversarial, with NaN and infinity, and in awkward layouts.

Values depend only on shape, dtype and seed, never on the device or on global random state.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from tilesmith.numerics.tolerance import max_exponent, min_exponent, smallest_spacing

_SPECIAL_SHARE = 16


def random_tensor(
    shape: Sequence[int],
    dtype: torch.dtype,
    *,
    seed: int = 0,
    device: torch.device | str = "cpu",
    scale: float = 1.0,
) -> torch.Tensor:
    """Normal floats of deviation ``scale``, integers in [-8, 8] (unsigned: [0, 8]), fair bools."""
    generator = torch.Generator().manual_seed(seed)
    size = list(shape)
    if dtype.is_floating_point:
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        values = torch.randn(size, dtype=wide, generator=generator) * scale
        return values.to(dtype).to(device)
    if dtype == torch.bool:
        return torch.randint(0, 2, size, generator=generator).to(dtype).to(device)
    lowest = -8 if dtype.is_signed else 0
    return torch.randint(lowest, 9, size, generator=generator).to(dtype).to(device)


def adversarial_tensor(
    shape: Sequence[int],
    dtype: torch.dtype,
    *,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> torch.Tensor:
    """Finite floats that strain rounding: many binades, zeros of both signs, subnormals.

    Magnitudes stay within the square root of the range, so that one product does not overflow;
    ``extreme_values`` has the ends of the range.
    """
    _require_float(dtype)
    generator = torch.Generator().manual_seed(seed)
    size = list(shape)
    low, high = min_exponent(dtype) // 2, max_exponent(dtype) // 2
    exponent = torch.randint(low, high, size, generator=generator).to(torch.float64)
    mantissa = 1 + torch.rand(size, dtype=torch.float64, generator=generator)
    sign = 1 - 2 * torch.randint(0, 2, size, generator=generator).to(torch.float64)
    values = sign * mantissa * torch.exp2(exponent)
    tiny = smallest_spacing(dtype)
    return _scatter(values, (0.0, -0.0, tiny, -tiny), generator).to(dtype).to(device)


def extreme_values(dtype: torch.dtype, device: torch.device | str = "cpu") -> torch.Tensor:
    """Each finite landmark of a float type: zero, subnormal, normal and largest, both signs."""
    _require_float(dtype)
    finfo = torch.finfo(dtype)
    tiny = smallest_spacing(dtype)
    positive = [0.0, tiny, finfo.smallest_normal - tiny, finfo.smallest_normal, 1.0, finfo.max]
    values = positive + [-value for value in positive]
    return torch.tensor(values, dtype=torch.float64).to(dtype).to(device)


def cancelling_tensor(
    shape: Sequence[int],
    dtype: torch.dtype,
    *,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> torch.Tensor:
    """Rows (last axis) of large pairs that cancel, and small values that must survive the sum."""
    _require_float(dtype)
    size = list(shape)
    values = random_tensor(size, torch.float64, seed=seed, scale=0.125)
    half = size[-1] // 2
    if half > 1:
        large = random_tensor([*size[:-1], half - 1], torch.float64, seed=seed + 1, scale=8.0)
        values[..., 1:half] = large
        values[..., half + 1 : 2 * half] = -large
    return values.to(dtype).to(device)


def nan_bearing_tensor(
    shape: Sequence[int],
    dtype: torch.dtype,
    *,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> torch.Tensor:
    """Random floats, one in sixteen NaN or an infinity; types without infinity get NaN only."""
    _require_float(dtype)
    generator = torch.Generator().manual_seed(seed)
    values = random_tensor(shape, dtype, seed=seed + 1).to(torch.float64)
    has_infinity = dtype not in (torch.float8_e4m3fn, torch.float8_e4m3fnuz)
    specials = (math.nan, math.inf, -math.inf) if has_infinity else (math.nan,)
    return _scatter(values, specials, generator).to(dtype).to(device)


def strided(values: torch.Tensor, step: int = 2) -> torch.Tensor:
    """The same values with ``step`` times the strides, the gaps filled with poison."""
    poison = math.nan if values.dtype.is_floating_point else 1
    size = [extent * step for extent in values.shape]
    storage = torch.full(size, poison, dtype=torch.float32).to(values.dtype).to(values.device)
    view = storage[tuple(slice(None, None, step) for _ in values.shape)]
    view.copy_(values)
    return view


def transposed(values: torch.Tensor) -> torch.Tensor:
    """The same values with the last two axes laid out the other way round in memory."""
    return values.transpose(-1, -2).contiguous().transpose(-1, -2)


def misaligned(values: torch.Tensor) -> torch.Tensor:
    """The same values, contiguous, starting one element into their storage."""
    storage = torch.empty(values.numel() + 1, dtype=values.dtype, device=values.device)
    view = storage[1:].view(values.shape)
    view.copy_(values)
    return view


def boundary_extents(block: int) -> tuple[int, ...]:
    """Extents where tiling by ``block`` goes wrong: 0, 1, around one and two blocks, a prime."""
    extents = {0, 1, block - 1, block, block + 1, 2 * block + 1, _next_prime(3 * block)}
    return tuple(sorted(extents))


def _require_float(dtype: torch.dtype) -> None:
    if not dtype.is_floating_point:
        raise TypeError(f"expected a float type, found {dtype}")


def _scatter(
    values: torch.Tensor, specials: Sequence[float], generator: torch.Generator
) -> torch.Tensor:
    """Put ``specials`` in turn at one in ``_SPECIAL_SHARE`` places, each once if they fit."""
    if values.numel() == 0:
        return values
    flat = values.flatten()
    count = max(len(specials), values.numel() // _SPECIAL_SHARE)
    places = torch.randperm(values.numel(), generator=generator)[:count]
    chosen = torch.tensor(specials, dtype=torch.float64).repeat(count // len(specials) + 1)
    flat[places] = chosen[: len(places)]
    return flat.view(values.shape)


def _next_prime(start: int) -> int:
    candidate = max(2, start)
    while any(candidate % divisor == 0 for divisor in range(2, math.isqrt(candidate) + 1)):
        candidate += 1
    return candidate
