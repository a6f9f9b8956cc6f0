"""Judges results in float64, which takes longer than all else, only where they are new.

A second call, the replay of a graph and a call after timing mostly give the very bits of the first:
equal tensors are judged alike, so the comparison of bits is enough. What the model predicts of a
launch stands beside its times.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from tilesmith.bench.reference import Judge, Judgement
from tilesmith.frontend.containers import tensors_in
from tilesmith.jit.bound_kernel import BoundKernel
from tilesmith.schedule.config import Config


class JudgesOnce(Judge):
    """Keeps the tensors of the first call, which must not change, and what was said of them."""

    _first: tuple[list[torch.Tensor], Judgement] | None = None

    def judge(self, returned: Any) -> Judgement:
        """As that of any judge."""
        found = list(tensors_in(returned))
        if self._first is None:
            self._first = found, super().judge(found)
            return self._first[1]
        kept, judgement = self._first
        is_right = not judgement.problem and len(found) == len(kept)
        is_same = is_right and all(map(_is_same, found, kept))
        return judgement if is_same else super().judge(found)


def _is_same(left: torch.Tensor, right: torch.Tensor) -> bool:
    is_alike = left.device == right.device and left.dtype == right.dtype
    return is_alike and torch.equal(left, right)


def predicted(bounds: Mapping[str, BoundKernel], configs: Mapping[str, Config]) -> dict[str, Any]:
    """Fields of a row: of all kernels together, each launched once; none where it is not known."""
    try:
        launches = [bounds[name].config_spec.predict(config) for name, config in configs.items()]
    except Exception:  # a row without it is a row
        return {}
    longest = max(launches, key=lambda launch: launch.total_ms, default=None)
    total_ms = sum(launch.total_ms for launch in launches)
    return {"predicted_ms": total_ms, "limiter": longest.limiter} if longest else {}
