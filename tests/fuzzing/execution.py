"""Runs a program in many ways and compares each with the oracle.

Modes: ``host`` (interpreter, native code, emitted Triton), ``build`` (the same, compiled for a
GPU), ``cuda`` (Triton on a GPU), ``interpret`` (exported modules in a process that has
TRITON_INTERPRET set) and ``gradient`` (derived gradients of smooth programs).
"""

from __future__ import annotations

import linecache
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.fuzzing.exported_module import import_text
from tests.fuzzing.gradients import gradient_problem
from tests.fuzzing.layouts import Placed, bits_of, contents, is_untouched
from tests.fuzzing.oracle import expected, find_difference, make_arguments, shared
from tests.fuzzing.program import Program, UndecidedError
from tests.fuzzing.threads import LARGE, threads_for
from tests.fuzzing.tracked import Tracked
from tilesmith.artifacts import Artifact
from tilesmith.backends.triton.build import compile_artifact
from tilesmith.exc import AutodiffNotSupported, InvalidConfig, ReduceIdentityNotGiven
from tilesmith.jit.bound_kernel import BoundKernel
from tilesmith.jit.runners import REFERENCE
from tilesmith.runtime.native.host_cpu import can_run, host_target
from tilesmith.targets import parse_target

GPU = "cuda:90"
OLDER = ("cpu:avx2", "cpu:sse")
OLDER_SHARE = 4
"""One program in so many also runs as code for older CPUs."""
OTHER_SEED = 7_000_003
"""Keeps the second random config apart from those of other programs."""
GPU_CONFIGS = 3
TRACED_SHARE = 20
"""One seed in so many is also called inside of torch.compile."""
INTERPRETED_SHARE = 6
"""One shape in so many runs on the interpreter as a whole, and one tile by tile."""


@dataclass(frozen=True)
class Failure:
    """A way to run a program that went wrong, and the program with the shapes and data of that."""

    way: str
    problem: str
    program: Program | None = None


class Way(NamedTuple):
    """A name, what finds a problem (its text, or nothing), and whether results are compared."""

    name: str
    find_problem: Callable[[], str]
    is_compared: bool = True

    @property
    def backend(self) -> str:
        return self.name.split()[0]


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


class Case(NamedTuple):
    """A program with its arguments and results, and the kernel that all of its family share."""

    program: Program
    arguments: list[Placed]
    wanted: list[Tracked]
    kernel: Any
    number: int
    """Which member of the family it is."""


class Runs:
    """One case bound to one target, run in several ways."""

    def __init__(self, case: Case, target: str = "") -> None:
        self.program, self.arguments, self.wanted, kernel, _ = case
        self.device = "cuda" if target == "cuda" else "cpu"
        given = self.given(self._fresh())
        is_plain = target in ("", "cuda")
        self.bound: BoundKernel = (
            kernel.bind(given) if is_plain else kernel.bind(given, target=target)
        )

    def _fresh(self) -> list[Placed]:
        copies: dict[str, Placed] = {}
        for spec, placed in zip(self.program.arguments, self.arguments):
            other = copies.get(spec.shares)
            copies[spec.name] = shared(other, spec) if other else placed.copy(self.device)
        return list(copies.values())

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
            if spec.shares:
                continue
            if spec.is_output and not is_untouched(before, after):
                return f"memory around {spec.name} was written"
            if not spec.is_output and not _same(before.memory, after.memory.cpu()):
                return f"input {spec.name} or memory around it was written"
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
    return bool(torch.equal(bits_of(left), bits_of(right)))


def host_ways(case: Case, seed: int, *, build: bool) -> Iterator[Way]:
    """What is checked on a machine without a GPU."""
    runs = Runs(case)
    config = runs.random_config(seed)
    normal = runs.bound.config_spec.normalize(config)
    is_first = not case.number
    is_large = max(case.program.sizes.values()) > LARGE  # tile by tile it would take long
    if is_first or is_large or case.number % INTERPRETED_SHARE == 1:
        yield Way("interpreter", lambda: runs.interpreted(None))
    if is_first or (case.number % INTERPRETED_SHARE == 2 and not is_large):
        yield Way(f"interpreter {dict(config)}", lambda: runs.interpreted(normal))
    if is_first and seed % TRACED_SHARE == TRACED_SHARE - 1:
        traced = torch.compile(lambda *x: case.kernel(*x), backend="eager")  # noqa: PLW0108
        yield Way("torch.compile", lambda: runs.problem(traced))
    # Every second shape is called as users do: the kernel finds its code by the arguments.
    is_called = case.number % 2 == 1
    yield Way("cpu", lambda: runs.problem(case.kernel) if is_called else runs.compiled(None))
    yield Way(f"cpu {dict(config)}", lambda: runs.compiled(config))
    if not is_first:
        other = runs.random_config(seed + OTHER_SEED)
        yield Way(f"cpu {dict(other)}", lambda: runs.compiled(other))
        return
    yield from older_ways(case, seed)
    gpu_config = runs.gpu_config(seed)
    for name, chosen in (("default", None), (str(dict(gpu_config)), gpu_config)):
        yield Way(f"triton {name}", lambda chosen=chosen: runs.emitted(chosen), False)
        if build:
            find = lambda chosen=chosen: runs.cross_compiled(chosen)  # noqa: E731
            yield Way(f"cuda:90 {name}", find, False)


