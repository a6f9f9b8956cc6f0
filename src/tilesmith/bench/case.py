"""What a benchmark runs: operators with their inputs, references and implementations.

Definitions only: nothing is imported, allocated or compiled before a worker asks for it. A suite is
a module with a function ``suite()``, in the working folder or the checkout.
"""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, sqrt
from pathlib import Path
from traceback import extract_tb
from typing import Any

import torch

from tilesmith.lab.failures import one_line
from tilesmith.numerics.tolerance import INTERMEDIATE_VALUE_WEIGHT, SUM_SIGMAS

Arguments = tuple[Any, ...]
DEFAULT_SUITE = "benchmarks.suites"
CHECKOUT = Path(__file__).parents[3]


class PlanError(ValueError):
    """Something that was asked for does not exist or cannot be; the text names what does."""


@dataclass(frozen=True)
class Input:
    """One set of arguments of an operator.

    Attributes:
        label: unique within the operator, such as ``256x256x256``.
        make: the arguments, on a device and in a type; the same ones every time.
        dtype: the type used unless another is asked for.
        min_memory_gb: device memory below which the input is left out, with that reason.
    """

    label: str
    make: Callable[[torch.device, torch.dtype], Arguments]
    dtype: torch.dtype = torch.bfloat16
    min_memory_gb: float = 0.0


@dataclass(frozen=True)
class Operator:
    """A function with several implementations.

    Attributes:
        name: as in ``--kernel``.
        inputs: in a fixed order; positions are the ids of ``--input-id``.
        kernels: our kernels by short name, each as ``module:kernel`` (or a function that calls one,
            with the arguments of ``make``).
        eager: the same in PyTorch; the baseline of speedups.
        exact: the same in float64 of the same arguments; by default ``eager`` of widened ones.
            As many results as it gives are compared, from the first; others may give more.
        others: more implementations by name, each as ``module:function``.
        flops: floating-point operations, from the arguments; None where memory is the limit.
        num_bytes: bytes moved at least, from the arguments and then the result; by default all
            bytes of both.
        reduction_length: terms of the longest sum behind one element, from the arguments.
        roundings: intermediates that are rounded to the input type before they are summed.
        kernel_roundings: further ones of some of our kernels, by short name.
        cut_steps: those in which fp8 matrix units of GPUs cut a sum, from the arguments.
        sizes: of each element, where they differ: the ``s`` of a ``Budget``, in float64.
        exponents: terms of the sums, of about one, whose powers are the result, from the arguments:
            a power's relative error is the absolute one of its exponent.
        num_products: matrix products on the way to a result, one after the other: on a GPU, those
            of float32 run in tf32.
        dtypes: types it can be asked for.
        devices: where it can run.
        board: positions of the inputs on a scoreboard, by default three.
        family: of operators of one kind.
        cpu_inputs: what takes the place of ``inputs`` on a CPU, where those would take minutes;
            their ids count from zero too. ``inputs_on`` chooses.
    """

    name: str
    inputs: Sequence[Input]
    kernels: Mapping[str, str]
    eager: Callable[..., Any]
    exact: Callable[..., Any] | None = None
    others: Mapping[str, str] = field(default_factory=dict[str, str])
    flops: Callable[..., float] | None = None
    num_bytes: Callable[..., float] | None = None
    reduction_length: Callable[..., int] = lambda *arguments: 1
    roundings: int = 0
    kernel_roundings: Mapping[str, int] = field(default_factory=dict[str, int])
    cut_steps: Callable[..., int] = lambda *arguments: 0
    sizes: Callable[..., Any] | None = None
    exponents: Callable[..., int] = lambda *arguments: 0
    dtypes: Sequence[torch.dtype] = (torch.bfloat16, torch.float16, torch.float32)
    devices: Sequence[str] = ("cuda", "cpu")
    cpu_inputs: Sequence[Input] = ()
    num_products: int = 0
    board: Sequence[int] = ()
    family: str = ""

    def inputs_on(self, device: str) -> Sequence[Input]:
        """The inputs for a kind of device, ``cpu`` or ``cuda``."""
        return self.cpu_inputs if device == "cpu" and self.cpu_inputs else self.inputs

    def intermediates(
        self, dtype: torch.dtype, device: str, arguments: Arguments, target: str = ""
    ) -> tuple[torch.dtype, ...]:
        """The narrower types that intermediates are rounded to, as ``check_against`` takes them.

        ``target`` is the implementation's, as ``module:function``.
        """
        extra = self.kernel_roundings.items()
        count = self.roundings + sum(n for name, n in extra if self.kernels[name] == target)
        # As a ``Budget`` has it: six sigma of a sum, where each rounding counts twice.
        powers = ceil(SUM_SIGMAS * sqrt(self.exponents(*arguments)) / INTERMEDIATE_VALUE_WEIGHT)
        if device == "cpu":
            return (dtype,) * count + (torch.float32,) * powers
        own = (dtype,) * count
        own += (torch.float32,) * powers
        if dtype != torch.float32:
            return own
        # Both factors are rounded; fp16 has the significand of tf32.
        return own + (torch.float16,) * (2 * self.num_products)


