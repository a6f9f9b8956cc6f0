"""Adds what another launch computes first to an artifact: its own artifact, and one module text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from tilesmith.artifacts import Artifact
from tilesmith.compiler.lowering import Lowering, Stage, known, run_stages
from tilesmith.schedule.config import Config
from tilesmith.schedule.resolution import MultiFormSpec
from tilesmith.schedule.spec import ConfigSpec

_LAUNCH = re.compile(r"^def launch\([^)]*\):\n", re.MULTILINE)
_CONSTANT = re.compile(r"^(\w+) = ", re.MULTILINE)
_FIRST = "launch_first"
"""The name of the earlier launch in modules."""


def with_earlier_launch(emitted: Lowering, state: Lowering, stages: Sequence[Stage]) -> Artifact:
    """What was emitted, after what ``before`` of the function computes, if there is such.

    The first of the stages makes that ready for a config, all others emit it.
    """
    artifact, (first, *last) = known(emitted.artifact), stages
    if state.function.before is None:
        return artifact
    function = run_stages(Lowering(state.function.before, state.settings), [first]).function
    every = MultiFormSpec(function, known(state.spec).rules, split=lambda function, name: None)
    spec, config = every.of(every.normalize(every.default_config()))
    start = Lowering.of_config(spec, config, state.settings, known(state.backend))
    earlier = known(run_stages(start, last).artifact)
    return replace(artifact, before=(earlier,), source=_joined(earlier, artifact))


def in_one_launch(spec: MultiFormSpec, config: Config) -> Config:
    """The config, normalised, or the default of the form as it is written.

    Packages hold one binary for each place that host code launches from.
    """
    own = spec.normalize(config)
    has_more = spec.of(own)[0].function.before is not None
    return spec.normalize(ConfigSpec.default_config(spec)) if has_more else own


def _joined(first: Artifact, artifact: Artifact) -> str:
    """One module: imports of both, the earlier kernel, then the other, which launches both."""
    imports, before = first.source.partition("\n\n")[::2]
    own_imports, own = artifact.source.partition("\n\n")[::2]
    for name in {*_CONSTANT.findall(before)} & {*_CONSTANT.findall(own)}:
        # Sizes of tiles are read when a kernel is first launched, the others' by then.
        before = re.sub(rf"\b{name}\b", f"{name}_FIRST", before)
    lines = dict.fromkeys([*own_imports.splitlines(), *imports.splitlines()])
    arguments = ", ".join(parameter.name for parameter in first.parameters)
    call = f"    {_FIRST}({arguments})\n"
    before = before.replace("def launch(", f"def {_FIRST}(", 1)
    own = _LAUNCH.sub(lambda match: match[0] + call, own, count=1)
    return "\n".join(lines) + f"\n\n{before.rstrip()}\n\n\n{own.lstrip()}"
