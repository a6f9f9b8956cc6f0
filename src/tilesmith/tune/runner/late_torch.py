"""Torch for processes that as a rule need none: it is imported when an attribute of it is used.

Builders come across two imports of it. Generated modules have one for their launch functions, which
are never called here; Triton wants the class of tensors, and none is among the arguments here.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

NAME = "torch"


class _NoTensor:
    """Stands for ``torch.Tensor`` where no value can be one."""


class _LateTorch(ModuleType):
    """Takes the place of torch until more than the class of tensors is wanted."""

    Tensor = _NoTensor

    def __getattr__(self, name: str) -> Any:
        """What is not here: that of the real one, which takes its own place then."""
        if name.startswith("__") and name != "__path__":
            raise AttributeError(name)
        if sys.modules.get(NAME) is self:
            del sys.modules[NAME]
        return getattr(import_module(NAME), name)


def postpone_torch() -> None:
    """Let ``import torch`` do nothing yet in this process, unless it was imported before."""
    sys.modules.setdefault(NAME, _LateTorch(NAME))
