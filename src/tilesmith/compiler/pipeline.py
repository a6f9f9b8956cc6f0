"""Everything that happens from a traced function to emitted source: one list, in stages.

A pass that runs anywhere stands here, with its reason. Schedule and backends call none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count, starmap
from math import prod
from typing import Any

from tilesmith.backends.interface import Backend
from tilesmith.compiler.backend_steps import BACKEND_STEPS, BackendStep
from tilesmith.compiler.checks import check_loops, check_products
from tilesmith.compiler.lowering import (
    Lowering,
    Pass,
    Stage,
    is_verified,
    known,
    rewrite,
    run_stages,
    step,
)
from tilesmith.diagnostics.catalogue import BaseWarning
from tilesmith.diagnostics.kernel_warnings import WarningLog
from tilesmith.ir.function import Function
from tilesmith.ir.types import Dim
from tilesmith.passes.accesses import forward_stored_values, number_slots, order_memory
from tilesmith.passes.eliminate_dead_code import eliminate_dead_code
from tilesmith.passes.expressions import (
    fuse_accumulating_dots,
    hoist_loop_invariants,
    merge_common_subexpressions,
)
from tilesmith.passes.flatten_tiles import flatten_tiles
from tilesmith.passes.masks import drop_idle_selections, mask_partial_tiles
from tilesmith.passes.product_forms.named import split_as, take_pairs_apart
from tilesmith.passes.roll_reductions import roll_reductions
from tilesmith.passes.simplify import fold_constants, simplify_algebra
from tilesmith.passes.squeeze_unit_axes import squeeze_unit_axes
from tilesmith.schedule.config import STRUCTURE as STRUCTURE_KEY
from tilesmith.schedule.config import Config
from tilesmith.schedule.resolution import resolve_schedule
from tilesmith.schedule.space.slots import Entries
from tilesmith.schedule.spec import ConfigSpec
from tilesmith.settings import Settings


def _check_loops(state: Lowering) -> Lowering:
    check_loops(state.function)
    return state


def _check_products(state: Lowering) -> Lowering:
    check_products(state.function, state.log)
    return state


def _split_rows(state: Lowering) -> Lowering:
    """As the config's ``structure`` says; the function as it is where that is not certain."""
    split = split_as(state.function, state.config.get(STRUCTURE_KEY) or "")
    return state if split is None else replace(state, function=split)


def _roll_reductions(state: Lowering) -> Lowering:
    """Over the chunks of ``reduction_loops``, each a new block."""
    chunks = _chunk_blocks(state.function, known(state.spec).entries, state.config)
    if not chunks:
        return state
    rolled = roll_reductions(state.function, {dim: name for dim, (name, _) in chunks.items()})
    return replace(state, function=rolled, symbols={**state.symbols, **dict(chunks.values())})


def _chunk_blocks(
    function: Function, entries: Entries, values: Mapping[str, Any]
) -> dict[Dim, tuple[str, int]]:
    """A fresh block and its size for each dimension that is walked in chunks."""
    taken = {item.name for item in (*function.blocks, *function.sizes)}
    found: dict[Dim, tuple[str, int]] = {}
    for dim, chunk in zip(entries.rolled, values.get("reduction_loops") or []):
        if chunk is not None:
            names = (f"chunk_{number}" if number else "chunk" for number in count())
            taken.add(name := next(name for name in names if name not in taken))
            found[dim] = (name, chunk)
    return found


def _flatten_tiles(state: Lowering) -> Lowering:
    """Of the grids that ``flatten_loops`` marks; the parts of a joint block give its size."""
    marks = zip(known(state.spec).entries.flattened, state.config.get("flatten_loops") or [])
    slots = {grid.slot for grid, is_flat in marks if is_flat}
    if not slots:
        return state
    flat, joined = flatten_tiles(state.function, slots)
    sizes = {name: prod(state.symbols[part] for part in parts) for name, parts in joined.items()}
    return replace(state, function=flat, symbols={**state.symbols, **sizes})


