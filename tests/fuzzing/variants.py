"""The same kernel called with other shapes and other data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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
CODES = 3
"""Kinds of sizes that share code for GPUs; each is compiled once for each config."""
SHAPES = 10
"""Of each kind at most: more would say less and less about code that is compiled once."""
LARGE_SHARE = 4
"""One family in so many has a member above the size from which threads share the work."""


def family(program: Program, seed: int, count: int, *, shares_code: bool = False) -> list[Program]:
    """A program, and ``count`` more with the same text if its sizes may change.

    Where they share code, sizes are multiples of 2 to 16 and have the next powers of 2 as the
    program's own or two others do: code for GPUs is made for that, and takes long to make.
    """
    random = Random(f"family/{seed}")
    members = [program]
    names = program.free_sizes
    count = min(count, CODES * SHAPES) if shares_code else count
    for number in range(count if names else 0):
        is_large = number == 0 and seed % LARGE_SHARE == 0
        has_ones = number % ONES_SHARE == ONES_SHARE - 1
        if shares_code:
            has_ones = number == 1 and seed % LARGE_SHARE == 1
        if shares_code and not (is_large or has_ones):
            first = _first_of_kind(program, seed, number % CODES)
            sizes = _alike(random, program, first, [member.sizes for member in members])
        else:
            sizes = _sizes(random, program, is_large=is_large, has_ones=has_ones)
        if shares_code and any(member.sizes == sizes for member in members):
            continue
        data = random.choice(DATA)
        members.append(replace(program, sizes=sizes, seed=random.randrange(10_000), data=data))
    if not names:
        members.append(replace(program, seed=program.seed + 1, data=DATA[-1 - seed % 2]))
    return _by_code(members, seed) if shares_code and names else members


def _by_code(members: list[Program], seed: int) -> list[Program]:
    """One kind after the other, so that what is compiled has served before more is compiled."""
    kinds = [codes(_first_of_kind(members[0], seed, kind)) for kind in range(CODES)]
    found = [codes(member.sizes) for member in members]
    order = [kinds.index(own) if own in kinds else CODES for own in found]
    return [members[n] for n in sorted(range(len(members)), key=order.__getitem__)]


def code_of(size: int) -> int:
    """Sizes with the same one can share code for GPUs; 0 and 1 are constants of their own.

    Products of such sizes are multiples of 16 alike, since all have the same powers of 2.
    """
    return size if size < 2 else 2 + math.gcd(size, STEP) + 2 * STEP * (size - 1).bit_length()


def codes(sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Of all sizes."""
    return tuple(map(code_of, sizes.values()))


def _first_of_kind(program: Program, seed: int, kind: int) -> dict[str, int]:
    """The program's own sizes, or others."""
    random = Random(f"kind/{seed}/{kind}")
    return _sizes(random, program, is_large=False, has_ones=False) if kind else dict(program.sizes)


def _alike(
    random: Random, program: Program, first: Mapping[str, int], known: Sequence[Mapping[str, int]]
) -> dict[str, int]:
    """Sizes that share code with the first ones: others than are known, if some are found."""
    if first not in known:
        return dict(first)
    least, sizes = least_sizes(program), dict(first)
    for _ in range(ATTEMPTS):
        for name in program.free_sizes:
            near = [n for n in MORE_SIZES if code_of(n) == code_of(first[name])]
            near = [n for n in near if n >= least[name]] or [first[name]]
            sizes[name] = random.choice(random.choice((near, _edges(near))))
        if sizes not in known and _is_small(program, sizes):
            return sizes
    return dict(first)


def _edges(sizes: Sequence[int]) -> list[int]:
    """The smallest and the largest of some sizes, and those beside multiples of a tile's."""
    beside = [n for n in sizes if n % STEP in (1, STEP - 1)]
    return [sizes[0], sizes[-1], *beside]


def _is_small(program: Program, sizes: Mapping[str, int]) -> bool:
    first, second, third, *_ = sorted(sizes.values(), reverse=True)
    return max(_most(program, sizes), first * second * third) <= MAX_ELEMENTS


def _most(program: Program, sizes: Mapping[str, int]) -> int:
    return max(math.prod(spec.shape(sizes)) for spec in program.tensors)


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


def _sizes(random: Random, program: Program, *, is_large: bool, has_ones: bool) -> dict[str, int]:
    names, least = program.free_sizes, least_sizes(program)
    large = random.choice([name for name in names if name not in SMALL_DIMS] or names)
    for _ in range(ATTEMPTS):
        sizes = dict(program.sizes)
        for name in names:
            sizes[name] = random.choice(SMALL_DIMS.get(name, SIZES))
            if has_ones and random.random() < 0.5:
                sizes[name] = random.choice((0, 1))
        if is_large and large not in SMALL_DIMS:
            sizes |= {name: min(sizes[name], 3) for name in names}
            sizes[large] = random.choice(LARGE)
        sizes |= {name: max(sizes[name], least[name]) for name in names}
        if _most(program, sizes) <= 2 * MAX_ELEMENTS if is_large else _is_small(program, sizes):
            return sizes
    return dict(program.sizes)
