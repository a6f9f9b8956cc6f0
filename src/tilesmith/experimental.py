"""What may still change: gradients of kernels."""

from __future__ import annotations

from tilesmith.autodiff.backward import backward

__all__ = ["backward"]
