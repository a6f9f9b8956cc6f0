"""``tilesmith facts`` and ``tilesmith explain``: what is known of a kernel before any search."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import typer

from tilesmith.cli.flags import BoundFlags, make_command_adder
from tilesmith.cli.output import UsageError, show
from tilesmith.compiler.pipeline import TRACE, watch_stages
from tilesmith.diagnostics.wording import ms_text, number_text, percent_text
from tilesmith.ir.printer import print_function
from tilesmith.jit.bound_kernel import BoundKernel
from tilesmith.jit.visible.determinism import determinism_text
from tilesmith.schedule.config import Config
from tilesmith.schedule.spec import ConfigSpec, RankedConfig
from tilesmith.store.config_text import config_text
from tilesmith.store.lookup import stored_lines


@dataclass(frozen=True)
class ExplainFlags(BoundFlags):
    """The options of ``tilesmith explain``."""

    count: Annotated[int, typer.Option(help="how many configs to list", min=1)] = 5
    stages: Annotated[
        bool, typer.Option("--stages", help="print the IR after every stage of the pipeline")
    ] = False
    config: Annotated[
        str, typer.Option(help="with --stages: a config as JSON, instead of the default")
    ] = ""


def facts(flags: BoundFlags) -> int:
    """What a kernel multiplies, reduces and moves, in its own names."""
    show(str(flags.bind().facts))
    return 0


def explain(flags: ExplainFlags) -> int:
    """Which config a kernel gets without a search, and why. Also what time is expected of it."""
    bound = flags.bind()
    if not flags.stages:
        lines = [*explain_lines(bound, flags.count), *stored_lines(bound, flags.load()[1])]
        show("\n".join(lines))
        return 0
    try:
        config = Config.from_json(flags.config) if flags.config else bound.default_config()
    except ValueError as error:
        raise UsageError(f"--config: {error}") from None
    show("\n".join(stage_lines(bound, config)))
    return 0


def stage_lines(bound: BoundKernel, config: Config) -> Iterator[str]:
    """What every stage of the pipeline makes of a kernel: why it runs, what changed, the result."""
    settings = bound.settings
    yield f"{bound.definition.name} on {bound.target}"
    yield f"config     {config_text(config)}"
    backend = bound.definition.backends.of(bound.target)
    traced, spec = bound.traced_function, bound.config_spec
    for result in watch_stages(traced, spec, config, settings, backend):
        stage = result.stage
        yield f"\n== {stage.name}: {stage.reason}"
        reasons = {step.name: step.reason for step in reversed(stage.passes)}
        yield from (f"  {name}: {reasons[name]}" for name in dict.fromkeys(result.changed_by))
        if result.source:
            yield result.source
        elif result.changed_by or stage is TRACE:
            yield print_function(result.function)
        else:
            yield "  nothing changed"


def explain_lines(bound: BoundKernel, count: int) -> Iterator[str]:
    """The default and those that come next."""
    spec = bound.config_spec
    first, *others = spec.ranked_configs(count)
    yield f"{bound.definition.name} on {bound.target}"
    yield f"default    {config_text(first.config)}"
    yield f"because    {first.reason}"
    yield from _prediction_lines(spec, first)
    yield f"results    {determinism_text(bound, first.config)}"
    if others:
        is_measured = any(o.predicted.total_ms < first.predicted.total_ms for o in others)
        why = "; what was measured on a device comes before what is predicted"
        yield f"next best{why if is_measured else ''}"
        width = max(len(number_text(other.predicted.total_ms)) for other in others)
        yield from (_ranked_line(other, width) for other in others)
    for name, reason in spec.rules.missing_ways(spec.kernel).items():
        yield f"without    {name}: {reason}"


def _prediction_lines(spec: ConfigSpec, ranked: RankedConfig) -> Iterator[str]:
    predicted, roofline_ms = ranked.predicted, spec.model.roofline_ms()
    share = ""
    if roofline_ms > 0.0:
        found = percent_text(roofline_ms / predicted.total_ms)
        share = f", {found} of the roofline ({ms_text(roofline_ms)})"
    yield f"predicted  {ms_text(predicted.total_ms)}{share}; limited by {predicted.limiter}"
    yield (
        f"parts      compute {ms_text(predicted.compute_ms)}, "
        f"memory {ms_text(predicted.memory_ms)}, latency {ms_text(predicted.latency_ms)}"
    )
    use = spec.resources(spec.settle(ranked.config))
    if not use.limits.registers:
        # The backend counts none, and nothing is resident but what its threads run.
        return
    yield (
        f"programs   {_waves_text(predicted.waves)}, "
        f"{predicted.occupancy:g} at a time on a multiprocessor"
    )
    yield f"resources  {use.registers} registers, {use.shared_bytes / 1024:.4g} KiB shared memory"


def _waves_text(waves: float) -> str:
    return "1 wave" if waves == 1 else f"{number_text(waves)} waves"


def _ranked_line(ranked: RankedConfig, width: int) -> str:
    time = number_text(ranked.predicted.total_ms).rjust(width)
    return f"  {time} ms  {config_text(ranked.config)} ({ranked.reason})"


add_to = make_command_adder(facts=facts, explain=explain)
