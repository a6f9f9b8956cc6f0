"""The list of conformance cases."""

from __future__ import annotations

from tests.conformance.case import Case
from tests.conformance.control_flow_kernels import CONTROL_FLOW
from tests.conformance.documented_kernels import DOCUMENTED
from tests.conformance.indexing_kernels import INDEXING
from tests.conformance.masking_kernels import MASKING
from tests.conformance.memory_kernels import MEMORY
from tests.conformance.product_kernels import PRODUCTS
from tests.conformance.random_kernels import RANDOM
from tests.conformance.scan_kernels import SCANS

CASES: tuple[Case, ...] = (
    *DOCUMENTED,
    *INDEXING,
    *MASKING,
    *CONTROL_FLOW,
    *MEMORY,
    *PRODUCTS,
    *SCANS,
    *RANDOM,
)
