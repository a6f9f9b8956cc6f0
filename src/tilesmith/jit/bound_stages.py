"""A kernel of several launches bound to arguments: what a user asks of it, stage by stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch

from tilesmith.compiler.specialization import Variant
from tilesmith.compiler.staged_module import HostValues, StageForm, staged_module, staged_text
from tilesmith.frontend.containers import ArgumentTemplate
from tilesmith.frontend.source.stages import StagedSource
from tilesmith.jit.bound_kernel import BoundKernel
from tilesmith.jit.compiled_kernel import triton_module
from tilesmith.jit.definition import KernelDefinition
from tilesmith.jit.specialization_key import leaves
from tilesmith.jit.stage_configs import STAGES, StageConfigs, StageSession, num_slots
from tilesmith.schedule.config import Config
from tilesmith.schedule.spec import ConfigSpec
from tilesmith.schedule.spec_lists import SizeItem
from tilesmith.settings import Settings
from tilesmith.targets import Target

ConfigLike = Config | Mapping[str, Any] | None
Launch = Callable[..., Any]
AnyTarget = str | Target | None


class StageRecord:
    """The bound kernels that one run of host code has come to."""

    def __init__(self, count: int) -> None:
        self.found: list[list[BoundKernel]] = [[] for _ in range(count)]
        """For each stage its kernels, in the order of their first launches."""
        self.used: list[list[tuple[BoundKernel, Variant]]] = [[] for _ in range(count)]
        """For each stage the traces that launches have used, the newest first."""

    def note(self, number: int, bound: BoundKernel, values: tuple[Any, ...]) -> None:
        """Remember a launch; numbers that differ from launch to launch become parameters."""
        used = bound, bound.capture_launch(values).variant
        if bound not in self.found[number]:
            self.found[number].append(bound)
        if used not in self.used[number]:
            self.used[number].insert(0, used)


class Stages(Protocol):
    """The kernel that was bound."""

    definition: KernelDefinition
    source: StagedSource
    configs: StageConfigs
    kernels: Sequence[Any]

    def call(self, args: tuple[Any, ...]) -> Any:
        """Run it."""
        ...

    def run(
        self, args: tuple[Any, ...], launches: Sequence[Launch], config: Config | None = None
    ) -> Any:
        """Run host code with other launches."""
        ...

    def record(
        self, args: tuple[Any, ...], target: AnyTarget, config: Config | None = None
    ) -> tuple[StageRecord, StageSession]:
        """What host code comes to, in a run on copies of the arguments."""
        ...

    def run_on_copies(
        self, args: tuple[Any, ...], launches: Sequence[Launch], config: Config | None = None
    ) -> StageSession:
        """The same, and leave the arguments alone."""
        ...


Split = Callable[[Config, int], Config]
"""The part of a Config that is about one stage."""


class StagedSpec:
    """What a Config of all stages may say. None stands for a stage that host code has not come to.

    Lists have the entries of all stages, in the order of the source; ``default_config`` and
    ``normalize`` give Configs that list one Config for each stage.
    """

    def __init__(self, stages: Sequence[ConfigSpec | None], split: Split) -> None:
        self.stages = tuple(stages)
        self._split = split

    @property
    def _known(self) -> list[ConfigSpec]:
        return [spec for spec in self.stages if spec is not None]

    @property
    def block_sizes(self) -> tuple[SizeItem, ...]:
        """The tile axes of all stages."""
        return tuple(item for spec in self._known for item in spec.block_sizes)

    @property
    def reduction_loops(self) -> tuple[SizeItem, ...]:
        """The rows of all stages that may be reduced chunk by chunk."""
        return tuple(item for spec in self._known for item in spec.reduction_loops)

    def default_config(self) -> Config:
        """A sensible Config of every stage."""
        return _joined([Config() if s is None else s.default_config() for s in self.stages])

    def normalize(self, config: Config | Mapping[str, Any]) -> Config:
        """Every stage's part in full; raises ``InvalidConfig`` when one does not fit."""
        whole = Config.from_dict(config)
        parts = [self._split(whole, number) for number in range(len(self.stages))]
        full = [
            part if spec is None else spec.normalize(part) for spec, part in zip(self.stages, parts)
        ]
        return _joined(full)

    def supports_config_key(self, key: str) -> bool:
        """Whether a Config may have this key."""
        return key == STAGES or any(spec.supports_config_key(key) for spec in self._known)

    def unsupported_config_keys(self, config: Mapping[str, object]) -> list[str]:
        """The keys of a Config that would be refused."""
        return sorted(key for key in config if not self.supports_config_key(key))


def _joined(configs: Sequence[Config]) -> Config:
    return Config(**{STAGES: [config.config for config in configs]})


