"""Ported kernels on the CPU against fp64: boundary sizes, runtime sizes, random configs."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from tests.examples.case import Size, as_outputs, copies
from tests.examples.ports.port import Port
from tests.examples.ports.ports import PORTS
from tests.host_backends import BACKENDS, on_backend
from tilesmith.numerics.compare import AccuracyError

NUM_CONFIGS = 8


def boundary_sizes() -> list[Any]:
    """Each size with one type, all types in turn; the interpreter runs one of them."""
    return [
        pytest.param(
            port, size, dtype, backend, id=f"{port}-{'x'.join(map(str, size))}-{dtype}-{backend}"
        )
        for port in PORTS
        for place, size in enumerate(port.sizes)
        for backend in BACKENDS
        for dtype in [port.dtypes[place % len(port.dtypes) if backend != "reference" else 0]]
    ]


def check_run(port: Port, run: Any, args: tuple[Any, ...], size: Size, dtype: torch.dtype) -> None:
    before = copies(args)
    port.check(run(*args), before, size, dtype)


@pytest.mark.parametrize(("port", "size", "dtype", "backend"), boundary_sizes())
def test_small_blocks_at_boundary_sizes(
    port: Port, size: Size, dtype: torch.dtype, backend: str
) -> None:
    args = port.make_inputs(size, dtype, "cpu")
    # The interpreter also looks at bounds, and at programs that use what another one writes.
    kernel = on_backend(port.kernel, backend, check=backend == "reference")
    run = kernel.bind(args).compile_config(port.config)
    check_run(port, run, args, size, dtype)


@pytest.mark.parametrize("port", PORTS, ids=str)
def test_one_kernel_serves_all_sizes(port: Port) -> None:
    kernel = on_backend(port.kernel, "cpu", static_shapes=False)
    dtype = port.dtypes[-1]
    # The largest first: what is equal or one in a later call must not be taken to be so in all.
    for size in reversed(port.sizes):
        args = port.make_inputs(size, dtype, "cpu")
        check_run(port, kernel, args, size, dtype)


@pytest.mark.parametrize("port", PORTS, ids=str)
def test_a_wrong_result_is_noticed(port: Port) -> None:
    size, dtype = port.sizes[-1], port.dtypes[0]
    args = port.make_inputs(size, dtype, "cpu")
    first, *others = (rounded(out) for out in as_outputs(port.reference(*args)))
    port.check((first, *others), args, size, dtype)
    wrong = ~first if first.dtype == torch.bool else first + port.noticeable * first.abs().max()
    with pytest.raises(AccuracyError):
        port.check((wrong, *others), args, size, dtype)


def rounded(exact: torch.Tensor | None) -> torch.Tensor:
    assert exact is not None
    return exact.float() if exact.is_floating_point() else exact


@pytest.mark.parametrize("seed", range(NUM_CONFIGS))
@pytest.mark.parametrize("port", PORTS, ids=str)
def test_random_config(port: Port, seed: int) -> None:
    rng = random.Random(f"{port} {seed}")
    size, dtype = rng.choice(port.sizes), rng.choice(port.dtypes)
    args = port.make_inputs(size, dtype, "cpu")
    bound = on_backend(port.kernel, "cpu", static_shapes=seed % 2 == 0).bind(args)
    config = bound.config_spec.random_config(rng)
    check_run(port, bound.compile_config(config), args, size, dtype)
