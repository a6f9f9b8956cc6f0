"""Kernels of several launches: host code runs on each call and calls one kernel per stage.

A stage is an ordinary kernel, found, compiled and launched as any other, with the values that host
code has at that moment. Nothing is known of it before host code comes to it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from typing_extensions import override

import tilesmith.exc as errors
from tilesmith.compiler.specialization import Variant
from tilesmith.frontend.containers import ArgumentTemplate
from tilesmith.frontend.source.checks import (
    check_decorators,
    check_device_code,
    check_named_helpers,
)
from tilesmith.frontend.source.split_kernel import SplitKernel, split_kernel
from tilesmith.frontend.trace import same_random_numbers
from tilesmith.frontend.tracing.host_run import HostWatch, copy_tensors
from tilesmith.frontend.tracing.tracer import running_host
from tilesmith.jit.bound_kernel import BoundKernel
from tilesmith.jit.compiled_kernel import triton_module
from tilesmith.jit.definition import KernelDefinition
from tilesmith.jit.exploring import ExplorableStages
from tilesmith.jit.output.repro import with_caller
from tilesmith.jit.specialization_key import leaves
from tilesmith.jit.staging.configs import StageConfigs, StagedSpec, StageSession, joined, num_slots
from tilesmith.jit.staging.module import StageForm, staged_module, staged_text
from tilesmith.jit.staging.source import StagedSource, StageSource, find_stages
from tilesmith.schedule.config import Config
from tilesmith.settings import Settings
from tilesmith.targets import Target

ConfigLike = Config | Mapping[str, Any] | None
Launch = Callable[..., Any]
AnyTarget = str | Target | None
MakeKernel = Callable[[KernelDefinition], Any]
StageRecord = list[list[tuple[BoundKernel, Variant]]]
"""For each stage the kernels and traces that one run of host code has used, the newest first."""


class StageDefinition(KernelDefinition):
    """One stage of a kernel of several launches, as a kernel."""

    def __init__(self, whole: KernelDefinition, stage: StageSource) -> None:
        super().__init__(stage.function, (), whole.settings, whole.tuner, whole.given_backends)
        self._stage = stage
        self.warnings = whole.warnings
        constants = {whole.parameters[position] for position in whole.constexprs}
        names = enumerate(self.parameters)
        self.constexprs = frozenset(position for position, name in names if name in constants)

    @functools.cached_property
    @override
    def split(self) -> SplitKernel:
        """Host code, which only launches, and device code."""
        check_device_code(self._stage)
        check_named_helpers(self._stage)
        return split_kernel(self._stage)


def find_staged(definition: KernelDefinition, make_kernel: MakeKernel) -> StagedKernel | None:
    """What runs a kernel of several launches; None for one with a single launch, as stages have."""
    source = None if isinstance(definition, StageDefinition) else find_stages(definition.source)
    if source is None:
        return None
    check_decorators(source.source)
    return StagedKernel(definition, source, make_kernel)


class StagedKernel:
    """Runs one kernel of several launches."""

    def __init__(
        self, definition: KernelDefinition, source: StagedSource, make_kernel: MakeKernel
    ) -> None:
        self.definition = definition
        self.source = source
        self.kernels: Sequence[Any] = [
            make_kernel(StageDefinition(definition, stage)) for stage in source.stages
        ]
        self.configs = StageConfigs(source)
        self._host = source.host_function()
        self._launches = self.launches(self._configured) if definition.configs else self.kernels
        self.chosen: Config | None = None
        """What ``set_config`` or a search said; here it is for host code."""
        self._is_watched = False
        """Whether the torch calls of host code have been looked at, in a first run."""

    def launches(self, launch: Launch) -> Sequence[Launch]:
        """One function of captured values for each stage: ``launch``, told the stage's number."""
        return [functools.partial(launch, number) for number in range(len(self.kernels))]

    def _configured(self, number: int, *values: Any) -> None:
        """Launch a stage with its part of the configs that the decorator was given."""
        kernel = self.kernels[number]
        # How many block sizes a stage takes is known when it has been traced.
        if not kernel.definition.configs:
            self.configs.note(number, num_slots(kernel.bind(values).function))
            given = self.definition.configs
            split = [self.configs.of_stage(config, number) for config in given]
            kernel.definition.configs.extend(split)
        kernel(*values)

    def call(self, args: tuple[Any, ...]) -> Any:
        """Run it."""
        if self._is_watched:
            return self.run(args, self._launches)
        self._is_watched = True
        device = self.definition.find_device(args)
        with HostWatch(self.definition.warnings, self._host.__code__, device):
            return self.run(args, self._launches)

    def run(
        self, args: tuple[Any, ...], launches: Sequence[Launch], config: Config | None = None
    ) -> Any:
        """Run host code; it calls ``launches`` where its device loops stand."""
        return self._run_in(self._session(args, config), args, launches)

    def _session(self, args: tuple[Any, ...], config: Config | None) -> StageSession:
        chosen = config or self.chosen or next(iter(self.definition.configs), Config())
        device = self.definition.find_device(args)
        return StageSession(self.configs.host_blocks(chosen), chosen, device=device)

    def _run_in(
        self, session: StageSession, args: tuple[Any, ...], launches: Sequence[Launch]
    ) -> Any:
        with running_host(session):
            return self._host(SimpleNamespace(device=session.device, stages=launches), *args)

    def run_on_copies(
        self, args: tuple[Any, ...], launches: Sequence[Launch], config: Config | None = None
    ) -> StageSession:
        """Run it so that the arguments and random numbers are as before."""
        session = self._session(args, config)
        with same_random_numbers():
            self._run_in(session, copy_tensors(args), launches)
        return session

    def autotune_multi(
        self, arg_sets: Sequence[tuple[Any, ...]], budget: float | None, options: Mapping[str, Any]
    ) -> Config:
        """Search for the config of each stage that is best for its first launches with all sets."""
        runs = [self._first_launches(args) for args in arg_sets]
        found = [launches for launches, _ in runs]
        host = runs[0][1].host_part({}, runs[0][1].tunable_values) if runs else {}
        reached = [n for n in range(len(self.kernels)) if not found or any(n in f for f in found)]
        share = None if budget is None else budget / max(1, len(reached))
        tuned = {
            number: self.kernels[number].autotune_multi(
                [launches[number] for launches in found if number in launches],
                budget=share,
                **options,
            )
            for number in reached
        }
        return joined([tuned.get(number, Config()) for number in range(len(self.kernels))], host)

    def _first_launches(
        self, args: tuple[Any, ...]
    ) -> tuple[dict[int, tuple[Any, ...]], StageSession]:
        """What the first launch of each stage gets that host code comes to, and its session."""
        found: dict[int, tuple[Any, ...]] = {}

        def launch(number: int, *values: Any) -> None:
            if number not in found:
                found[number] = copy_tensors(values)  # later stages may change them
            self.kernels[number](*values)

        return found, self.run_on_copies(args, self.launches(launch))

    def record(
        self, args: tuple[Any, ...], target: AnyTarget, config: Config | None = None
    ) -> tuple[StageRecord, StageSession]:
        """What host code comes to: it may go on with what a stage has computed, so stages run."""
        record: StageRecord = [[] for _ in self.kernels]

        def launch(number: int, *values: Any) -> None:
            bound: BoundKernel = self.kernels[number].bind(values, target=target)
            # Numbers that differ from launch to launch become parameters.
            used = bound, bound.capture_launch(values).variant
            if used not in record[number]:
                record[number].insert(0, used)
            self._launches[number](*values)

        return record, self.run_on_copies(args, self.launches(launch), config)


