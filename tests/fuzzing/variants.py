"""The same kernel called with other shapes and other data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from random import Random

from tests.fuzzing.block_statements import TileLoop
from tests.fuzzing.program import Program, walk

SIZES = (2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 23, 31, 32, 33, 47, 63, 64, 65, 70, 97, 127, 128, 129)
MORE_SIZES = range(2, 290)
"""Where few remainders are left, quotients must make up for them."""
LARGE = (2048, 3001, 4097, 6007)
SMALL_DIMS = {"G": (2, 3, 5, 7), "K": (2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33)}
MAX_ELEMENTS = 40_000
ATTEMPTS = 30
ONES_SHARE = 16
"""One member in so many has sizes of 0 and 1, which are constants of kernels of their own."""
DATA = ("", "", "", "special", "ends")
STEP = 16
"""Code for GPUs is made anew where a size becomes a multiple of this, or ceases to be one."""
LARGE_SHARE = 4
"""One family in so many has a member above the size from which threads share the work."""


def family(program: Program, seed: int, count: int, *, shares_code: bool = False) -> list[Program]:
    """A program, and ``count`` more with the same text if its sizes may change.

    Where they share code, sizes have the remainders by 16 of the program's own or, every second
    member, others: code for GPUs is made for what is a multiple of 16, and takes long to make.
    """
    random = Random(f"family/{seed}")
    members = [program]
    names = program.free_sizes
    for number in range(count if names else 0):
        is_large = number == 0 and seed % LARGE_SHARE == 0
        has_ones = number % ONES_SHARE == ONES_SHARE - 1
        wanted: dict[str, int] = {}
        if shares_code:
            has_ones = number == 1 and seed % LARGE_SHARE == 1
            wanted = {} if has_ones else _wanted(program, seed * (number % 2))
        sizes = _sizes(random, program, wanted, is_large=is_large, has_ones=has_ones)
        if shares_code and any(member.sizes == sizes for member in members):
            continue
        data = random.choice(DATA)
        members.append(replace(program, sizes=sizes, seed=random.randrange(10_000), data=data))
    if not names:
        members.append(replace(program, seed=program.seed + 1, data=DATA[-1 - seed % 2]))
    return members


def remainders(sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Sizes with the same ones can share code for GPUs; 0 and 1 are constants of their own."""
    return tuple(size if size < 2 else 2 + size % STEP for size in sizes.values())


def _wanted(program: Program, seed: int) -> dict[str, int]:
    """Remainders of the program's own sizes, or (if the seed is not 0) others."""
    if not seed:
        return {name: size % STEP for name, size in program.sizes.items()}
    random = Random(f"remainders/{seed}")
    sizes = {n: random.choice(SMALL_DIMS.get(n, (16, 16, *SIZES))) for n in program.sizes}
    return {name: size % STEP for name, size in sizes.items()}


def _near(size: int, wanted: int) -> int:
    """A size with a remainder, not 0 and not 1: the next smaller one, or the smallest."""
    less = size - (size - wanted) % STEP
    return less if less > 1 else wanted if wanted > 1 else wanted + STEP


def with_sizes(program: Program, sizes: Mapping[str, int]) -> Program:
    """The program with other sizes where it leaves them free, as far as its loops allow."""
    least = least_sizes(program)
    free = {name: max(sizes[name], least[name]) for name in program.free_sizes if name in sizes}
    return replace(program, sizes={**program.sizes, **free})


def least_sizes(program: Program) -> dict[str, int]:
    """The smallest sizes a program is defined for.

    Nothing is left of a dimension only where nothing was when it was grown: a maximum needs an
    element, and a loop may not end before it begins.
    """
    least = {name: int(size > 0) for name, size in program.sizes.items()}
    bounds = [(size, begin + left) for loop in program.loops for _, size, begin, left in loop.axes]
    inside = walk(statement for loop in program.loops for statement in loop.body)
    for loop in (x for x in inside if isinstance(x, TileLoop)):
        size, *left = loop.end.split(" - ")
        if size in least and loop.begin.isdigit():
            bounds.append((size, int(loop.begin) + sum(map(int, left))))
    for size, bound in bounds:
        least[size] = max(least[size], bound)
    return least


def _sizes(
    random: Random,
    program: Program,
    wanted: Mapping[str, int],
    *,
    is_large: bool,
    has_ones: bool,
) -> dict[str, int]:
    names, least = program.free_sizes, least_sizes(program)
    large = random.choice([name for name in names if name not in SMALL_DIMS] or names)
    for _ in range(ATTEMPTS):
        sizes = dict(program.sizes)
        for name in names:
            sizes[name] = random.choice(SMALL_DIMS.get(name, MORE_SIZES if wanted else SIZES))
            if has_ones and random.random() < 0.5:
                sizes[name] = random.choice((0, 1))
        if is_large and large not in SMALL_DIMS:
            sizes |= {name: min(sizes[name], 3) for name in names}
            sizes[large] = random.choice(LARGE)
        for name in names:
            sizes[name] = max(sizes[name], least[name])
            sizes[name] = _near(sizes[name], wanted[name]) if wanted else sizes[name]
            sizes[name] += STEP if sizes[name] < least[name] else 0
        first, second, third, *_ = sorted(sizes.values(), reverse=True)
        most = max(math.prod(spec.shape(sizes)) for spec in program.tensors)
        limit = MAX_ELEMENTS * (2 if is_large else 1)
        if most <= limit and (is_large or first * second * third <= limit):
            return sizes
    return dict(program.sizes)
