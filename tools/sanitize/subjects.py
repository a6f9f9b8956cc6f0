"""What is run: examples at awkward sizes, rows of products, attention and its gradients, ragged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

import torch

import tilesmith
from examples.matmul import bias_relu, matmul
from examples.matmul import reference as matmul_reference
from tests.backends.triton.warp_roles import test_ragged_roles as ragged
from tests.device import warp_role_cases as roles
from tests.examples.case import Case
from tests.examples.cases import EXAMPLES
from tests.examples.ports.ports import PORTS
from tests.examples.product_cases import PRODUCT
from tests.examples.row_cases import ROWWISE
from tests.passes.test_split_rows import FAMILY
from tilesmith import Config
from tilesmith.numerics.compare import check_against

OWN = "own form"
"""Where a config names no structure."""
PITCH = 64
PRODUCTS = ((2, 64, 8), (127, 72, 152), (130, 1000, 72))
PRODUCT_ROWS = ((1, 64, 2), (33, 72, 130), (127, 129, 1000))
LONG_ROWS = ((37, 9001),)
LONG_PRODUCTS = ((63, 2050, 30), (130, 72, 264))
LENGTHS = (2, 65, 130)
GRADIENT_LENGTHS = (2, 63, 65, 130)
ROLE_TILES = (
    ([64, 96, 32], 1, 2, "flat"),
    ([128, 144, 64], 2, 4, "persistent_interleaved"),
    ([192, 128, 64], 3, 3, "flat"),
)


@dataclass(frozen=True)
class Subject:
    """A kernel with arguments, and what its results must be near to."""

    name: str
    kernel: Any
    make: Callable[[str], tuple[Any, ...]]
    """Arguments on a device, the same every time."""
    check: Callable[[tuple[Any, ...], Any], object] | None
    """Raises AssertionError: the arguments as they were, what was returned."""
    pitch: int = 0
    """Elements that rows of arguments are laid apart by, if they are to have borders, too."""
    configs: tuple[Config, ...] = ()
    """Also these."""


@dataclass(frozen=True)
class Item:
    """One config of a subject."""

    subject: Subject
    structure: str
    config: Config

    @property
    def name(self) -> str:
        """Unique."""
        return f"{self.subject.name} {self.structure} {self.config}"


def subjects() -> list[Subject]:
    """All, always in the same order: what has other structures in turn with examples."""
    special = [*_products(), *_rows_of_products(), *_attention(), *_ragged(), *_large_examples()]
    examples = list(_examples())
    for listed in (special, examples):
        Random(0).shuffle(listed)
    in_turn = [subject for pair in zip(special, examples) for subject in pair]
    return [*in_turn, *examples[len(special) :]]


def _examples() -> Iterator[Subject]:
    for case in (*EXAMPLES, *PORTS):
        for dtype in sorted(case.dtypes, key=lambda dtype: (dtype.itemsize, str(dtype)))[::2]:
            for pitch in sorted({0, PITCH if case.has_free_layouts else 0}):
                yield _example(case, case.sizes[-1], dtype, pitch)


def _large_examples() -> Iterator[Subject]:
    """Sizes from which on rows and sums are split over programs."""
    for cases, sizes in ((ROWWISE, LONG_ROWS), (PRODUCT, LONG_PRODUCTS)):
        for case in cases:
            for size in sizes if len(case.sizes[-1]) == len(sizes[0]) else ():
                has_bf16 = torch.bfloat16 in case.dtypes
                yield _example(case, size, torch.bfloat16 if has_bf16 else case.dtypes[0])


def _example(case: Case, size: tuple[int, ...], dtype: torch.dtype, pitch: int = 0) -> Subject:
    def make(device: str) -> tuple[Any, ...]:
        torch.manual_seed(0)
        return case.make_inputs(size, dtype, device)

    def check(args: tuple[Any, ...], found: Any) -> None:
        case.check(found, args, size, dtype)

    name = f"{case.name} {size} {str(dtype).removeprefix('torch.')} pitch {pitch}"
    return Subject(name, case.kernel, make, check, pitch)


def _products() -> Iterator[Subject]:
    for m, k, n in PRODUCTS:

        def make(device: str, m: int = m, k: int = k, n: int = n) -> tuple[Any, ...]:
            torch.manual_seed(m)
            shapes = ((m, k), (k, n), (n,))
            x, y, bias = (torch.randn(shape, device=device).bfloat16() for shape in shapes)
            return x, y, bias_relu(bias)

        def check(args: tuple[Any, ...], found: Any, k: int = k) -> None:
            check_against(found, matmul_reference(*args), reduction_length=k)

        configs = tuple(
            Config(
                structure="warp_roles",
                block_sizes=blocks,
                num_warps=4 * groups,
                num_stages=stages,
                pid_type=pid,
            )
            for blocks, groups, stages, pid in ROLE_TILES
        )
        kernel = tilesmith.kernel(matmul.fn, static_shapes=True)
        yield Subject(f"matmul {m}x{k}x{n} bfloat16", kernel, make, check, 0, configs)


def _rows_of_products() -> Iterator[Subject]:
    for name, (kernel, reference, make_named) in FAMILY.items():
        for shape in PRODUCT_ROWS:

            def make(device: str, shape: Any = shape, named: Any = make_named) -> tuple[Any, ...]:
                return tuple(
                    value.to(device, torch.bfloat16) if isinstance(value, torch.Tensor) else value
                    for value in named(*shape).values()
                )

            def check(
                args: tuple[Any, ...], found: Any, shape: Any = shape, reference: Any = reference
            ) -> None:
                length = shape[1] * 4 + shape[2]
                check_against(found, reference(*args), reduction_length=length)

            yield Subject(f"rows of products {name} {shape}", kernel, make, check)


def _attention() -> Iterator[Subject]:
    plain = [roles.Case(kind, n, 64) for kind in roles.KERNELS for n in LENGTHS]
    ways = [way + kind for way in ("", "causal ") for kind in roles.GRADIENTS]
    gradients = [roles.Case(kind, n, 64) for kind in ways for n in GRADIENT_LENGTHS]
    for case in (*plain, *gradients):
        if case.kind == "fp8" and case.length % 64:
            continue
        table = roles.KERNELS if case.gradient is None else roles.GRADIENTS
        kernel = table[case.kind if case.gradient is None else case.gradient][0]
        yield Subject(
            f"attention {case}", kernel, partial(roles.make_args, case), partial(_near, case)
        )


def _near(case: roles.Case, args: tuple[Any, ...], found: Any) -> None:
    results = list(found) if isinstance(found, tuple) else [found]
    device = str(results[0].device)
    if case.gradient is not None:
        roles.check_gradients(case, results, device)
        return
    exact = roles.KERNELS[case.kind][1](*args)
    roles.check_outputs(case, results, list(exact) if isinstance(exact, tuple) else [exact])


def _ragged() -> Iterator[Subject]:
    for kind, (kernel, exact) in ragged.KERNELS.items():

        def make(device: str, kind: str = kind) -> tuple[Any, ...]:
            return ragged.make_args(kind, ragged.LENGTHS, d=64, window=50, device=device)

        def check(args: tuple[Any, ...], found: Any, exact: Any = exact) -> None:
            length, rounded = max(ragged.LENGTHS), [torch.bfloat16] * 2
            check_against(found, exact(*args), reduction_length=length, intermediate=rounded)

        yield Subject(f"ragged {kind}", kernel, make, check)


def items(subject: Subject, bound: Any, count: int) -> Iterator[Item]:
    """So many configs of each structure that a kernel has: the default, then random ones."""
    random = Random(subject.name)
    for config in subject.configs:
        structure = config["structure"]
        if structure in bound.config_spec.forms():
            yield Item(subject, structure, config)
    for name, spec in bound.config_spec.forms().items():
        structure = name if name in bound.config_spec.others else OWN
        for number in range(count):
            config = spec.default_config() if not number else spec.random_config(random)
            if structure != OWN:
                config = config.updated(structure=structure)
            yield Item(subject, structure, config)
