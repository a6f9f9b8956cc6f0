"""What packages hand to the driver is what calls in process launch: the same bits by the machine.

The driver's place is taken by one that reads the arguments of a launch as CUDA's does, and runs the
PTX that the package's binary was made of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

import tilesmith
from benchmarks import exported
from examples.grouped_gemm import grouped_gemm
from examples.matmul import matmul
from tests.device.warp_role_cases import KERNELS, Case, make_args
from tests.export.ptx_driver import PlacedTensor, driven, texts_of_binaries
from tests.export.test_package import load
from tests.fuzzing.simulated import calls_for_a_gpu, running_ptx
from tilesmith import Config
from tilesmith.experimental import export_package

Args = tuple[Any, ...]
exact_matmul = tilesmith.kernel(matmul.fn, static_shapes=True, dot_precision="ieee")


@dataclass(frozen=True)
class Exported:
    """A kernel, arguments that it is exported for, and others that the package must take, too."""

    kernel: Any
    make: Callable[[], Args]
    config: dict[str, Any] = field(default_factory=dict[str, Any])
    others: Callable[[], list[Args]] = list
    is_slow: bool = True


def products(m: int, k: int, n: int, turned: str = "") -> Args:
    x, y = torch.randn(m, k), torch.randn(k, n)
    x = x.T.contiguous().T if "x" in turned else x
    return x, y.T.contiguous().T if "y" in turned else y


def groups(rows: int, *offsets: int) -> Args:
    shapes = ((rows, 72), (72, 136))
    packed, b = (torch.randn(shape).bfloat16() for shape in shapes)
    return packed, b, torch.tensor(offsets, dtype=torch.int32)


def of_the_benchmark(name: str) -> Exported:
    case = exported.CASES[name]
    return Exported(case.kernel, lambda: case.make(*case.small), case.gpu)


ROLES = {"structure": "multiply_add_roles"}
MERGED = {
    "structure": "merged_roles",
    "num_warps": 12,
    "num_stages": 3,
    "block_sizes": [192, 64, 32],
}
OFFSETS = ((300, 0, 7, 7, 200, 300), (65, 65, 3, 64), (2, 0, 2), (193, *[0] * 70, 193))
CASES = {
    **{name: of_the_benchmark(name) for name in exported.CASES},
    "softmax": Exported(
        exported.CASES["softmax"].kernel, lambda: (torch.randn(5, 130),), is_slow=False
    ),
    "exact": Exported(exact_matmul, lambda: products(132, 100, 260), ROLES),
    **{
        f"exact, turned {turned}": Exported(
            exact_matmul, lambda turned=turned: products(132, 100, 260, turned), ROLES
        )
        for turned in ("x", "y", "xy")
    },
    "merged groups": Exported(
        grouped_gemm,
        lambda: groups(128, 0, 20, 128),
        MERGED,
        lambda: [groups(*given) for given in OFFSETS],
    ),
    **{
        f"attention {kind}": Exported(
            KERNELS[kind][0],
            lambda kind=kind: make_args(Case(kind, 128 if kind == "fp8" else 193, 64), "cpu"),
            {"structure": "warp_roles"},
        )
        for kind in ("lse", "bias", "fp8", "shared")
    },
}


@pytest.fixture(autouse=True)
def _new_tensors_are_nan() -> Iterator[None]:
    """Rows of no group are not written."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def full_config(given: Exported, args: Args) -> Config | None:
    """The config of a case, for which a form's default stands where only the form is named."""
    if not given.config:
        return None
    form = given.config.get("structure")
    if len(given.config) > 1 or form is None:
        return Config.from_dict(given.config)
    bound = given.kernel.bind(given.kernel.normalize_args(*args), target="cuda:90")
    return bound.config_spec.forms()[form].default_config().updated(structure=form)


def in_process(given: Exported, args: Args, config: Config | None) -> list[torch.Tensor]:
    """What a call in process gives."""
    args = given.kernel.normalize_args(*args)
    if given.kernel.staged is not None:
        return exported.tensors(given.kernel(*args))
    bound = given.kernel.bind(args, target="cuda:90")
    config = config or bound.config_spec.default_config()
    return exported.tensors(bound.compile_config(config)(*args))


def copied(args: Args, *, is_placed: bool = False) -> Args:
    tensors = [x.clone() if isinstance(x, torch.Tensor) else x for x in args]
    if not is_placed:
        return tuple(tensors)
    return tuple(x.as_subclass(PlacedTensor) if isinstance(x, torch.Tensor) else x for x in tensors)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.full] * c.is_slow) for n, c in CASES.items()]
)
def test_packages_give_the_bits_of_calls_in_process(name: str, tmp_path: Path) -> None:
    given = CASES[name]
    torch.manual_seed(0)
    args = given.make()
    config = full_config(given, args)
    folder = tmp_path / "exported_package"
    with running_ptx(), calls_for_a_gpu():
        with texts_of_binaries() as texts:
            export_package(given.kernel, [args], folder, target="cuda:90", config=config)
        for each in (args, *given.others()):
            wanted = in_process(given, copied(each), config)
            placed = copied(each, is_placed=True)
            with driven(lambda: load(folder), texts) as (call, driver):
                driver.pieces += [x for x in placed if isinstance(x, torch.Tensor)]
                found = exported.tensors(call(*placed))
            assert driver.grids
            assert exported.same_bits(found, wanted)
