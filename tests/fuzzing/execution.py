"""Runs a program in many ways and compares each with the oracle.

Modes: ``host`` (interpreter, native code, emitted Triton), ``cuda`` (Triton on a GPU) and
``interpret`` (exported modules in a process that has TRITON_INTERPRET set).
"""

from __future__ import annotations

import linecache
import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.fuzzing.exported_module import import_text
from tests.fuzzing.layouts import Placed, contents, is_untouched
from tests.fuzzing.oracle import expected, find_difference, make_arguments
from tests.fuzzing.program import Program, UndecidedError
from tests.fuzzing.tracked import Tracked
from tilesmith.artifacts import Artifact
from tilesmith.backends.triton.build import compile_artifact
from tilesmith.exc import InvalidConfig, ReduceIdentityNotGiven
from tilesmith.jit.bound_kernel import BoundKernel
from tilesmith.jit.runners import REFERENCE
from tilesmith.runtime.native.host_cpu import can_run, host_target
from tilesmith.targets import parse_target

GPU = "cuda:90"
OLDER = ("cpu:avx2", "cpu:sse")
OLDER_SHARE = 4
"""One program in so many also runs as code for older CPUs."""


@dataclass(frozen=True)
class Failure:
    """A way to run a program that went wrong."""

    way: str
    problem: str


Way = tuple[str, Callable[[], str]]
"""A name, and what finds a problem: its text, or nothing."""


def make_kernel(program: Program) -> Any:
    """The kernel, its source known to ``inspect``."""
    text = program.source()
    file = f"<random program {abs(hash(text)):x}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    names: dict[str, Any] = {"torch": torch, "hl": hl, "__name__": "random_program"}
    exec(compile(text, file, "exec"), names)
    silent = [ReduceIdentityNotGiven]
    # The variable is for exported modules here; it must not take native code out.
    return helion.kernel(
        names["kernel"],
        static_shapes=program.static_shapes,
        ignore_warnings=silent,
        triton_interpret=False,
    )


class Runs:
    """One program bound to one target, run in several ways."""

    def __init__(self, program: Program, wanted: list[Tracked], target: str = "") -> None:
        self.program = program
        self.wanted = wanted
        self.device = "cuda" if target == "cuda" else "cpu"
        self.arguments = make_arguments(program)
        given = self.given(self._fresh())
        kernel = make_kernel(program)
        is_plain = target in ("", "cuda")
        self.bound: BoundKernel = (
            kernel.bind(given) if is_plain else kernel.bind(given, target=target)
        )

    def _fresh(self) -> list[Placed]:
        return [placed.copy(self.device) for placed in self.arguments]

    def given(self, placed: list[Placed]) -> tuple[Any, ...]:
        """All arguments of a call."""
        scalars = (scalar.value for scalar in self.program.scalars)
        return (*(x.view for x in placed), *scalars)

    def problem(self, call: Callable[..., Any]) -> str:
        """What is wrong with what a call computes, or nothing."""
        placed = self._fresh()
        returned = call(*self.given(placed))
        names = [spec.name for spec in self.program.arguments]
        outputs = [
            placed[names.index(spec.name)].view
            for spec in self.program.outputs
            if not spec.is_allocated
        ]
        difference = find_difference([*outputs, *returned], self.wanted)
        if difference is not None:
            return f"output {self.program.outputs[difference.output].name}: {difference.text}"
        return self._stray_write(placed)

    def _stray_write(self, placed: list[Placed]) -> str:
        for spec, before, after in zip(self.program.arguments, self.arguments, placed):
            if not is_untouched(before, after):
                return f"memory around {spec.name} was written"
            if not spec.is_output and not _same(before.memory, after.memory.cpu()):
                return f"input {spec.name} was written"
        return ""

    def compiled(self, config: Any) -> str:
        """The problem of compiled code."""
        return self.problem(self.bound.compile_config(config))

    def interpreted(self, config: Any) -> str:
        """The problem of the reference interpreter with tiles of a config (None: whole)."""
        executable = self.bound._executables.get(config, REFERENCE)
        return self.problem(executable.call)

    def random_config(self, seed: int) -> Any:
        """A config of the bound target."""
        return self.bound.config_spec.random_config(Random(seed))

    def gpu_config(self, seed: int) -> Any:
        """A config for a GPU, whatever the bound target."""
        spec = self.bound.specialization.spec(parse_target(GPU))
        return spec.random_config(Random(seed))

    def emitted(self, config: Any) -> str:
        """Make Triton code; there is no problem unless that fails."""
        self.bound.to_triton_code(config, target=GPU)
        return ""

    def cross_compiled(self, config: Any) -> str:
        """Compile Triton code without a GPU."""
        artifact = self.bound.to_artifact(config, target=GPU)
        compile_artifact(artifact, scalars=self._scalars(artifact))
        return ""

    def _scalars(self, artifact: Artifact) -> dict[str, Any]:
        """The runtime numbers of a launch."""
        program = self.program
        names: dict[str, Any] = {
            **program.sizes,
            **{scalar.name: scalar.value for scalar in program.scalars},
            **{spec.name: contents(spec, program.sizes, "") for spec in program.tensors},
            **{spec.name: x.view for spec, x in zip(program.arguments, self.arguments)},
        }
        numbers = (p for p in artifact.parameters if not p.is_tensor)
        return {p.name: eval(p.source, {"torch": torch}, names) for p in numbers}

    def exported(self, config: Any) -> str:
        """The problem of the exported module, run under Triton's interpreter."""
        source = self.bound.to_triton_code(config, target=GPU)
        if "_wait_for_arrivals(" in source:
            # It runs one program at a time: one that waits for others would never end.
            return ""
        with tempfile.TemporaryDirectory() as folder:
            return self.problem(import_text(source, folder).kernel)


