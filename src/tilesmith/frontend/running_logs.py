"""``torch.logcumsumexp``: a scan whose combination is the logarithm of a sum."""

from __future__ import annotations

from typing import Any

from tilesmith.frontend.combine import associative_scan
from tilesmith.frontend.composition import Rule
from tilesmith.frontend.emission import apply, cast
from tilesmith.frontend.promotion import compute_dtype
from tilesmith.frontend.special_functions import log_sum
from tilesmith.frontend.values import TileValue

_log_of_sum = log_sum("exp", lambda x: apply("log1p", x))


def _combine(left: TileValue, right: TileValue) -> TileValue:
    return _log_of_sum(left, right)


def logcumsumexp(x: TileValue, dim: Any) -> TileValue:
    """The logarithm of the running sum of exponentials; each pair around its own maximum."""
    if not x.tile.rank:
        return x
    wide = cast(x, compute_dtype(x.tile.dtype))
    return cast(associative_scan(_combine, wide, dim), x.tile.dtype)


RUNNING_LOGS: dict[str, Rule] = {"logcumsumexp": logcumsumexp}