class BoundStages:
    """Each stage bound to the values that host code has for it, with these arguments.

    Stages that host code does not come to are not compiled and have no code.
    """

    def __init__(
        self, stages: Stages, args: tuple[Any, ...], target: AnyTarget, *, kernel: Any = None
    ) -> None:
        self.kernel = kernel
        """The ``Kernel`` that was bound."""
        self._kernel = kernel = stages
        self._record, self._session = kernel.record(args, target)
        self._template = ArgumentTemplate(args)
        self._device_source = _find_device_source(kernel.definition.parameters, args)
        self._found = self._record.found
        self._target = target
        self.device: torch.device = self._session.device
        self.definition = kernel.definition
        for number, found in enumerate(self._found):
            if found:
                kernel.configs.note(number, num_slots(found[0].function))

    @property
    def settings(self) -> Settings:
        """The kernel's settings."""
        return self.definition.settings

    @property
    def configs(self) -> list[Config]:
        """Configs given with the decorator."""
        return self.definition.configs

    @property
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
        return StagedSpec(specs, self._kernel.configs.of_stage)

    def default_config(self) -> Config:
        """A sensible config of every stage."""
        return self.config_spec.default_config()

    def _split(self, config: ConfigLike, number: int) -> Config | None:
        """A stage's part of a config; None: what the stage itself chooses."""
        part = self._kernel.configs.of_stage(self._whole(config), number)
        return part if len(part) else None

    def _whole(self, config: ConfigLike) -> Config:
        chosen = config if config is not None else next(iter(self.configs), Config())
        return chosen if isinstance(chosen, Config) else Config.from_dict(chosen)

    def to_triton_code(
        self, config: ConfigLike = None, *, target: str | Target | None = None, **_: Any
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
                StageForm(triton_module(b, self._split(config, number), shown, v), v.trace)
                for b, v in used
            ]
            for number, used in enumerate(record.used)
        ]
        values = HostValues(session.host_blocks, session.tunable_values, self._device_source)
        return staged_module(self._kernel.source, forms, values)

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
            return self.to_triton_code(config, target=target)
        texts = self._texts(
            lambda bound, part: bound.to_code(part, form=form, target=target, **options), config
        )
        return staged_text(self._kernel.source, texts)

    def _texts(
        self, make: Callable[[BoundKernel, Config | None], str], config: ConfigLike
    ) -> list[str | None]:
        return [
            None if bound is None else make(bound, self._split(config, number))
            for number, bound in enumerate(self.stages)
        ]

    def compile_config(
        self, config: ConfigLike = None, *, allow_print: bool = True
    ) -> Callable[..., Any]:
        """The kernel with a config fixed, as a plain function of the arguments."""
        whole = self._whole(config)

        def launch_of(number: int) -> Launch:
            kernel = self._kernel.kernels[number]
            compiled: dict[int, tuple[BoundKernel, Launch]] = {}

            def launch(*values: Any) -> None:
                bound = kernel.bind(values, target=self._target)
                if id(bound) not in compiled:
                    part = self._split(config, number)
                    compiled[id(bound)] = bound, bound.compile_config(part)
                compiled[id(bound)][1](*values)

            return launch

        launches = [launch_of(number) for number in range(len(self._found))]
        return lambda *args: self._kernel.run(self.definition.with_defaults(args), launches, whole)

    def set_config(self, config: ConfigLike) -> None:
        """Use this config from now on, in every stage that was bound."""
        for number, found in enumerate(self._found):
            for bound in found:
                part = self._split(config, number)
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
        values = self.definition.unpack_args(args)
        count = sum(bound is not None for bound in self.stages)
        share = None if budget is None else budget / max(1, count)
        chosen: dict[int, Config] = {}

        def launch_of(number: int) -> Launch:
            kernel = self._kernel.kernels[number]

            def launch(*given: Any) -> None:
                if number not in chosen:
                    bound = kernel.bind(given)
                    chosen[number] = bound.autotune(given, force=force, budget=share, **options)
                kernel(*given)

            return launch

        launches = [launch_of(number) for number in range(len(self._found))]
        self._kernel.run_on_copies(values, launches)
        return _joined([chosen.get(number, Config()) for number in range(len(launches))])

    def run_ref(self, *args: Any) -> Any:
        """Run with the reference interpreter, whatever the device."""

        def launch_of(number: int) -> Launch:
            kernel = self._kernel.kernels[number]
            return lambda *values: kernel.bind(values).run_ref(*values)

        launches = [launch_of(number) for number in range(len(self._found))]
        return self._kernel.run(self.definition.with_defaults(args), launches)

    def __call__(self, *args: Any) -> Any:
        """Run with the configs of the stages."""
        return self._kernel.call(self.definition.with_defaults(args))


def _find_device_source(names: Sequence[str], args: tuple[Any, ...]) -> str:
    """An expression of the arguments for the device of the first tensor among them."""
    for name, argument in zip(names, args):
        for place, leaf in leaves(argument, name):
            if isinstance(leaf, torch.Tensor) and "(" not in place:
                return f"{place}.device"
    return ""
