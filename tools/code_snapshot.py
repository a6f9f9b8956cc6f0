"""Writes the code that every example and conformance kernel becomes, to compare two commits.

``python -m tools.code_snapshot OUT [--jobs 2] [--only softmax]`` writes one file per kernel: for
two GPU targets and one CPU the Triton module, the loop nest and LLVM IR, with the default config,
the small config of the case and one random config. A refactoring leaves all of it as it was:

    git stash; python -m tools.code_snapshot before; git stash pop
    python -m tools.code_snapshot after; diff -r before after
"""

from __future__ import annotations

import argparse
import hashlib
import random
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from tests.conformance.all_cases import CASES
from tests.examples.cases import EXAMPLES
from tilesmith.jit.bound_kernel import BoundKernel
from tilesmith.schedule.config import Config

TARGETS = ("cuda:90", "hip:gfx942", "cpu:avx2")


def case_names() -> list[str]:
    """Names of all kernels, unique over both suites."""
    return [f"example-{c.name}" for c in EXAMPLES] + [f"conformance-{c.name}" for c in CASES]


def bind_case(name: str, target: str) -> tuple[BoundKernel, Config]:
    """The kernel of a case bound to its largest inputs, and its small config."""
    suite, _, plain = name.partition("-")
    if suite == "example":
        example = next(case for case in EXAMPLES if case.name == plain)
        args = example.make_inputs(example.sizes[-1], example.dtypes[0], "cpu")
        return example.kernel.bind(args, target=target), example.config
    case = next(case for case in CASES if case.name == plain)
    return case.kernel.bind(case.make_args(), target=target), case.config


def describe(bound: BoundKernel, config: Config, target: str) -> Iterator[str]:
    """The config as normalised, then the code in every form of the target."""
    yield f"config {dict(config)}"
    forms = ("loops", "llvm") if target.startswith("cpu") else ("triton",)
    for form in forms:
        yield show_code(bound, config, form, target)


def show_code(bound: BoundKernel, config: Config, form: str, target: str) -> str:
    """The code, or the error text, which must not change either."""
    try:
        return bound.to_code(config, form=form, target=target)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def snapshot(name: str, target: str) -> str:
    """All text of one kernel for one target."""
    try:
        bound, small = bind_case(name, target)
        default = bound.default_config()
        drawn = bound.config_spec.random_config(random.Random(name))
    except Exception as error:
        return f"{type(error).__name__}: {error}\n"
    configs = [default, small, drawn]
    parts = (part for config in configs for part in describe(bound, config, target))
    return "\n".join(parts) + "\n"


def write(name: str, out: Path) -> str:
    """Write the file of one kernel; gives a digest of it."""
    warnings.simplefilter("ignore")
    text = "".join(f"==== {target}\n{snapshot(name, target)}" for target in TARGETS)
    (out / f"{name}.txt").write_text(text)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def main() -> None:
    """Write all files, and one line per kernel."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    names = [name for name in case_names() if options.only in name]
    arguments: list[Any] = [options.out] * len(names)
    with ProcessPoolExecutor(options.jobs) as pool:
        for name, digest in zip(names, pool.map(write, names, arguments, chunksize=8)):
            print(digest, name)


if __name__ == "__main__":
    main()
