"""Code for one set of values at a launch point: a binary, and what hands the values to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilesmith.artifacts import Artifact, LaunchParameter
from tilesmith.compiler.earlier_launches import in_one_launch
from tilesmith.compiler.launch_guards.checks import (
    REQUIRE,
    HostNames,
    LaunchChecks,
    launch_checks,
)
from tilesmith.compiler.launch_guards.launch_sizes import inlined
from tilesmith.compiler.launch_guards.quick import Known, guarded_lines, renamed
from tilesmith.compiler.module_source import default_functions, literal
from tilesmith.compiler.specialization import Variant
from tilesmith.export.binaries import Binary, build, cannot
from tilesmith.jit.bound_kernel import BoundKernel
from tilesmith.runtime.device import resolve_target
from tilesmith.schedule.config import Config
from tilesmith.store.lookup import describe_arguments, find_stored_config, stored_winner
from tilesmith.targets import Target

LAUNCHER = "_launcher"
SOURCE_VALUES = "_values"
"""How the name of a function ends that gives the arguments of a source's ``launch``."""
CHECKS = "_checks"
"""How the name of a function ends that makes all checks."""
FOUND = "found by a search"
"""Where a config comes from that has a time."""
_DEVICE = "_device"
"""The variable with the number of a launch's GPU."""
_ALIGNED = 16
"""Bytes. Code for a GPU is compiled for tensors that start at a multiple."""


def parse_targets(text: str) -> list[Target]:
    """The targets of a list such as ``cpu,cuda:90``; raises ValueError for an unknown one."""
    return [resolve_target(name.strip()) for name in text.split(",")]


@dataclass(frozen=True)
class Code:
    """Code for one set of values on one target, and the function that hands values to it."""

    name: str
    binary: Binary
    reader: Reader
    """Writes the function."""
    checks: LaunchChecks
    readable: tuple[str, str]
    """A file for readers: how its name ends, and its text."""
    entry: Mapping[str, Any]
    """What the manifest says about it."""
    variant: Variant
    config: Config

    @property
    def is_native(self) -> bool:
        """Whether it is for a CPU, where nothing could compile its source."""
        return self.entry["kind"] == "cpu"

    @property
    def shapes(self) -> dict[str, tuple[Any, ...]]:
        """Sizes that are constants of the code, by where their tensors come from."""
        tensors = self.variant.trace.tensors.items()
        is_fixed = {n: all(isinstance(size, int) for size in kind.shape) for n, kind in tensors}
        return {name: kind.shape for name, kind in tensors if is_fixed[name]}


@dataclass(frozen=True)
class Wanted:
    """What code is made for."""

    target: Target
    config: Config | None
    """None: what a search has found, or the kernel's own."""
    variant: Variant | None = None
    """None: the trace that the config leads to."""


def make_code(bound: BoundKernel, args: tuple[Any, ...], wanted: Wanted, name: str) -> Code:
    """Compile a bound kernel for arguments like these."""
    definition, target = bound.definition, wanted.target
    complete = definition.arguments.complete(args)
    chosen_config, origin = _choose_config(bound, complete, wanted)
    measured = stored_winner(bound, complete) if origin == FOUND else None
    config = in_one_launch(bound.specialization.spec(target), chosen_config)
    variant = wanted.variant or bound.specialization.find(config)
    artifact = bound.specialization.artifact(config, target, variant)
    binary = build(artifact, variant.trace.observed)
    captured = definition.split.captured
    defaults = default_functions(definition.split)
    host = HostNames(set(captured), literal, set(definition.parameters), defaults)
    extra = list(_device_checks(artifact, binary))
    checks = launch_checks(artifact, variant.trace, host, extra)
    entry = {
        "name": name,
        "target": str(target),
        "arguments": describe_arguments(definition.parameters, complete),
        "config": dict(config),
        "config_from": origin,
        "measured_ms": None if measured is None else measured.median_ms,
        "measured_on": None if measured is None else measured.key.device,
        "parameters": [[p.name, p.dtype, p.source] for p in artifact.parameters],
        **binary.entry,
        "fixed": [*_fixed(artifact), *[0] * binary.num_extra],
    }
    checks = checks.renamed({definition.name, *captured})
    reader = Reader(name, captured, artifact, binary, checks)
    reader.refuse_constants()
    readable = (".txt", artifact.readable) if artifact.llvm else (".py", artifact.source)
    return Code(name, binary, reader, checks, readable, entry, variant, config)


def _choose_config(bound: BoundKernel, args: tuple[Any, ...], wanted: Wanted) -> tuple[Config, str]:
    """A config, and where it comes from."""
    if wanted.config is not None:
        return wanted.config, "given"
    stored = find_stored_config(bound, args, bound.configs)
    if stored is not None:
        return stored, FOUND
    is_given = bound.chosen is not None or bool(bound.configs)
    return bound.resolve(None, wanted.target), "of the kernel" if is_given else "the default"


