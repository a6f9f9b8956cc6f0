"""Finds a suite: a module with a function ``suite()``, in the working folder or the checkout."""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tilesmith.bench.case import Suite
from tilesmith.bench.plan import DEFAULT_SUITE, PlanError

CHECKOUT = Path(__file__).parents[3]


def load_suite(name: str = DEFAULT_SUITE) -> Suite:
    """The suite of a module; its folder becomes importable, for worker processes too."""
    add_import_folders()
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
    made = make()
    if not isinstance(made, Suite):
        raise PlanError(f"--suite {name}: suite() returned {type(made).__name__}, not a Suite")
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
    where = f"no module of that name in {Path.cwd()} or on the import path"
    return f"--suite {name}: {where}" + (f"; {hint}" if hint else "")
