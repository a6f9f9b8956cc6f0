"""Module-level Triton functions that an emitted module carries when its body calls them."""

from __future__ import annotations

HELPER_FUNCTIONS = {
    "_nan_max": """
@triton.jit
def _nan_max(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
""",
    "_nan_min": """
@triton.jit
def _nan_min(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
""",
    "_multiply": """
@triton.jit
def _multiply(a, b):
    return a * b
""",
    # NaN counts as the extreme; of equal elements the first one wins.
    "_nan_argmax": """
@triton.jit
def _nan_argmax(a, i, b, j):
    is_tie = (a == b) | ((a != a) & (b != b))
    takes_a = (a > b) | ((a != a) & (b == b)) | (is_tie & (i < j))
    return tl.where(takes_a, a, b), tl.where(takes_a, i, j)
""",
    "_nan_argmin": """
@triton.jit
def _nan_argmin(a, i, b, j):
    is_tie = (a == b) | ((a != a) & (b != b))
    takes_a = (a < b) | ((a != a) & (b == b)) | (is_tie & (i < j))
    return tl.where(takes_a, a, b), tl.where(takes_a, i, j)
""",
    # Triton's // and % round towards zero.
    "_floor_divide": """
@triton.jit
def _floor_divide(a, b):
    remainder = a % b
    return a // b - ((remainder != 0) & ((remainder < 0) != (b < 0))).to(a.dtype)
""",
    "_floor_modulo": """
@triton.jit
def _floor_modulo(a, b):
    remainder = a % b
    return tl.where((remainder != 0) & ((remainder < 0) != (b < 0)), remainder + b, remainder)
""",
    "_float_modulo": """
@triton.jit
def _float_modulo(a, b):
    remainder = libdevice.fmod(a, b)
    return tl.where((remainder != 0) & ((remainder < 0) != (b < 0)), remainder + b, remainder)
""",
    # From the remainder, so that the quotient is exact where a / b would round up to an integer.
    "_float_floor_divide": """
@triton.jit
def _float_floor_divide(a, b):
    remainder = libdevice.fmod(a, b)
    quotient = (a - remainder) / b
    is_above = (remainder != 0) & ((remainder < 0) != (b < 0))
    quotient = libdevice.nearbyint(tl.where(is_above, quotient - 1, quotient))
    quotient = tl.where(quotient == 0, libdevice.copysign(quotient, a / b), quotient)
    return tl.where(b == 0, a / b, quotient)
""",
    # By repeated squaring; a negative exponent gives 0 except for bases 1 and -1, as in torch.
    "_integer_power": """
@triton.jit
def _integer_power(base, exponent):
    result = base * 0 + 1
    factor = base
    rest = tl.maximum(exponent, exponent * 0)
    num_bits: tl.constexpr = exponent.dtype.primitive_bitwidth
    for _ in tl.static_range(num_bits):
        result = tl.where((rest & 1) != 0, result * factor, result)
        factor = factor * factor
        rest = rest >> 1
    sign = tl.where((exponent & 1) != 0, base, base * base)
    inverse = tl.where((base == 1) | (base == -1), sign, base * 0)
    return tl.where(exponent < 0, inverse, result)
""",
    # Every thread's writes come before the count, and the count before every thread's reads. Only
    # the first thread touches the counter; what it sees is handed to all.
    "_wait_for_arrivals": """
@triton.jit
def _wait_for_arrivals(counter, arrivals):
    tl.debug_barrier()
    tl.atomic_add(counter, 1, sem="acq_rel", scope="gpu")
    while tl.atomic_add(counter, 0, sem="acquire", scope="gpu") < arrivals:
        pass
    tl.debug_barrier()
""",
}


def uses_libdevice(name: str) -> bool:
    """Whether a helper calls into libdevice."""
    return "libdevice." in HELPER_FUNCTIONS[name]
