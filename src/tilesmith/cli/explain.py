"""``tilesmith facts`` and ``tilesmith explain``: what is known of a kernel before any search.

A heuristic names the default, and the model ranks the others. Each heuristic has a sentence here
that says what its choice rests on; the parts of two predictions say what the model counts on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from tilesmith.cli.flags import BoundFlags, make_command_adder
from tilesmith.cli.output import UsageError, show
from tilesmith.compiler.pipeline import TRACE, watch_stages
from tilesmith.diagnostics.wording import ms_text, number_text, percent_text
from tilesmith.ir.printer import print_function
from tilesmith.jit.bound_kernel import BoundKernel
from tilesmith.jit.visible.determinism import determinism_text
from tilesmith.lab.reports import json_line
from tilesmith.schedule.config import Config
from tilesmith.schedule.model.estimates import Prediction
from tilesmith.schedule.spec import ConfigSpec, RankedConfig
from tilesmith.store.config_text import config_text
from tilesmith.store.lookup import stored_lines
from tilesmith.tune.result import roofline_text

HEURISTIC = "heuristic: "
GROUNDS = {
    "reduction": "a program gets one long row, or as many short ones as keep it busy, which was "
    "fastest where rows were measured",
    "rows walked once": "a turn of the loop has two loads of each thread, which was fastest where "
    "such rows were measured",
    "pointwise": "a program gets a long run of memory, and each core or multiprocessor several "
    "programs, which was fastest where elementwise kernels were measured",
    "matmul": "the tile is the best of a closer model, of products alone, with constants from "
    "measured products",
    "attention": "both products of the loop share one tile, whose size was measured",
    "matmul with reduction epilogue": "the whole row of the product stays where it is made, so the "
    "tile is as wide as the row",
    "attention with more products": "all accumulators live at once, and the tile is one with which "
    "no register was spilled",
    "attention of ragged sequences": "memory knows how long each sequence is, so tiles are those "
    "of short ones",
    "product of several loops": "one tile is summed up by several loops, and all share its size",
    "rows that programs share": "a long row is shared by as many programs as the device runs at "
    "once, which was fastest where few long rows were measured",
    "product whose programs exchange sums": "programs that share a row must all run at once, which "
    "bounds the number of tiles",
    "product of a panel, then its rows": "a panel of rows is made and then reduced by the same "
    "program",
    "product, then its rows": "the product has the tile that it would have alone, and its rows a "
    "launch phase of their own",
    "each loop": "each loop has its own tile, and the loop with the most work names the warps",
    "measured order": "the order is that of times measured on an H200",
    "product of one column": "rows lie along memory and are read once, so tiles are few long rows",
    "products of merged groups": "rows of all groups are one product, and have its tiles",
    "products of groups": "tiles of all groups are programs, and such tiles were the fastest",
    "few rows by converted weights": "weights are most of the bytes, so tiles are narrow and deep",
    "product, then rows by it": "the depth of both loops was measured together",
    "rows of several tensors": "rows of all tensors are in registers at once, so chunks are short",
    "anything": "no rule is about such kernels: each block has a middle size",
}
"""What the choice of each heuristic rests on, by its name."""
_PARTS = {"compute_ms": "arithmetic", "memory_ms": "memory", "latency_ms": "waiting"}
WORTH_TELLING = 0.98
"""Predictions closer than this are the same."""


@dataclass(frozen=True)
class FactsFlags(BoundFlags):
    """The options of ``tilesmith facts``."""

    json: Annotated[bool, typer.Option("--json", help="as JSON")] = False


@dataclass(frozen=True)
class ExplainFlags(BoundFlags):
    """The options of ``tilesmith explain``."""

    count: Annotated[int, typer.Option(help="how many configs to list", min=1)] = 5
    stages: Annotated[bool, typer.Option("--stages", help="print the IR after every stage")] = False
    config: Annotated[str, typer.Option(help="with --stages: a config as JSON")] = ""
    json: Annotated[bool, typer.Option("--json", help="as JSON; not with --stages")] = False


def facts(flags: FactsFlags) -> int:
    """What a kernel multiplies, reduces and moves, in its own names.

    One line for each product, reduction, accumulator and access, with its line in the source, then
    the work of the whole launch. docs/facts.md says how to read it.
    """
    launches = launches_of(flags.bind())
    if flags.json:
        show(json_line(_record([facts_record(bound) for bound in launches])))
    else:
        show("\n\n".join(str(bound.facts) for bound in launches))
    return 0


def launches_of(bound: Any) -> list[BoundKernel]:
    """The bound kernels of each launch that host code comes to; most kernels have one."""
    return [stage for stage in getattr(bound, "stages", [bound]) if stage is not None]


def _record(found: list[dict[str, Any]]) -> dict[str, Any]:
    return found[0] if len(found) == 1 else {"launches": found}


def facts_record(bound: BoundKernel) -> dict[str, Any]:
    """The facts as plain values: what, where, and the numbers of the whole launch."""
    found = bound.facts
    products = [
        {"text": fact.text, "place": str(fact.loc), "dtype": fact.lhs_dtype.name}
        | {"sizes": [axis.extent for axis in fact.axes]}
        for fact in found.matmuls
    ]
    sums = [
        {"text": fact.text, "place": str(fact.loc), "dtype": fact.dtype.name}
        | {"functions": list(fact.functions), "length": fact.axis.extent}
        for fact in found.reductions
    ]
    accesses = [
        {"kind": fact.kind, "text": fact.text or fact.tensor, "place": str(fact.loc)}
        | {"dtype": fact.dtype.name, "bytes": fact.distinct_bytes, "reuse": fact.reuse}
        for fact in found.accesses
    ]
    return {
        "kernel": bound.definition.name,
        "target": str(bound.target),
        "matmuls": products,
        "reductions": sums,
        "accumulators": [fact.text for fact in found.accumulators],
        "accesses": accesses,
        "flops": found.flops,
        "bytes_read": found.traffic.read,
        "bytes_written": found.traffic.written,
    }


def explain(flags: ExplainFlags) -> int:
    """Which config a kernel gets without a search, and why. Also what time is expected of it."""
    if flags.stages and flags.json:
        raise UsageError("--stages and --json: choose one")
    if flags.config and not flags.stages:
        raise UsageError("--config goes with --stages; `tilesmith explore` takes one, too")
    whole: Any = flags.bind()
    launches = launches_of(whole)
    if flags.json:
        show(json_line(_record([explain_record(bound, flags.count) for bound in launches])))
    elif flags.stages:
        show(
            "\n\n".join(
                "\n".join(_stages(flags, whole, place, bound))
                for place, bound in enumerate(launches)
            )
        )
    else:
        texts = ["\n".join(explain_lines(bound, flags.count)) for bound in launches]
        # What is stored is known by the arguments of a launch: here those of the only one.
        stored = stored_lines(whole, flags.load()[1]) if launches == [whole] else []
        show("\n".join(["\n\n".join(texts), *stored]))
    return 0


def _stages(flags: ExplainFlags, whole: Any, place: int, bound: BoundKernel) -> Iterator[str]:
    try:
        given = Config.from_json(flags.config) if flags.config else None
    except ValueError as error:
        raise UsageError(f"--config: {error}") from None
    part = given if given is None or whole is bound else whole.split(given, place)
    return stage_lines(bound, part or bound.default_config())


def stage_lines(bound: BoundKernel, config: Config) -> Iterator[str]:
    """What every stage of the pipeline makes of a kernel: why it runs, what changed, the result."""
    settings = bound.settings
    yield f"{bound.definition.name} on {bound.target}"
    yield f"config     {config_text(config)}"
    backend = bound.definition.backends.of(bound.target)
    # Host code may have read block sizes: a config of its own has a trace of its own.
    variant = bound.specialization.find(bound.config_spec.normalize(config))
    spec = bound.specialization.spec(bound.target, variant)
    for result in watch_stages(variant.trace.function, spec, config, settings, backend):
        stage = result.stage
        yield f"\n== {stage.name}: {stage.reason}"
        reasons = {step.name: step.reason for step in reversed(stage.passes)}
        yield from (f"  {name}: {reasons[name]}" for name in dict(result.changes))
        if result.state.artifact is not None:
            yield result.state.artifact.readable
        elif result.changes or stage is TRACE:
            yield print_function(result.state.function)
        else:
            yield "  nothing changed"


def explain_lines(bound: BoundKernel, count: int) -> Iterator[str]:
    """The default and those that come next."""
    spec = bound.config_spec
    first, *others = spec.ranked_configs(count)
    yield f"{bound.definition.name} on {bound.target}"
    yield f"default    {config_text(first.config)}"
    yield f"because    {first.reason}"
    rival = find_rival(first, others)
    if rival is not None:
        yield from rival_lines(first, rival)
    yield from _prediction_lines(spec, first)
    yield f"results    {determinism_text(bound, first.config)}"
    if others:
        yield "next best"
        width = max(len(number_text(other.predicted.total_ms)) for other in others)
        yield from (_ranked_line(other, width) for other in others)
    for name, reason in spec.rules.missing_ways(spec.kernel).items():
        yield f"without    {name}: {reason}"


def explain_record(bound: BoundKernel, count: int) -> dict[str, Any]:
    """The same as plain values."""
    spec = bound.config_spec
    ranked = spec.ranked_configs(count)
    return {
        "kernel": bound.definition.name,
        "target": str(bound.target),
        "roofline_ms": spec.model.roofline_ms(),
        "results": determinism_text(bound, ranked[0].config),
        "configs": [_ranked_record(item) for item in ranked],
        "without": dict(spec.rules.missing_ways(spec.kernel)),
    }


def _ranked_record(ranked: RankedConfig) -> dict[str, Any]:
    predicted = ranked.predicted
    return {
        "config": dict(ranked.config),
        "reason": ranked.reason,
        "ground": ground_of(ranked.reason),
        "predicted_ms": predicted.total_ms,
        "compute_ms": predicted.compute_ms,
        "memory_ms": predicted.memory_ms,
        "latency_ms": predicted.latency_ms,
        "limiter": predicted.limiter,
    }


def _prediction_lines(spec: ConfigSpec, ranked: RankedConfig) -> Iterator[str]:
    predicted, roofline_ms = ranked.predicted, spec.model.roofline_ms()
    share = ""
    if roofline_ms > 0.0:
        share = f", {roofline_text(roofline_ms, predicted.total_ms)} ({ms_text(roofline_ms)})"
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


def ground_of(reason: str) -> str:
    """What the choice of a heuristic rests on; "" where the model chose."""
    name = reason.removeprefix(HEURISTIC).partition(", ")[0]
    return GROUNDS.get(name, "") if reason.startswith(HEURISTIC) else ""


def find_rival(first: RankedConfig, others: Sequence[RankedConfig]) -> RankedConfig | None:
    """The config of which less time is predicted than of the default, the fastest of these."""
    limit = WORTH_TELLING * first.predicted.total_ms
    faster = [item for item in others if item.predicted.total_ms < limit]
    return min(faster, key=lambda item: item.predicted.total_ms, default=None)


def rival_lines(first: RankedConfig, rival: RankedConfig) -> Iterator[str]:
    """Why the default stands before a config that is predicted to be faster."""
    share = percent_text(1 - rival.predicted.total_ms / first.predicted.total_ms)
    yield f"over       {config_text(rival.config)}, predicted {share} faster"
    yield f"           the model counts on {gain_text(first.predicted, rival.predicted)}"
    ground = ground_of(first.reason)
    if ground:
        yield f"           but here {ground};"
        yield "           measured times come before predicted ones. `tilesmith tune` measures both"


def gain_text(slow: Prediction, fast: Prediction) -> str:
    """The part of the time that differs most between two predictions."""
    gains = {name: getattr(slow, name) - getattr(fast, name) for name in _PARTS}
    name = max(gains, key=lambda name: gains[name])
    times = ms_text(getattr(fast, name)), ms_text(getattr(slow, name))
    return f"less {_PARTS[name]}: {times[0]} instead of {times[1]}"


add_to = make_command_adder(facts=facts, explain=explain)
