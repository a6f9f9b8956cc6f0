"""Adds what another launch computes first to an artifact: its own artifact, and one module text."""

from __future__ import annotations

import re
from dataclasses import replace

from tilesmith.artifacts import Artifact
from tilesmith.backends.interface import Backend
from tilesmith.compiler.lowering import Lowering, known, run_stages
from tilesmith.compiler.pipeline import EMIT, SCHEDULED, STANDARD, TARGET
from tilesmith.ir.function import Function
from tilesmith.schedule.config import Config
from tilesmith.schedule.resolution import MultiFormSpec
from tilesmith.schedule.spec import ConfigSpec
from tilesmith.settings import Settings

_LAUNCH = re.compile(r"^def launch\([^)]*\):\n", re.MULTILINE)
_FIRST = "launch_first"
"""The name of the earlier launch in modules."""


def with_earlier_launch(emitted: Lowering, state: Lowering) -> Artifact:
    """What was emitted, after what ``before`` of the function computes, if there is such."""
    before, spec, artifact = state.function.before, known(state.spec), known(emitted.artifact)
    if before is None:
        return artifact
    own = ConfigSpec(_standard(before, state.settings), spec.rules)
    first = _emit(own, state.settings, known(state.backend))
    return replace(artifact, before=(first,), source=_joined(first, artifact))


def in_one_launch(spec: MultiFormSpec, config: Config) -> Config:
    """The config, normalised, or the default of the form as it is written.

    Packages hold one binary for each place that host code launches from.
    """
    own = spec.normalize(config)
    has_more = spec.of(own)[0].function.before is not None
    return spec.normalize(ConfigSpec.default_config(spec)) if has_more else own


def _standard(before: Function, settings: Settings) -> Function:
    return run_stages(Lowering(before, settings), [STANDARD]).function


def _emit(spec: ConfigSpec, settings: Settings, backend: Backend) -> Artifact:
    config = spec.normalize(spec.default_config())
    start = Lowering.of_config(spec, config, settings, backend)
    return known(run_stages(start, [SCHEDULED, TARGET, EMIT]).artifact)


def _joined(first: Artifact, artifact: Artifact) -> str:
    """One module: imports of both, the earlier kernel, then the other, which launches both."""
    imports, before = first.source.partition("\n\n")[::2]
    own_imports, own = artifact.source.partition("\n\n")[::2]
    lines = dict.fromkeys([*own_imports.splitlines(), *imports.splitlines()])
    arguments = ", ".join(parameter.name for parameter in first.parameters)
    call = f"    {_FIRST}({arguments})\n"
    before = before.replace("def launch(", f"def {_FIRST}(", 1)
    own = _LAUNCH.sub(lambda match: match[0] + call, own, count=1)
    return "\n".join(lines) + f"\n\n{before.rstrip()}\n\n\n{own.lstrip()}"
