"""One program with its arguments, run in one way after the other."""

from __future__ import annotations

import linecache
import tempfile
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any, NamedTuple

import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.fuzzing.exported_module import import_text
from tests.fuzzing.layouts import Placed, bits_of, contents, is_untouched
from tests.fuzzing.oracle import expected, find_difference, make_arguments, shared
from tests.fuzzing.program import Program, UndecidedError
from tests.fuzzing.tracked import Tracked
from tests.fuzzing.variants import codes
from tilesmith.artifacts import Artifact
from tilesmith.backends.triton.build import compile_artifact
from tilesmith.exc import ReduceIdentityNotGiven
from tilesmith.jit.bound_kernel import BoundKernel
from tilesmith.jit.runners import REFERENCE
from tilesmith.targets import parse_target

GPU = "cuda:90"
MOST_SPECS = 16
_specs: dict[tuple[str, tuple[int, ...]], Any] = {}
"""Spaces of configs by kernel and kind of sizes: a kernel is traced for each."""


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


class Runs:
    """One case bound to one target, run in several ways."""

    def __init__(self, case: Case, target: str = "", *, is_launched: bool = True) -> None:
        self.program, self.arguments, self.wanted, kernel, _ = case
        self.device = "cuda" if target == "cuda" else "cpu"
        self._is_launched = is_launched
        """Whether code is more than compiled: if not, any problem is an error."""
        self._target = {} if target in ("", "cuda") else {"target": target}
        self.bound: BoundKernel = kernel.bind(self.given(self._fresh()), **self._target)

    def _fresh(self) -> list[Placed]:
        return self._copies(self.arguments, self.device)

    def _copies(self, arguments: Sequence[Placed], device: str) -> list[Placed]:
        copies: dict[str, Placed] = {}
        for spec, placed in zip(self.program.arguments, arguments):
            other = copies.get(spec.shares)
            copies[spec.name] = shared(other, spec) if other else placed.copy(device)
        return list(copies.values())

    def given(self, placed: list[Placed]) -> tuple[Any, ...]:
        """All arguments of a call."""
        scalars = (scalar.value for scalar in self.program.scalars)
        return (*(x.view for x in placed), *scalars)

    def problem(self, call: Callable[..., Any]) -> str:
        """What is wrong with what a call computes, or nothing."""
        placed = self._fresh()
        returned = call(*self.given(placed))
        if not self._is_launched:
            return ""
        if self.device != "cpu":  # all at once: each part of it would wait for the device again
            placed = self._copies(placed, "cpu")
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

    def default(self) -> str:
        """The problem with the default config, that of the first sizes the kernel was bound to.

        Where it is too large for other sizes, which have another one, calls may replace it.
        """
        is_own = self.own_spec().default_config() == self.bound.config_spec.default_config()
        if not is_own:  # it may be refused where it would take minutes to compile
            return self.problem(self.bound)
        return self.compiled(None)

    def called(self, kernel: Any) -> str:
        """The problem of plain calls; the first finds the code, the next goes a shorter way."""
        return self.problem(kernel) or self.problem(kernel)

    def interpreted(self, config: Any) -> str:
        """The problem of the reference interpreter with tiles of a config (None: whole)."""
        executable = self.bound._executables.get(config, REFERENCE)
        return self.problem(executable.call)

    def random_config(self, seed: int) -> Any:
        """A config of the bound target."""
        return self.bound.config_spec.random_config(Random(seed))

    def gpu_config(self, seed: int) -> Any:
        """A config for a GPU, whatever the bound target."""
        return self._gpu_spec().random_config(Random(seed))

    def gpu_forms(self, seed: int) -> list[Any]:
        """A config of each other form that the kernel has on a GPU."""
        return random_forms(self._gpu_spec(), Random(seed))

    def own_spec(self) -> Any:
        """The space of configs for these sizes, whatever sizes the kernel was called with first."""
        key = (self.program.source(), codes(self.program.sizes))
        if key not in _specs:
            if len(_specs) >= MOST_SPECS:
                _specs.clear()
            bound = make_kernel(self.program).bind(self.given(self._fresh()), **self._target)
            _specs[key] = bound.config_spec
        return _specs[key]

    def _gpu_spec(self) -> Any:
        return self.bound.specialization.spec(parse_target(GPU))

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
        if "_wait_for_arrivals(" in source or "gluon" in source:
            # It runs one program at a time: one that waits for others would never end.
            raise UndecidedError
        with tempfile.TemporaryDirectory() as folder:
            return self.problem(import_text(source, folder).kernel)


def random_forms(spec: Any, random: Random) -> list[Any]:
    """A config of each form of a kernel but the plain one."""
    others = [(name, form) for name, form in spec.forms().items() if name]
    return [form.random_config(random).updated(structure=name) for name, form in others]


def _same(left: torch.Tensor, right: torch.Tensor) -> bool:
    return bool(torch.equal(bits_of(left), bits_of(right)))
