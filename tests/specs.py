"""Specifications of Configs for functions on targets, with the rules of the target's backend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilesmith.backends.table import BACKENDS
from tilesmith.compiler.specialization import make_spec
from tilesmith.ir.function import Function
from tilesmith.schedule.resolution import MultiFormSpec
from tilesmith.schedule.space.fragments import Fragment
from tilesmith.schedule.spec import ConfigSpec
from tilesmith.settings import Settings
from tilesmith.targets import Target

Tunables = Mapping[str, Fragment] | None


def config_spec(function: Function, target: Target, tunables: Tunables = None) -> ConfigSpec:
    """What a Config may say about one form of a function."""
    return ConfigSpec(function, BACKENDS.rules(target), tunables)


def form_spec(
    function: Function, target: Target, tunables: Tunables = None, **settings: Any
) -> MultiFormSpec:
    """What a Config may say about a function, in whatever form."""
    return make_spec(function, BACKENDS.rules(target), tunables or {}, Settings(**settings))
