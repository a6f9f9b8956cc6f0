"""What the compiler did with a bound kernel, as plain values: the data of the page.

The compiler knows nothing of this: stages run once more, with what each pass leaves behind noted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilesmith.compiler.lowering import Lowering, known
from tilesmith.compiler.pipeline import EMIT, SCHEDULED, StageResult, watch_stages
from tilesmith.compiler.specialization import Variant
from tilesmith.diagnostics.catalogue import BaseError
from tilesmith.dtypes import DType
from tilesmith.explore.costs import costs_of, limits_of, ranked_of
from tilesmith.explore.machine_code import MachineCode, make_assembly, make_machine_code
from tilesmith.explore.nest import Nest
from tilesmith.explore.origins import Column, Source, column_of_code, column_of_ir
from tilesmith.explore.reuse import StepBytes, count_reuse
from tilesmith.explore.tiles import Limit, Picture, Step, record_tiles
from tilesmith.interpreter.observers import TimeLimitError
from tilesmith.ir.function import Function
from tilesmith.jit.bound_kernel import BoundKernel
from tilesmith.schedule.config import Config
from tilesmith.settings import Settings
from tilesmith.store.config_text import config_text


@dataclass(frozen=True)
class Subject:
    """One config to look at."""

    config: Config
    label: str
    measured_ms: float | None = None
    """A time that the caller has measured."""


def collect(bound: BoundKernel, subjects: Sequence[Subject]) -> dict[str, Any]:
    """The data of a page: what all configs share, and one view for each."""
    source = Source.of(bound.definition.fn, bound.traced_function)
    views = [_view(bound, subject, source) for subject in subjects]
    return {
        "kernel": bound.definition.name,
        "arguments": bound.described,
        "target": str(bound.target),
        "facts": str(bound.facts),
        "source": {**source.own_column().to_json(), "labels": source.labels},
        "ranked": ranked_of(bound),
        "limits": limits_of(bound),
        "views": views,
        # Last: the table grows while columns are made.
        "places": source.places,
    }


def _view(bound: BoundKernel, subject: Subject, source: Source) -> dict[str, Any]:
    config = bound.config_spec.normalize(subject.config)
    variant = bound.specialization.find(config)
    results = list(_watch(bound, variant, config))
    scheduled = next(result.state for result in results if result.stage is SCHEDULED)
    final = results[-1].state
    sizes = variant.trace.observed
    artifact = known(final.artifact)
    emitted = column_of_code(artifact.readable, source)
    keys = bound.config_spec.of(config)[0].supported_keys
    choices = {k: v for k, v in config.items() if k in keys and not isinstance(v, list) and v}
    nest = Nest(final.function, known(final.schedule), sizes, source, choices)
    machine = _machine_code(final, emitted, sizes, source)
    forms = bound.definition.backends.of(bound.target).forms
    return {
        "label": subject.label,
        "config": config_text(config),
        "paste": repr(config),
        "stages": list(_stages(results, source)),
        "schedule": nest.column().to_json(),
        "emitted": {"title": forms[0], **emitted.to_json()},
        "machine": [{"title": n, **c.to_json()} for n, c in machine.columns.items()],
        "built": {
            "registers": machine.registers,
            "spilled_bytes": machine.spilled_bytes,
            "shared_bytes": machine.shared_bytes,
            "notes": list(machine.notes),
        },
        "tiles": _tiles(bound, config, scheduled),
        "costs": costs_of(bound, config, subject.measured_ms),
    }


def _watch(bound: BoundKernel, variant: Variant, config: Config) -> Any:
    """Of the trace that the config runs: host code may have read block sizes."""
    settings = bound.specialization.with_settings(output_origin_lines=True).settings
    assert isinstance(settings, Settings)
    backend = bound.definition.backends.of(bound.target)
    spec = bound.specialization.spec(bound.target, variant)
    return watch_stages(variant.trace.function, spec, config, settings, backend)


def _stages(results: Sequence[StageResult], source: Source) -> Any:
    """The IR after every pass that changed it."""
    shown: Function | None = None
    for result in results:
        reasons = {step.name: step.reason for step in reversed(result.stage.passes)}
        changes = list(result.changes)
        if shown is None and not changes:
            changes = [("trace", result.state.function)]
            reasons["trace"] = result.stage.reason
        if result.stage is EMIT:
            continue
        for name, function in changes:
            shown = function
            column = column_of_ir(function, source).to_json()
            yield {"stage": result.stage.name, "name": name, "reason": reasons[name], **column}


def _machine_code(
    state: Lowering, emitted: Column, sizes: Mapping[str, int], source: Source
) -> MachineCode:
    """A toolchain may refuse code; the page then says so."""
    artifact = known(state.artifact)
    try:
        if artifact.llvm:
            return make_assembly(state.function, known(state.schedule), artifact, source)
        return make_machine_code(artifact, emitted, sizes)
    except (BaseError, RuntimeError, ValueError) as error:
        return MachineCode({}, notes=(f"no machine code: {error}".strip().split("\n")[0],))


def tiles_of(bound: BoundKernel, config: Config) -> dict[str, Any]:
    """The picture of the tiles alone, for which no code is made."""
    wanted = bound.config_spec.normalize(config)
    watched = _watch(bound, bound.specialization.find(wanted), wanted)
    return _tiles(bound, wanted, next(item.state for item in watched if item.stage is SCHEDULED))


def _tiles(bound: BoundKernel, config: Config, state: Lowering) -> dict[str, Any]:
    """The picture of the tiles; where it cannot be made, why."""
    function, schedule = state.function, known(state.schedule)
    try:
        captured = bound.capture_launch(bound.specialization.recall_arguments(), config)
        names = [parameter.value.name for parameter in function.parameters]
        arguments = dict(zip(names, captured.read([p.source for p in function.parameters])))
        sizes = {size.name: int(arguments[size.name]) for size in function.sizes}
        blocks = {block.name: state.symbols[block.name] for block in function.blocks}
        orders = schedule.grids
        picture = record_tiles(function, arguments, {**sizes, **blocks}, orders, Limit())
    except (BaseError, TimeLimitError, RuntimeError) as error:
        return {"problem": str(error).strip().split("\n")[0]}
    return picture_json(picture, arguments)


def picture_json(picture: Picture, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """A picture with every step as a list: where loops stand, bytes, boxes.

    Boxes are lists, too: access, elements, then start and length of each dimension.
    """
    tensors = [op.tensor.name for op in picture.accesses]
    sizes = {op.tensor.name: arguments[op.tensor.name].element_size() for op in picture.accesses}
    counted = count_reuse(picture, tensors, sizes)
    kinds = {op.tensor.name: op.tensor.tensor.dtype for op in picture.accesses}
    return {
        "tensors": [_tensor_json(name, arguments[name], kinds[name]) for name in sizes],
        "accesses": [
            {"tensor": op.tensor.name, "kind": op.name, "place": str(op.loc)}
            for op in picture.accesses
        ],
        "grids": [
            {"names": grid.names, "counts": grid.counts, "sizes": grid.sizes, "total": grid.total}
            for grid in picture.grids
        ],
        "programs": [
            {
                "grid": program.grid,
                "number": program.number,
                "starts": program.starts,
                "steps": [_step_json(step, found) for step, found in zip(program.steps, steps)],
            }
            for program, steps in zip(picture.programs, counted)
        ],
    }


def _step_json(step: Step, found: StepBytes) -> list[Any]:
    boxes = [
        [box.access, box.elements, *(n for pair in box.ranges for n in pair)] for box in step.boxes
    ]
    return [step.at, [found.asked, found.new_to_program, found.new], boxes]


def _tensor_json(name: str, tensor: Any, dtype: DType) -> dict[str, Any]:
    return {
        "name": name,
        "shape": list(tensor.shape),
        "dtype": str(dtype),
        "bytes": tensor.element_size(),
    }
