"""Every error and warning of the package, under the names users catch and silence them by."""

from __future__ import annotations

from tilesmith.diagnostics.catalogue import *
from tilesmith.diagnostics.kernel_errors import *
from tilesmith.diagnostics.kernel_warnings import *
from tilesmith.diagnostics.operation_errors import *
from tilesmith.diagnostics.operator_errors import *
from tilesmith.diagnostics.statement_errors import *

__all__ = [  # pyright: ignore[reportUnsupportedDunderAll]
    name
    for name, value in sorted(globals().items())
    if isinstance(value, type) and issubclass(value, Base)
]
