"""Finds a suite: a module with a function ``suite()``, in the working folder or the checkout."""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from traceback import extract_tb
from typing import Any

from tilesmith.bench.case import Operator, Suite
from tilesmith.bench.plan import DEFAULT_SUITE, PlanError, is_dotted_name
from tilesmith.lab.failures import one_line

CHECKOUT = Path(__file__).parents[3]


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
