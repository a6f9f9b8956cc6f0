"""Every example kernel as data: the one table behind all suites that run example kernels."""

from __future__ import annotations

from tests.examples.attention_cases import ATTENTION
from tests.examples.case import Case
from tests.examples.distributed_cases import DISTRIBUTED
from tests.examples.founding_cases import FOUNDING
from tests.examples.jagged_cases import JAGGED
from tests.examples.pointwise_cases import POINTWISE
from tests.examples.product_cases import PRODUCT
from tests.examples.recurrence_cases import RECURRENCE
from tests.examples.row_cases import ROWWISE

EXAMPLES: tuple[Case, ...] = (
    *FOUNDING,
    *POINTWISE,
    *ROWWISE,
    *JAGGED,
    *PRODUCT,
    *ATTENTION,
    *RECURRENCE,
    *DISTRIBUTED,
)
