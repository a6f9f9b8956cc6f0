"""Which part of a kernel's config each of its stages gets, and what a config of all may say."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from typing_extensions import override

import tilesmith.exc as errors
from tilesmith.frontend.source.kernel_source import is_language_call
from tilesmith.frontend.tracing.host_session import BlockSizeInt, HostSession
from tilesmith.ir.function import Function
from tilesmith.jit.staging.source import StagedSource
from tilesmith.schedule.config import PLURALS, Config
from tilesmith.schedule.space.fragments import Fragment, PowerOfTwoFragment
from tilesmith.schedule.space.slots import Slot, check_value
from tilesmith.schedule.spec import ConfigSpec
from tilesmith.schedule.spec_lists import SizeItem

STAGES = "stages"
"""The key of a config that lists one config for each stage."""


@dataclass
class StageSession(HostSession):
    """Host code of several launches: its block sizes are numbers, fixed before any trace."""

    host_blocks: list[int] = field(default_factory=list[int])
    """What host code has registered."""
    host_items: list[SizeItem] = field(default_factory=list[SizeItem])
    """The same as a spec lists them."""

    @override
    def register_block_size(
        self, low: int, high: int, *, is_runtime_size: bool = False
    ) -> BlockSizeInt:
        """The number that the config has for it, or the default."""
        size = int.__int__(super().register_block_size(low, high, is_runtime_size=is_runtime_size))
        label = f"block size {len(self.host_items)} of host code"
        sizes = PowerOfTwoFragment(low, high)
        self.host_items.append(SizeItem(label, high, low, high, sizes))
        self.host_blocks.append(check_value("block_sizes", Slot.make(label, sizes), size))
        return self.host_blocks[-1]  # type: ignore[return-value]

    @override
    def register_tunable(self, name: str, fragment: Fragment) -> Any:
        """The value that the config has for it, or the default."""
        value = super().register_tunable(name, fragment)
        return check_value(name, Slot.make(name, fragment), value)

    def host_part(self, blocks: Mapping[int, int], given: Mapping[str, Any]) -> dict[str, Any]:
        """What a config says to host code; what it does not say is as in this run."""
        sizes = [
            check_value("block_sizes", Slot.make(item.name, item.fragment), blocks.get(slot, size))
            for slot, (item, size) in enumerate(zip(self.host_items, self.host_blocks))
        ]
        values = {
            name: check_value(name, Slot.make(name, fragment), given.get(name, fragment.default))
            for name, fragment in self.tunable_fragments.items()
        }
        return {**({"block_sizes": sizes} if sizes else {}), **values}


def num_slots(function: Function) -> int:
    """How many block sizes a config of the function has."""
    return max((b.slot + 1 for b in function.blocks if b.slot is not None), default=0)


class StageConfigs:
    """Splits configs of one kernel.

    ``block_sizes`` lists those that host code registers, then those of each stage as they stand in
    the source. Other keys that are no lists go to all stages.
    """

    def __init__(self, source: StagedSource) -> None:
        self._stages = source.stages
        self._counts = [stage.num_blocks for stage in source.stages]
        function = source.source.function
        nodes = list(ast.walk(source.source.tree))
        self._num_registered = sum(
            is_language_call(node, ("register_block_size",), function) for node in nodes
        )
        calls = [n for n in nodes if is_language_call(n, ("register_tunable",), function)]
        self._tunables = {
            part.value for n in calls for part in ast.walk(n) if isinstance(part, ast.Constant)
        }
        """Names of what host code registers: keys that are not for stages."""

    def note(self, number: int, count: int) -> None:
        """A stage has been traced: it takes this many block sizes."""
        self._counts[number] = count

    def host_blocks(self, config: Config) -> dict[int, int]:
        """Block sizes that host code registers, by slot."""
        blocks = self._blocks(config)
        if STAGES in config and blocks:
            self._check_length(blocks, self._num_registered)
        return dict(enumerate(blocks[: self._num_registered]))

    def of_stage(self, config: Config, number: int) -> Config:
        """The config of one stage."""
        if STAGES in config:
            return self._listed(config, number)
        given = {name: v for name, v in config.items() if name not in self._tunables}
        blocks = self._blocks(config)
        lists = [name for name, value in given.items() if isinstance(value, list)]
        others = [name for name in lists if PLURALS.get(name, name) != "block_sizes"]
        if others:
            raise errors.InvalidConfig(
                problem=f"`{others[0]}` has entries for one launch, the kernel has "
                f"{len(self._stages)}",
                fix=f"give one config for each launch: Config({STAGES}=[Config(...), ...])",
            )
        self._check_length(blocks, self._num_registered + sum(self._counts))
        start = self._num_registered + sum(self._counts[:number])
        part = blocks[start : start + self._counts[number]]
        kept = {name: v for name, v in given.items() if PLURALS.get(name, name) != "block_sizes"}
        return Config(**kept, **({"block_sizes": part} if part else {}))

    def _blocks(self, config: Config) -> list[int]:
        given: Any = config.get("block_sizes", config.get("block_size", []))
        return list(given) if isinstance(given, list) else [given]

    def _listed(self, config: Config, number: int) -> Config:
        listed = config[STAGES]
        if len(listed) != len(self._stages):
            raise errors.InvalidConfig(
                problem=f"`{STAGES}` has {len(listed)} entries, the kernel has "
                f"{len(self._stages)} launches",
                fix=f"give one config for each of {self._places()}",
            )
        entry: Mapping[str, Any] = listed[number] or {}
        return Config.from_dict(entry)

    def _check_length(self, blocks: list[int], needed: int) -> None:
        if blocks and len(blocks) != needed:
            raise errors.InvalidConfigLength(
                key="block_sizes",
                given=len(blocks),
                needed=needed,
                slots=self._places(),
                fix=f"list the block sizes of all launches in the order of the source, or give one "
                f"config for each: Config({STAGES}=[Config(...), ...])",
            )

    def _places(self) -> str:
        """Where block sizes are needed, and how many."""
        registered = [f"host code ({self._num_registered})"] if self._num_registered else []
        stages = zip(self._stages, self._counts)
        return ", ".join([*registered, *(f"line {stage.line} ({n})" for stage, n in stages)])


class StagedSpec:
    """What a Config of all stages may say. None stands for a stage that host code has not come to.

    Lists have what host code registers, then the entries of all stages, in the order of the source;
    ``default_config`` and ``normalize`` give Configs that list one Config for each stage, and
    beside them what is for host code.
    """

    def __init__(
        self, stages: Sequence[ConfigSpec | None], configs: StageConfigs, session: StageSession
    ) -> None:
        self.stages = tuple(stages)
        self._configs, self._session = configs, session

    @property
    def _known(self) -> list[ConfigSpec]:
        return [spec for spec in self.stages if spec is not None]

    @property
    def block_sizes(self) -> tuple[SizeItem, ...]:
        """Block sizes of host code, and the tile axes of all stages."""
        known = [*self._session.host_items, *(i for spec in self._known for i in spec.block_sizes)]
        return tuple(known)

    @property
    def user_defined_tunables(self) -> dict[str, Fragment]:
        """What ``hl.register_tunable`` has made, by name."""
        return dict(self._session.tunable_fragments)

    @property
    def reduction_loops(self) -> tuple[SizeItem, ...]:
        """The rows of all stages that may be reduced chunk by chunk."""
        return tuple(item for spec in self._known for item in spec.reduction_loops)

    def default_config(self) -> Config:
        """A sensible Config of every stage."""
        return self._of_each(lambda spec: spec.default_config())

    def random_config(self, rng: Random) -> Config:
        """A random Config of every stage; what is for host code is as in the default."""
        return self._of_each(lambda spec: spec.random_config(rng))

    def _of_each(self, choose: Callable[[ConfigSpec], Config]) -> Config:
        configs = [Config() if spec is None else choose(spec) for spec in self.stages]
        return joined(configs, self._session.host_part({}, {}))

    def normalize(self, config: Config | Mapping[str, Any]) -> Config:
        """Every stage's part in full; raises ``InvalidConfig`` when one does not fit."""
        whole = Config.from_dict(config)
        parts = [self._configs.of_stage(whole, n) for n in range(len(self.stages))]
        full = [
            part if spec is None else spec.normalize(part) for spec, part in zip(self.stages, parts)
        ]
        return joined(full, self._session.host_part(self._configs.host_blocks(whole), whole))

    def supports_config_key(self, key: str) -> bool:
        """Whether a Config may have this key."""
        own = (STAGES, *self._session.tunable_fragments)
        return key in own or any(spec.supports_config_key(key) for spec in self._known)

    def unsupported_config_keys(self, config: Mapping[str, object]) -> list[str]:
        """The keys of a Config that would be refused."""
        return sorted(key for key in config if not self.supports_config_key(key))


def joined(configs: Sequence[Config], host: Mapping[str, Any]) -> Config:
    """One Config for each stage, and what is for host code, as one."""
    return Config.from_dict({STAGES: [config.config for config in configs], **host})