def _resolve_schedule(state: Lowering) -> Lowering:
    settings, reserved = state.settings, state.settings.persistent_reserved_sms
    schedule = resolve_schedule(state.function, known(state.spec), state.config, state.symbols)
    options = {
        **schedule.backend_options,
        "fast_math": settings.fast_math,
        "output_origin_lines": settings.output_origin_lines,
        "do_not_specialize": settings.triton_do_not_specialize,
        # A backend with an IR of its own looks at it where passes are looked at.
        "is_verified": is_verified(settings),
    }
    schedule = replace(schedule, backend_options=options, reserved_sms=reserved)
    return replace(state, schedule=schedule)


def _take_pairs_apart(state: Lowering) -> Lowering:
    if (spec := state.spec) is None:  # a function that no kernel was traced to
        return state
    extent, most = spec.kernel.outline.extent, spec.rules.most_rows_by_pairs
    return replace(state, function=take_pairs_apart(state.function, most, extent))


def _squeeze_unit_axes(state: Lowering) -> Lowering:
    sizes = known(state.schedule).symbols
    units = [block.name for block in state.function.blocks if sizes[block.name] == 1]
    return replace(state, function=squeeze_unit_axes(state.function, units))


def _asked_for(run: BackendStep, reason: str) -> Pass:
    def apply(state: Lowering) -> Lowering:
        found = run(state.function, known(state.backend), known(state.schedule))
        return replace(state, function=found)

    return Pass(run.__name__, reason, apply)


def _emit(state: Lowering) -> Lowering:
    return replace(state, artifact=known(state.backend).emit(state.function, known(state.schedule)))


TRACE = Stage(
    "TRACE",
    "Once for each trace: the function as the frontend has recorded it.",
    (
        step(
            _check_loops,
            "Mistakes of the user are told before anything is moved away from its line.",
        ),
    ),
)

STANDARD = Stage(
    "STANDARD",
    "Once for each trace: what is better under every config, and the slots that configs count.",
    (
        rewrite(
            fold_constants, "Constants first: identities and merging see through what they fold."
        ),
        rewrite(simplify_algebra, "Identities leave fewer ops for all that follows."),
        rewrite(
            fold_constants, "Again: it costs little and catches what the identities laid bare."
        ),
        rewrite(
            fuse_accumulating_dots,
            "Before merging: a product written twice is added twice, and merged it would have two "
            "uses and be rounded.",
        ),
        rewrite(
            merge_common_subexpressions,
            "Equal indices become one value, which the memory passes and the dot pass count on.",
        ),
        rewrite(
            drop_idle_selections,
            "Lanes past their lengths are masked in loads and selected away after them, by one "
            "condition.",
        ),
        rewrite(
            forward_stored_values,
            "A value used instead of loaded back needs no barrier, so this comes before "
            "order_memory.",
        ),
        rewrite(
            eliminate_dead_code,
            "Fewer uses after dead code is gone: a product used once can take its accumulator.",
        ),
        rewrite(fuse_accumulating_dots, "Again, for the products that are used once only now."),
        rewrite(
            mask_partial_tiles,
            "Masks come after all that may change what invalid lanes hold; forwarded values do.",
        ),
        rewrite(hoist_loop_invariants, "With the masks, which are often the same in every turn."),
        rewrite(merge_common_subexpressions, "Masks and hoisted ops may have doubles."),
        rewrite(eliminate_dead_code, "What merging has left without a use goes."),
        rewrite(order_memory, "After all that adds, drops or moves an access."),
        rewrite(number_slots, "Last, so that a config counts what is really there."),
        step(
            _check_products, "After fusing: a product that took its accumulator loses no precision."
        ),
    ),
)