def older_ways(case: Case, seed: int) -> Iterator[Way]:
    """Code for a CPU with less, now and then."""
    target = OLDER[seed // OLDER_SHARE % len(OLDER)]
    if seed % OLDER_SHARE == 0 and can_run(parse_target(target), host_target()):
        runs = Runs(case, target)
        yield Way(target, lambda: runs.compiled(runs.random_config(seed + 1)))


def gpu_ways(case: Case, seed: int) -> Iterator[Way]:
    """What is checked on a GPU."""
    runs = Runs(case, "cuda")
    for number in range(GPU_CONFIGS):
        config = runs.random_config(seed + number) if number else None
        name = f"cuda {config and dict(config)}"
        yield Way(name, lambda config=config: runs.compiled(config))


def interpreted_ways(case: Case, seed: int) -> Iterator[Way]:
    """What is checked under Triton's interpreter: it has no bf16 and runs one program at a time."""
    text = case.program.source() + str([spec.dtype for spec in case.program.tensors])
    if "bfloat16" in text or "hl.barrier" in text or "float8" in text:
        return
    runs = Runs(case)
    config = runs.gpu_config(seed)
    if any(placed.view.data_ptr() % 16 for placed in runs.arguments):
        # Descriptors need aligned tensors: launchers see to that, exported modules do not.
        config = config.updated(indexing="pointer")
    yield Way("exported default", lambda: runs.exported(None))
    yield Way(f"exported {dict(config)}", lambda: runs.exported(config))


def gradient_ways(case: Case) -> Iterator[Way]:
    """Derived gradients, with the default config."""

    def find_problem() -> str:
        return gradient_problem(case.program, case.arguments, case.kernel)

    yield Way("gradient", find_problem)


def ways(case: Case, seed: int, mode: str) -> Iterator[Way]:
    """All ways of a mode."""
    if mode == "cuda":
        return gpu_ways(case, seed)
    if mode == "interpret":
        return interpreted_ways(case, seed)
    if mode == "gradient":
        return gradient_ways(case)
    return host_ways(case, seed, build=mode == "build")


def cases(members: Sequence[Program]) -> Iterator[Case]:
    """Members of a family with what they must compute, those left out that nothing is known of."""
    kernel = make_kernel(members[0])
    is_any = False
    for number, program in enumerate(members):
        arguments = make_arguments(program)
        try:
            wanted = expected(program, arguments)
        except UndecidedError:
            continue
        is_any = True
        yield Case(program, arguments, wanted, kernel, number)
    if not is_any:
        raise UndecidedError


@dataclass(frozen=True)
class Verdict:
    """What came of a program: the first way that went wrong, and those that were refused.

    Attributes:
        cases: how often results were compared, by backend: one kernel, shape and config each.
    """

    failure: Failure | None
    refused: tuple[Failure, ...] = ()
    cases: Counter[str] = field(default_factory=Counter[str])


def judge(members: Sequence[Program], seed: int, mode: str) -> Verdict:
    """Run programs that share a kernel in all ways up to one that goes wrong.

    Raises UndecidedError if nothing is known of any.
    """
    refused: list[Failure] = []
    compared: set[tuple[str, ...]] = set()
    for case in cases(members):
        with threads_for(case.program, seed):
            failure = _judge_case(case, seed, mode, refused, compared)
        if failure is not None:
            return Verdict(failure, tuple(refused), Counter(backend for backend, *_ in compared))
    counts = Counter(backend for backend, *_ in compared)
    wrong = next((failure for failure in refused if not is_too_large(failure.problem)), None)
    return Verdict(wrong, tuple(refused), counts)


def _judge_case(
    case: Case, seed: int, mode: str, refused: list[Failure], compared: set[tuple[str, ...]]
) -> Failure | None:
    name = "bind"
    program = case.program
    try:
        for way in ways(case, seed, mode):
            name = way.name
            try:
                problem = way.find_problem()
            except UndecidedError:
                continue
            except AutodiffNotSupported:
                continue  # says so and gives no gradient
            except InvalidConfig as error:
                refused.append(_refusal(name, error, program))
                continue
            if problem:
                return Failure(name, problem, program)
            if way.is_compared:  # the same shape with other data is no other case
                compared.add((way.backend, way.name, str(sorted(program.sizes.items()))))
    except InvalidConfig as error:
        # No config at all is small enough: what comes after this way cannot be run.
        refused.append(_refusal(f"after {name}", error, program))
    except Exception as error:
        return Failure(name, f"{type(error).__name__}: {error}", program)
    return None


def _refusal(way: str, error: InvalidConfig, program: Program) -> Failure:
    return Failure(way, f"{type(error).__name__}: {error}", program)


def is_too_large(problem: str) -> bool:
    """Whether a GPU has no room for a tile, as a refusal must say with both sizes."""
    found = re.search(r"would hold (\d+) elements.*at most (\d+) elements", problem, re.DOTALL)
    return found is not None and int(found[1]) > int(found[2])


def first_failure(members: Sequence[Program], seed: int, mode: str) -> Failure | None:
    """The first way to run programs that goes wrong."""
    return judge(members, seed, mode).failure


def is_same_failure(found: Failure | None, wanted: Failure) -> bool:
    """Whether a program fails alike: in the same backend, by results or by the same error."""
    if found is None or found.way.split()[0] != wanted.way.split()[0]:
        return False
    kinds = [failure.problem.split(":")[0].split()[0] for failure in (found, wanted)]
    return kinds[0] == kinds[1]