@dataclass(frozen=True)
class Suite:
    """All operators of one module: what its ``suite()`` returns."""

    name: str
    operators: Sequence[Operator]


def load_suite(name: str = DEFAULT_SUITE) -> Suite:
    """The suite of a module; its folder becomes importable, for worker processes too."""
    add_import_folders()
    if not is_dotted_name(name):
        raise PlanError(f"--suite {name}: expected the name of a module, such as my_suite")
    try:
        return _checked(name, _call_suite(name))
    except SyntaxError as error:
        raise PlanError(f"--suite {name}: {error.filename}:{error.lineno}: {error.msg}") from None
    except SystemExit as error:
        ended = f"it ends the program by sys.exit({error.code!r})"
        raise PlanError(f"--suite {name}: {ended}; a suite must only return") from None
    except PlanError:
        raise
    except Exception as error:
        last = extract_tb(error.__traceback__)[-1]
        place = f"{last.filename}:{last.lineno} in {last.name}"
        raise PlanError(f"--suite {name} raised {one_line(error)} at {place}") from error


def _call_suite(name: str) -> object:
    """What the module's function returns."""
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        # A suite that exists and lacks something else says so itself.
        if not error.name or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise PlanError(_not_found(name)) from None
    make = getattr(module, "suite", None)
    if not callable(make):
        raise PlanError(f"--suite {name}: the module has no function suite()")
    return make()


def _checked(name: str, made: Any) -> Suite:
    if not isinstance(made, Suite):
        raise PlanError(f"--suite {name}: suite() returned {type(made).__name__}, not a Suite")
    operators: Any = made.operators
    if not isinstance(operators, Sequence) or not all(isinstance(o, Operator) for o in operators):
        raise PlanError(f"--suite {name}: expected Operators in its Suite, found {operators!r}")
    _check_unique(name, "operators", [operator.name for operator in made.operators])
    for operator in made.operators:
        for inputs in (operator.inputs, operator.cpu_inputs):
            labels = [chosen.label for chosen in inputs]
            _check_unique(name, f"inputs of {operator.name}", labels)
    return made


def add_import_folders() -> None:
    """Let modules of the working folder be named, as ``python -m`` does, and of the checkout."""
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    if (CHECKOUT / "benchmarks").is_dir() and str(CHECKOUT) not in sys.path:
        sys.path.append(str(CHECKOUT))


def _check_unique(name: str, what: str, names: Sequence[str]) -> None:
    """Rows are told apart by names of operators and labels of inputs."""
    twice = [found for found, count in Counter(names).items() if count > 1]
    if twice:
        raise PlanError(f"--suite {name}: two {what} are called {twice[0]}")


def _not_found(name: str) -> str:
    hint = (
        "it is part of the checkout, not of the installed package" if name == DEFAULT_SUITE else ""
    )
    if name.endswith(".py"):
        hint = f"name the module instead of its file: --suite {name.removesuffix('.py')}"
    where = f"no module of that name in {Path.cwd()} or on the import path"
    return f"--suite {name}: {where}" + (f"; {hint}" if hint else "")


def is_dotted_name(text: str) -> bool:
    """Whether it can be the name of a module, or of something in it.

    Example:
        >>> is_dotted_name("os.path"), is_dotted_name("../x"), is_dotted_name("")
        (True, False, False)
    """
    return all(part.isidentifier() for part in text.split("."))
