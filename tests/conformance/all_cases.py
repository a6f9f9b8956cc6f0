"""The list of conformance cases."""

from __future__ import annotations

from tests.conformance.atomic_kernels import ATOMICS
from tests.conformance.barrier_kernels import BARRIERS
from tests.conformance.case import Case
from tests.conformance.combine_kernels import COMBINES
from tests.conformance.contraction_kernels import CONTRACTIONS
from tests.conformance.control_flow_kernels import CONTROL_FLOW
from tests.conformance.creation_kernels import CREATION
from tests.conformance.documented_kernels import DOCUMENTED
from tests.conformance.helper_kernels import HELPERS
from tests.conformance.indexing_kernels import INDEXING
from tests.conformance.jagged_kernels import JAGGED
from tests.conformance.jump_kernels import JUMPS
from tests.conformance.literal_kernels import LITERALS
from tests.conformance.lookup_kernels import LOOKUPS
from tests.conformance.loop_form_kernels import LOOP_FORMS
from tests.conformance.masking_kernels import MASKING
from tests.conformance.memory_kernels import MEMORY
from tests.conformance.ordered_tile_kernels import ORDERED_TILES
from tests.conformance.product_kernels import PRODUCTS
from tests.conformance.random_kernels import RANDOM
from tests.conformance.rearrangement_kernels import REARRANGEMENTS
from tests.conformance.scaled_kernels import SCALED
from tests.conformance.scan_kernels import SCANS
from tests.conformance.sign_kernels import SIGNS
from tests.conformance.slice_kernels import SLICES
from tests.conformance.spelling_kernels import SPELLINGS
from tests.conformance.stack_kernels import STACKS

CASES: tuple[Case, ...] = (
    *DOCUMENTED,
    *CREATION,
    *INDEXING,
    *SLICES,
    *MASKING,
    *CONTROL_FLOW,
    *LOOP_FORMS,
    *HELPERS,
    *JUMPS,
    *JAGGED,
    *BARRIERS,
    *MEMORY,
    *ATOMICS,
    *STACKS,
    *PRODUCTS,
    *CONTRACTIONS,
    *SCALED,
    *SCANS,
    *COMBINES,
    *REARRANGEMENTS,
    *ORDERED_TILES,
    *LOOKUPS,
    *RANDOM,
    *SIGNS,
    *LITERALS,
    *SPELLINGS,
)