class BoundStages(ExplorableStages):
    """Each stage bound to the values that host code has for it, with these arguments.

    Stages that host code does not come to are not compiled and have no code.
    """

    def __init__(
        self, staged: StagedKernel, args: tuple[Any, ...], target: AnyTarget, kernel: Any = None
    ) -> None:
        self.kernel = kernel
        """The ``Kernel`` that was bound."""
        self._kernel = staged
        self._record, self._session = staged.record(args, target)
        self._template = ArgumentTemplate(args)
        self._device_source = find_device_source(staged.definition.parameters, args)
        self._found = [list(dict.fromkeys(b for b, _ in used[::-1])) for used in self._record]
        """For each stage its kernels, in the order of their first launches."""
        self._target = target
        self.device: torch.device = self._session.device
        self.definition = staged.definition
        for number, found in enumerate(self._found):
            if found:
                staged.configs.note(number, num_slots(found[0].function))

    @property
    def settings(self) -> Settings:
        """The kernel's settings."""
        return self.definition.settings

    @property
    def configs(self) -> list[Config]:
        """Configs given with the decorator."""
        return self.definition.configs

    @override
    def __repr__(self) -> str:
        listed = "".join(f"\n  {bound!r}" for bound in self.stages if bound is not None)
        return f"<bound kernel {self.definition.name} of {len(self.stages)} launches:{listed}>"

    @property
    @override
    def stages(self) -> list[BoundKernel | None]:
        """The bound kernel of each stage; None for one that host code does not come to."""
        return [found[0] if found else None for found in self._found]

    @property
    def env(self) -> BoundStages:
        """What it was compiled for (``device``, ``settings``, ``config_spec``): itself knows."""
        return self

    @property
    def config_spec(self) -> StagedSpec:
        """What a Config of all stages may contain."""
        specs = [bound.config_spec if bound else None for bound in self.stages]
        return StagedSpec(specs, self._kernel.configs, self._session)

    def default_config(self) -> Config:
        """A sensible config of every stage."""
        return self.config_spec.default_config()

    @override
    def split(self, config: ConfigLike, number: int) -> Config | None:
        """A stage's part of a config; None: what the stage itself chooses."""
        part = self._kernel.configs.of_stage(self._whole(config), number)
        return part if len(part) else None

    def _whole(self, config: ConfigLike) -> Config:
        chosen = config if config is not None else next(iter(self.configs), Config())
        return chosen if isinstance(chosen, Config) else Config.from_dict(chosen)

    def to_triton_code(
        self,
        config: ConfigLike = None,
        *,
        target: str | Target | None = None,
        emit_repro_caller: bool = False,
    ) -> str:
        """One Triton module: the code of every stage, and host code that calls them."""
        whole = self._whole(config)
        record, session = self._record, self._session
        if session.is_used and config is not None:
            # Host code may hand other numbers to its stages under another config.
            record, session = self._kernel.record(self._template.materialise(), self._target, whole)
        shown = target or self._target
        forms = [
            [
                StageForm(triton_module(b, self.split(config, number), shown, v), v.trace)
                for b, v in used
            ]
            for number, used in enumerate(record)
        ]
        text = staged_module(self._kernel.source, forms, session, self._device_source)
        args = self._template.materialise() if emit_repro_caller else ()
        return with_caller(text, self.definition, args) if emit_repro_caller else text

    def to_code(
        self,
        config: ConfigLike = None,
        *,
        form: str = "",
        target: str | Target | None = None,
        **options: Any,
    ) -> str:
        """The generated code of every stage, in one of the forms of ``BoundKernel.to_code``."""
        known = [bound for bound in self.stages if bound is not None]
        shown = form or (known[0].definition.backends.of(known[0].target).forms[0] if known else "")
        if shown == "triton":
            return self.to_triton_code(config, target=target, **options)
        texts = self._texts(
            lambda bound, part: bound.to_code(part, form=form, target=target, **options), config
        )
        if any(isinstance(text, bytes) for text in texts):
            problem = f"several launches have no {form} in common"
            raise errors.InvalidArgumentValue(function="to_code", problem=problem)
        return staged_text(self._kernel.source, texts)

    def _texts(
        self, make: Callable[[BoundKernel, Config | None], str], config: ConfigLike
    ) -> list[str | None]:
        return [
            None if bound is None else make(bound, self.split(config, number))
            for number, bound in enumerate(self.stages)
        ]

    def compile_config(
        self, config: ConfigLike = None, *, allow_print: bool = True
    ) -> Callable[..., Any]:
        """The kernel with a config fixed, as a plain function of the arguments."""
        whole = self._whole(config)
        compiled: dict[BoundKernel, Launch] = {}

        def launch(number: int, *values: Any) -> None:
            bound: BoundKernel = self._kernel.kernels[number].bind(values, target=self._target)
            if bound not in compiled:
                compiled[bound] = bound.compile_config(self.split(config, number))
            compiled[bound](*values)

        launches = self._kernel.launches(launch)
        return lambda *args: self._kernel.run(
            self.definition.arguments.complete(args), launches, whole
        )

    def set_config(self, config: ConfigLike) -> None:
        """Use this config from now on, in host code and in every stage that was bound."""
        self.config_spec.normalize(self._whole(config))
        self._kernel.chosen = self._whole(config)
        for number, found in enumerate(self._found):
            for bound in found:
                part = self.split(config, number)
                if part is not None:
                    bound.set_config(part)

    def autotune(
        self,
        args: tuple[Any, ...] | list[Any],
        *,
        force: bool = True,
        budget: float | None = None,
        **options: Any,
    ) -> Config:
        """Search for the fastest config of each stage, with the values of its first launch."""
        values = self.definition.arguments.unpack(args)
        count = sum(bound is not None for bound in self.stages)
        share = None if budget is None else budget / max(1, count)
        chosen: dict[int, Config] = {}

        def launch(number: int, *given: Any) -> None:
            kernel = self._kernel.kernels[number]
            if number not in chosen:
                bound: BoundKernel = kernel.bind(given)
                chosen[number] = bound.autotune(given, force=force, budget=share, **options)
            kernel(*given)

        session = self._kernel.run_on_copies(values, self._kernel.launches(launch))
        configs = [chosen.get(number, Config()) for number in range(len(self._found))]
        return joined(configs, session.host_part({}, session.tunable_values))

    def run_ref(self, *args: Any) -> Any:
        """Run with the reference interpreter, whatever the device."""
        kernels = self._kernel.kernels
        launches = self._kernel.launches(
            lambda n, *values: kernels[n].bind(values).run_ref(*values)
        )
        return self._kernel.run(self.definition.arguments.complete(args), launches)

    def __call__(self, *args: Any) -> Any:
        """Run with the configs of the stages."""
        return self._kernel.call(self.definition.arguments.complete(args))


def find_device_source(names: Sequence[str], args: tuple[Any, ...]) -> str:
    """An expression of the arguments for the device of the first tensor among them."""
    for name, argument in zip(names, args):
        for place, leaf in leaves(argument, name):
            if isinstance(leaf, torch.Tensor) and "(" not in place:
                return f"{place}.device"
    return ""