def _same(left: torch.Tensor, right: torch.Tensor) -> bool:
    return bool(torch.equal(left.nan_to_num(12345.0), right.nan_to_num(12345.0)))


def host_ways(program: Program, wanted: list[Tracked], seed: int, *, build: bool) -> Iterator[Way]:
    """What is checked on a machine without a GPU."""
    runs = Runs(program, wanted)
    config = runs.random_config(seed)
    normal = runs.bound.config_spec.normalize(config)
    yield "interpreter", lambda: runs.interpreted(None)
    yield f"interpreter {dict(config)}", lambda: runs.interpreted(normal)
    yield "cpu", lambda: runs.compiled(None)
    yield f"cpu {dict(config)}", lambda: runs.compiled(config)
    yield from older_ways(program, wanted, seed)
    gpu_config = runs.gpu_config(seed)
    for name, chosen in (("default", None), (str(dict(gpu_config)), gpu_config)):
        yield f"triton {name}", lambda chosen=chosen: runs.emitted(chosen)
        if build:
            yield f"cuda:90 {name}", lambda chosen=chosen: runs.cross_compiled(chosen)


def older_ways(program: Program, wanted: list[Tracked], seed: int) -> Iterator[Way]:
    """Code for a CPU with less, now and then."""
    target = OLDER[seed // OLDER_SHARE % len(OLDER)]
    if seed % OLDER_SHARE == 0 and can_run(parse_target(target), host_target()):
        runs = Runs(program, wanted, target)
        yield target, lambda: runs.compiled(runs.random_config(seed + 1))


def gpu_ways(program: Program, wanted: list[Tracked], seed: int) -> Iterator[Way]:
    """What is checked on a GPU."""
    runs = Runs(program, wanted, "cuda")
    for number in range(2):
        config = runs.random_config(seed + number) if number else None
        yield f"cuda {config and dict(config)}", lambda config=config: runs.compiled(config)


def interpreted_ways(program: Program, wanted: list[Tracked], seed: int) -> Iterator[Way]:
    """What is checked under Triton's interpreter: it has no bf16 and runs one program at a time."""
    text = program.source() + str([spec.dtype for spec in program.tensors])
    if "bfloat16" in text or "hl.barrier" in text:
        return
    runs = Runs(program, wanted)
    config = runs.gpu_config(seed)
    if any(placed.view.data_ptr() % 16 for placed in runs.arguments):
        # Descriptors need aligned tensors: launchers see to that, exported modules do not.
        config = config.updated(indexing="pointer")
    yield "exported default", lambda: runs.exported(None)
    yield f"exported {dict(config)}", lambda: runs.exported(config)


def ways(program: Program, wanted: list[Tracked], seed: int, mode: str) -> Iterator[Way]:
    """All ways of a mode."""
    if mode == "cuda":
        return gpu_ways(program, wanted, seed)
    if mode == "interpret":
        return interpreted_ways(program, wanted, seed)
    return host_ways(program, wanted, seed, build=mode == "build")


@dataclass(frozen=True)
class Verdict:
    """What came of a program: the first way that went wrong, and those that were refused."""

    failure: Failure | None
    refused: tuple[Failure, ...] = ()


def judge(program: Program, seed: int, mode: str) -> Verdict:
    """Run a program in all ways up to one that goes wrong; UndecidedError if nothing is known."""
    wanted = expected(program)
    refused: list[Failure] = []
    way = "bind"
    try:
        for way, find_problem in ways(program, wanted, seed, mode):
            try:
                problem = find_problem()
            except InvalidConfig as error:
                refused.append(_refusal(way, error))
                continue
            if problem:
                return Verdict(Failure(way, problem), tuple(refused))
    except InvalidConfig as error:
        # No config at all is small enough: what comes after this way cannot be run.
        refused.append(_refusal(f"after {way}", error))
    except Exception as error:
        return Verdict(Failure(way, f"{type(error).__name__}: {error}"), tuple(refused))
    wrong = next((failure for failure in refused if not is_too_large(failure.problem)), None)
    return Verdict(wrong, tuple(refused))


def _refusal(way: str, error: InvalidConfig) -> Failure:
    return Failure(way, f"{type(error).__name__}: {error}")


def is_too_large(problem: str) -> bool:
    """Whether a GPU has no room for a tile, as a refusal must say with both sizes."""
    found = re.search(r"would hold (\d+) elements.*at most (\d+) elements", problem, re.DOTALL)
    return found is not None and int(found[1]) > int(found[2])


def first_failure(program: Program, seed: int, mode: str) -> Failure | None:
    """The first way to run a program that goes wrong."""
    return judge(program, seed, mode).failure


def is_same_failure(found: Failure | None, wanted: Failure) -> bool:
    """Whether a program fails alike: in the same backend, by results or by the same error."""
    if found is None or found.way.split()[0] != wanted.way.split()[0]:
        return False
    kinds = [failure.problem.split(":")[0].split()[0] for failure in (found, wanted)]
    return kinds[0] == kinds[1]


__all__ = ["Failure", "Runs", "UndecidedError", "first_failure", "is_same_failure", "judge", "ways"]