STRUCTURE = Stage(
    "STRUCTURE",
    "Once for each structure that configs may name: rows split over programs.",
    (
        step(
            _split_rows,
            "Rows that are reduced, of a product or loaded, are shared as the config names it.",
        ),
        rewrite(eliminate_dead_code, "What is exchanged is not computed again.", cleanup=True),
        rewrite(
            mask_partial_tiles,
            "The accumulator is loaded now, and with that its invalid lanes hold something else.",
            cleanup=True,
        ),
        rewrite(merge_common_subexpressions, "New masks may have doubles.", cleanup=True),
        rewrite(hoist_loop_invariants, "So may what was copied into loops.", cleanup=True),
        rewrite(order_memory, "Scratch memory is stored and loaded back.", cleanup=True),
        rewrite(number_slots, "A config of this structure counts its accesses.", cleanup=True),
    ),
)

SCHEDULED = Stage(
    "SCHEDULED",
    "Once for each config: its choices that change the IR, then all others by slot. Slots stay as "
    "STANDARD numbered them: copies of an access share its options.",
    (
        step(
            _roll_reductions,
            "Rows that fit no registers are walked in chunks; before flattening, which can join "
            "what is left.",
        ),
        rewrite(
            order_memory,
            "Loops changed the order of accesses that no longer share their indices.",
            cleanup=True,
        ),
        step(_flatten_tiles, "Grids over several axes run over one where the config asks for it."),
        rewrite(fold_constants, "Rolling and flattening leave constant extents.", cleanup=True),
        rewrite(simplify_algebra, "Divisions by such an extent may go.", cleanup=True),
        rewrite(merge_common_subexpressions, "They leave doubled indices, too.", cleanup=True),
        rewrite(hoist_loop_invariants, "New loops have invariants of their own.", cleanup=True),
        rewrite(eliminate_dead_code, "Old indices have no use any more.", cleanup=True),
        step(_resolve_schedule, "Pads constants, so it looks at the ops that will be emitted."),
    ),
)

TARGET = Stage(
    "TARGET",
    "Once for each config: what the schedule's sizes and the device make of the function.",
    (
        step(_take_pairs_apart, "Joined pairs are no matrix that can be packed: two products are."),
        step(
            _squeeze_unit_axes,
            "An axis of one element is no axis: matrix units and vectors get their shapes.",
        ),
        *starmap(_asked_for, BACKEND_STEPS),
    ),
)

EMIT = Stage(
    "EMIT",
    "Once for each config: the text of the target's language and how to launch it.",
    (step(_emit, "The only step that leaves the IR."),),
)

STAGES = (TRACE, STANDARD, STRUCTURE, SCHEDULED, TARGET, EMIT)


@dataclass(frozen=True)
class StageResult:
    """What one stage has made of a function, for readers."""

    stage: Stage
    changes: tuple[tuple[str, Function], ...]
    """The passes that changed the function, in order, and what each has made of it."""
    state: Lowering
    """After the stage; with the emitted code after the last one."""


def watch_stages(
    traced: Function, spec: ConfigSpec, config: Config, settings: Settings, backend: Backend
) -> Iterator[StageResult]:
    """Every stage once more, from a traced function to the code of one config of ``spec``."""
    changes: list[tuple[str, Function]] = []

    def note(stage: Stage, step: Pass, before: Function, after: Function) -> None:
        if after is not before:
            changes.append((step.name, after))

    def run(stage: Stage, state: Lowering) -> Lowering:
        changes.clear()
        return run_stages(state, [stage], [note])

    silent = WarningLog(ignore=(BaseWarning,))
    state = Lowering(traced, settings, silent, config=spec.normalize(config))
    for stage in (TRACE, STANDARD, STRUCTURE):
        state = run(stage, state)
        yield StageResult(stage, tuple(changes), state)
    start = Lowering.of_config(*spec.of(state.config), settings, backend)
    state = replace(start, function=state.function)
    for stage in (SCHEDULED, TARGET, EMIT):
        state = run(stage, state)
        yield StageResult(stage, tuple(changes), state)