@dataclass(frozen=True)
class Reader:
    """The text of a function from the values at a launch point to what code is given."""

    name: str
    captured: Sequence[str]
    artifact: Artifact
    binary: Binary
    checks: LaunchChecks

    def refuse_constants(self) -> None:
        """Raise where the values at a launch point do not say all that code is given."""
        sources = [parameter.source for parameter in self.artifact.parameters]
        if any("__constants__" in text for text in (*self.checks.statements, *sources)):
            problem = "its device code reads a tensor that is no argument"
            raise cannot(self.artifact.kernel_name, problem, "pass it")

    def text(self, compared: Sequence[str]) -> str:
        """All checks, the function, and for a GPU one that gives values as source takes them.

        Args:
            compared: tensors whose sizes are the key by which a later call finds the function.
        """
        listed = ", ".join(self.captured)
        parts = [[f"def _{self.name}{CHECKS}({listed}):", *_indented(self.checks.statements)]]
        if self.artifact.llvm:
            parts.append([f"_pack_{self.name} = struct.Struct({'=' + self.binary.layout!r}).pack"])
        parts.append([f"def _{self.name}(_run, {listed}):", *_indented(self._lines(compared))])
        if not self.artifact.llvm:
            values = ", ".join(parameter.source for parameter in self.artifact.parameters)
            parts.append([f"def _{self.name}{SOURCE_VALUES}({listed}):", f"    return ({values},)"])
        return "\n\n\n".join("\n".join(part) for part in parts)

    def _lines(self, compared: Sequence[str]) -> Iterator[str]:
        """Checks, then a call of ``run`` of the launcher's code. What it made lives until then."""
        parameters = self.artifact.parameters
        made = {p.name: p.source for p in parameters if p.is_made_at_launch}
        known = {} if self.artifact.llvm else dict(_held(self.artifact))
        yield from (f"{name} = {source}" for source, name in known.items())
        check = f"_{self.name}{CHECKS}({', '.join(self.captured)})"
        asked = Known(frozenset(compared), known)
        yield from guarded_lines(self.checks.statements, asked, check)
        yield from (f"_{key} = {source}" for key, source in made.items())
        values = [
            f"_{p.name}.data_ptr()" if p.name in made else p.source + ".data_ptr()" * p.is_tensor
            for p in parameters
        ]
        values = [renamed(value, known) for value in values]
        handed = self._cpu(values) if self.artifact.llvm else self._gpu(values)
        yield f"return _run({', '.join(handed)})"

    def _cpu(self, values: Sequence[str]) -> list[str]:
        return [f"_pack_{self.name}({', '.join(values)})", "torch.get_num_threads()"]

    def _gpu(self, values: Sequence[str]) -> list[str]:
        """Values, grid, device, and for each descriptor its address and sizes."""
        artifact = self.artifact
        addresses = dict(zip((p.name for p in artifact.parameters), values))
        listed, described = [*values, *_descriptor_values(artifact)], list[str]()
        for item in artifact.descriptions:
            sizes = [_inlined(size, artifact) for size in item.shape]
            described.append(f"({', '.join([addresses[item.tensor], *sizes])})")
        listed = listed[: len(listed) - len(_fixed(artifact))]
        known = dict(_held(artifact))
        grid = [renamed(_inlined(size, artifact), known) for size in artifact.grid]
        return [
            f"({', '.join(listed)},)", f"({', '.join([*grid, '1', '1'][:3])})", _DEVICE, *described
        ]  # fmt: skip


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"    {line}" for line in lines] or ["    pass"]


def _descriptor_values(artifact: Artifact) -> list[str]:
    """Sizes and strides, which code takes beside each descriptor."""
    return [
        text
        for item in artifact.descriptions
        for text in (*[_inlined(size, artifact) for size in item.shape], *map(str, item.strides))
    ]


def _fixed(artifact: Artifact) -> list[int]:
    """The last values that a GPU is given, if every call has the same there."""
    listed = [] if artifact.llvm else _descriptor_values(artifact)
    changing = [position for position, text in enumerate(listed, 1) if not text.isdigit()]
    return [int(text) for text in listed[max(changing, default=0) :]]


def _held(artifact: Artifact) -> Iterator[tuple[str, str]]:
    """What is asked of tensors once, since checks and the launch want it, and its variable."""
    yield f"{_first_tensor(artifact)}.get_device()", _DEVICE
    for position, parameter in enumerate(artifact.parameters):
        if parameter.is_tensor and not parameter.is_made_at_launch:
            yield f"{parameter.source}.data_ptr()", f"_at_{position}"


def _first_tensor(artifact: Artifact) -> str:
    return next(p.source for p in artifact.parameters if p.is_tensor and not p.is_made_at_launch)


def _device_checks(artifact: Artifact, binary: Binary) -> Iterator[str]:
    """What binaries ask for beyond the checks of saved modules, whose compiler sees the values."""
    tensors = [p.source for p in artifact.parameters if p.is_tensor and not p.is_made_at_launch]
    placed = [f"{name}.is_cpu" for name in tensors] if artifact.llvm else [f"{tensors[0]}.is_cuda"]
    wanted: list[tuple[str, object]] = [(place, True) for place in placed]
    if not artifact.llvm:
        described = {p.source for p in _described(artifact)}
        left = [f"{source}.data_ptr()" for source in tensors if source not in described]
        wanted += [(f"({' | '.join(left)}) % {_ALIGNED}", 0)] if left else []
    for name, text in artifact.constexprs:
        wanted.append((_inlined(text, artifact), binary.constants[name]))
    for asked, expected in wanted:
        if asked != repr(expected):
            yield f"{REQUIRE}({asked!r}, {asked}, {expected!r})"


def _described(artifact: Artifact) -> Iterator[LaunchParameter]:
    """Parameters with descriptors, whose alignment all modules check."""
    names = {item.tensor for item in artifact.descriptions}
    yield from (parameter for parameter in artifact.parameters if parameter.name in names)


def _inlined(text: str, artifact: Artifact) -> str:
    """An expression over parameters as one over the values at the launch point."""
    others = {"num_sms": f"{LAUNCHER}.num_sms({_first_tensor(artifact)}.get_device())"}
    others |= {name: f"{LAUNCHER}.{name}" for name in ("cdiv", "next_power_of_2")}
    return inlined(text, artifact, others)
