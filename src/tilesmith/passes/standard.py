"""The passes every function goes through, in order."""

from __future__ import annotations

from tilesmith.passes.drop_idle_selections import drop_idle_selections
from tilesmith.passes.eliminate_dead_code import eliminate_dead_code
from tilesmith.passes.fold_constants import fold_constants
from tilesmith.passes.forward_stored_values import forward_stored_values
from tilesmith.passes.fuse_accumulating_dots import fuse_accumulating_dots
from tilesmith.passes.hoist_loop_invariants import hoist_loop_invariants
from tilesmith.passes.mask_partial_tiles import mask_partial_tiles
from tilesmith.passes.merge_common_subexpressions import merge_common_subexpressions
from tilesmith.passes.number_slots import number_slots
from tilesmith.passes.order_memory import order_memory
from tilesmith.passes.pipeline import Pipeline, make_pipeline
from tilesmith.passes.simplify_algebra import simplify_algebra

STANDARD: Pipeline = make_pipeline(
    # Constants first: identities and merging see through what they fold.
    fold_constants,
    simplify_algebra,
    # Folding again costs little and catches what the identities laid bare.
    fold_constants,
    # A product written twice is added twice: merged it would have two uses and be rounded.
    fuse_accumulating_dots,
    # Equal indices become one value, which the memory passes and the dot pass count on.
    merge_common_subexpressions,
    # Lanes past their lengths are masked in loads and selected away after them, by one condition.
    drop_idle_selections,
    # A value used instead of loaded back needs no barrier, so this comes before order_memory.
    forward_stored_values,
    # Fewer uses after dead code is gone: a product used once can take its accumulator.
    eliminate_dead_code,
    fuse_accumulating_dots,
    # Masks come after everything that may change what invalid lanes hold (forwarded values do).
    mask_partial_tiles,
    hoist_loop_invariants,
    # Masks and hoisted ops may have doubles.
    merge_common_subexpressions,
    eliminate_dead_code,
    order_memory,
    # Last, so that a Config counts what is really there.
    number_slots,
)
"""Once for each trace; independent of the Config."""

SCHEDULED: Pipeline = make_pipeline(
    # What flatten_tiles and roll_reductions leave: constant extents, doubled indices and masks.
    fold_constants,
    simplify_algebra,
    merge_common_subexpressions,
    hoist_loop_invariants,
    eliminate_dead_code,
)
"""After ``flatten_tiles`` and ``roll_reductions``, which take their arguments from the Config.

Slots stay as ``STANDARD`` numbered them: copies of an access share its options.
"""
