"""The ways to run a program, by mode.

Modes: ``host`` (interpreter, native code, emitted Triton), ``build`` (the same, some compiled for a
GPU), ``cuda`` (Triton on a GPU), ``unlaunched`` (what that compiles, without a GPU), ``ptx`` (the
same, run by the PTX machine), ``interpret``
(exported modules in a process that has TRITON_INTERPRET set) and ``gradient`` (derived gradients of
smooth programs).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any, NamedTuple

import torch

from tests.fuzzing.exchanges import Exchange
from tests.fuzzing.gradients import gradient_problem
from tests.fuzzing.program import Program, walk
from tests.fuzzing.runs import GPU, Case, Runs, random_forms
from tests.fuzzing.threads import LARGE
from tests.fuzzing.variants import codes
from tilesmith.runtime.native.host_cpu import can_run, host_target
from tilesmith.targets import parse_target

GPU_MODES = ("cuda", "unlaunched", "ptx")
OLDER = ("cpu:avx2", "cpu:sse")
OLDER_SHARE = 4
"""One program in so many also runs as code for older CPUs."""
OTHER_SEED = 7_000_003
"""Keeps the second random config apart from those of other programs."""
GPU_CONFIGS = 3
"""For each family of shapes that share code; one more for each other form of the kernel."""
HOST_CONFIGS = 5
"""Random ones; each serves all shapes of a kernel that takes any."""
BUILD_SHARE = 6
"""One program in so many is compiled for a GPU, which takes longer than all else."""
TRACED_SHARE = 20
"""One seed in so many is also called inside of torch.compile."""
INTERPRETED_SHARE = 6
"""One shape in so many runs on the interpreter as a whole, and one tile by tile."""


class Way(NamedTuple):
    """A name, what finds a problem (its text, or nothing), and whether results are compared.

    Attributes:
        counts_as: another way with the same code: a shape is a case of one of them.
    """

    name: str
    find_problem: Callable[[], str]
    is_compared: bool = True
    counts_as: str = ""

    @property
    def backend(self) -> str:
        return self.name.split()[0]


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
    for chosen in _configs(runs, config, seed, case.program):
        yield Way(f"cpu {dict(chosen)}", lambda chosen=chosen: runs.compiled(chosen))
    if not is_first:
        return
    yield from older_ways(case, seed)
    configs = [None, runs.gpu_config(seed), *runs.gpu_forms(seed)]
    for name, chosen in ((str(dict(x)) if x else "default", x) for x in configs):
        yield Way(f"triton {name}", lambda chosen=chosen: runs.emitted(chosen), False)
        if build and seed % BUILD_SHARE == 0:
            find = lambda chosen=chosen: runs.cross_compiled(chosen)  # noqa: E731
            yield Way(f"cuda:90 {name}", find, False)


def _configs(runs: Runs, first: Any, seed: int, program: Program) -> list[Any]:
    """Random ones, each once; few where sizes of 0 and 1 make code of their own."""
    is_own = any(program.sizes[name] < 2 for name in program.free_sizes)
    others = [runs.random_config(seed + OTHER_SEED * n) for n in range(1, HOST_CONFIGS)]
    return list(dict.fromkeys([first] if is_own else [first, *others]))


def older_ways(case: Case, seed: int) -> Iterator[Way]:
    """Code for a CPU with less, now and then."""
    target = OLDER[seed // OLDER_SHARE % len(OLDER)]
    if seed % OLDER_SHARE == 0 and can_run(parse_target(target), host_target()):
        runs = Runs(case, target)
        yield Way(target, lambda: runs.compiled(runs.random_config(seed + 1)))


def gpu_ways(case: Case, seed: int, mode: str) -> Iterator[Way]:
    """What is checked on a GPU; shapes that share code have the same configs."""
    launches = mode == "cuda"
    runs = Runs(case, "cuda" if launches else GPU, is_launched=mode != "unlaunched")
    chip = "ptx" if mode == "ptx" else "cuda"
    random = Random(f"{seed}/{codes(case.program.sizes)}")
    # Of this shape: what fits smaller ones may take minutes to compile, and exceed all limits.
    spec = runs.own_spec()
    configs = [None, *(spec.random_config(random) for _ in range(1, GPU_CONFIGS))]
    for config in dict.fromkeys([*configs, *random_forms(spec, random)]):
        name = f"{gpu_backend(config, chip)} {config and dict(config)}"
        if config is None and launches and case.number % 2 == 1:
            # As users do; native code recognises the second call of these sizes.
            yield Way(CALLED, lambda: runs.called(case.kernel), counts_as=name)
            continue
        yield Way(name, lambda config=config: runs.compiled(config) if config else runs.default())


def gpu_backend(config: Any, chip: str = "cuda") -> str:
    """The GPU, with how programs are launched or the form that a config asks for."""
    kind = config and (config.get("structure") or config.get("pid_type"))
    return f"{chip}:{kind or 'default'}"


CALLED = "cuda:called"
DEFAULTS = (gpu_backend(None), gpu_backend(None, "ptx"), CALLED)
"""Backends of default configs, which must fit any GPU."""


def can_be_interpreted(program: Program) -> bool:
    """Whether Triton's interpreter can run it.

    That has no bf16, runs one program at a time and exchanges no floats.
    """
    text = program.source() + str([spec.dtype for spec in program.tensors])
    inside = walk(statement for loop in program.loops for statement in loop.body)
    swaps = [x for x in inside if isinstance(x, Exchange) and x.kind == "xchg"]
    is_known = not any(part in text for part in ("bfloat16", "hl.barrier", "float8"))
    return is_known and not any(x.value.dtype.is_floating_point for x in swaps)


def interpreted_ways(case: Case, seed: int) -> Iterator[Way]:
    """What is checked under Triton's interpreter."""
    if not can_be_interpreted(case.program):
        return
    runs = Runs(case)
    config = runs.gpu_config(seed)
    if any(placed.view.data_ptr() % 16 for placed in runs.arguments):
        # Descriptors need aligned tensors: launchers see to that, exported modules do not.
        config = config.updated(indexing="pointer")
    for chosen in (None, config, *runs.gpu_forms(seed)):
        name = f"exported {dict(chosen) if chosen else 'default'}"
        yield Way(name, lambda chosen=chosen: runs.exported(chosen))


def gradient_ways(case: Case) -> Iterator[Way]:
    """Derived gradients, with the default config."""

    def find_problem() -> str:
        return gradient_problem(case.program, case.arguments, case.kernel)

    yield Way("gradient", find_problem)


def ways(case: Case, seed: int, mode: str) -> Iterator[Way]:
    """All ways of a mode."""
    if mode in GPU_MODES:
        return gpu_ways(case, seed, mode)
    if mode == "interpret":
        return interpreted_ways(case, seed)
    if mode == "gradient":
        return gradient_ways(case)
    return host_ways(case, seed, build=mode == "build")
