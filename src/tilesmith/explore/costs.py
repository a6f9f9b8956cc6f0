"""What a config costs, by the model of the device: its parts, its roofline, what others would cost.

Times are predictions unless they are called measured: those come from the store, or from here.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from tilesmith.diagnostics.catalogue import BaseError
from tilesmith.jit.bound_kernel import BoundKernel
from tilesmith.jit.compiled_kernel import ConfigLike
from tilesmith.measure.timer import time_on_cpu, time_on_device
from tilesmith.schedule.config import Config
from tilesmith.schedule.facts.work import ELEMENTWISE, REDUCTION, TRANSCENDENTAL
from tilesmith.schedule.model.estimates import Prediction
from tilesmith.schedule.spec import ConfigSpec
from tilesmith.store.config_text import config_text
from tilesmith.store.winners import Winners

NUM_RANKED = 8
MAX_NEIGHBOURS = 60
REPEATS, NAME = 15, "kernel"


def costs_of(bound: BoundKernel, config: Config, measured_ms: float | None) -> dict[str, Any]:
    """Everything of one config, as plain values."""
    spec = bound.config_spec
    predicted = spec.predict(config)
    use = spec.resources(spec.settle(config))
    measured = measured_ms if measured_ms is not None else stored_ms(bound, config)
    return {
        "predicted": prediction(predicted),
        "measured_ms": measured,
        "resources": {
            "registers": use.expected_registers or None,
            "register_limit": use.limits.registers or None,
            "shared_bytes": use.shared_bytes or None,
            "shared_limit": use.limits.shared_bytes or None,
        },
        "roofline_ms": spec.model.roofline_ms(),
        "reason": reason_of(bound, config),
        "neighbours": sorted(neighbours(spec, config), key=lambda item: item["ms"] or 1e99),
    }


def prediction(found: Prediction) -> dict[str, Any]:
    """The parts of a time."""
    return {
        "total_ms": found.total_ms,
        "compute_ms": found.compute_ms,
        "memory_ms": found.memory_ms,
        "latency_ms": found.latency_ms,
        "waves": found.waves,
        "occupancy": found.occupancy,
        "limiter": found.limiter,
    }


def stored_ms(bound: BoundKernel, config: Config) -> float | None:
    """What a search has measured for these arguments, this target and this config."""
    for winner in reversed(Winners(bound.settings.cache_dir).entries(bound.definition.name)):
        is_same = winner.config == config and winner.key.target == str(bound.target)
        if is_same and winner.key.arguments == bound.stored_as and not winner.is_stale:
            return winner.median_ms
    return None


def reason_of(bound: BoundKernel, config: Config) -> str:
    """Why a kernel runs with the config, as far as anything knows."""
    spec = bound.config_spec
    wanted = spec.normalize(config)
    for ranked in spec.ranked_configs(NUM_RANKED):
        if spec.normalize(ranked.config) == wanted:
            return ranked.reason
    if bound.chosen is not None and spec.normalize(bound.chosen) == wanted:
        return "it was set, or a search has found it"
    return "it was given"


def ranked_of(bound: BoundKernel) -> list[dict[str, Any]]:
    """The configs that come first without a search: the default, then the model's."""
    return [
        {
            "config": config_text(item.config),
            "reason": item.reason,
            "predicted": prediction(item.predicted),
        }
        for item in bound.config_spec.ranked_configs(NUM_RANKED)
    ]


def neighbours(spec: ConfigSpec, config: Config) -> Iterator[dict[str, Any]]:
    """Configs with one entry changed by one step, and what the model says of them."""
    form, plain = spec.of(spec.normalize(config))
    full = dict(form.normalize(plain))
    count = 0
    for item in spec.active_dimensions(config):
        present = item.get(full)
        for value in item.fragment.neighbours(present):
            values = deepcopy(full)
            item.put(values, value)
            count += 1
            if count > MAX_NEIGHBOURS:
                return
            yield {
                "key": str(item),
                "from": repr(present),
                "to": repr(value),
                **_cost(form, values),
            }


def _cost(form: ConfigSpec, values: dict[str, Any]) -> dict[str, Any]:
    """The time of a config, or why it cannot be expected to build."""
    try:
        problem = form.feasibility(values)
        if problem is None:
            return {"ms": form.predict(values).total_ms, "problem": ""}
    except BaseError as error:
        problem = str(error).strip().split("\n", maxsplit=1)[0]
    return {"ms": None, "problem": problem}


def limits_of(bound: BoundKernel) -> dict[str, Any]:
    """What the device can do and what the kernel asks of it: the roofline."""
    spec, facts = bound.config_spec, bound.facts
    device = spec.rules.device()
    flops = facts.flops or {}
    kinds = (ELEMENTWISE, TRANSCENDENTAL, REDUCTION)
    others = sum(facts.work.total(kind) or 0.0 for kind in kinds)
    roofs = {name: device.matrix_rate(name) for name in flops} or {"fp32": device.vector_rate}
    return {
        "device": device.name,
        "bytes": facts.bytes,
        "operations": sum(flops.values()) or others,
        "is_matmul": bool(flops),
        "memory_rate": device.dram_rate,
        "roofs": roofs,
    }


class NotHereError(Exception):
    """The page is about a device that the arguments are not on."""


def measure_ms(bound: BoundKernel, config: ConfigLike) -> float:
    """The median time of a call with the arguments that the kernel was bound to."""
    kinds = bound.definition.backends.of(bound.target).device_types
    if bound.device.type not in kinds:
        raise NotHereError(f"{bound.target} is not here: arguments are on {bound.device.type}")
    arguments = bound.specialization.recall_arguments()
    run = bound.compile_config(config)
    run(*arguments)
    timer = time_on_cpu if bound.device.type == "cpu" else time_on_device
    return timer({NAME: lambda: run(*arguments)}, repeats=REPEATS)[NAME].median_ms
