"""Predictions for the Configs of one specification, and the bound that no Config can beat."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Protocol

from tilesmith.schedule.device_model import Device, device_of
from tilesmith.schedule.facts.collect import Facts
from tilesmith.schedule.facts.outline import FunctionOutline
from tilesmith.schedule.launch_summary import launch_of
from tilesmith.schedule.model.prediction import Prediction
from tilesmith.schedule.model.program_work import WorkModel
from tilesmith.schedule.predict import GpuModel
from tilesmith.schedule.predict_cpu import CpuModel
from tilesmith.schedule.product_time import ProductModel
from tilesmith.schedule.resources import ResourceModel
from tilesmith.schedule.space.slots import Entries
from tilesmith.schedule.space.tile_sizes import TileSizes
from tilesmith.targets import Target


class PredictedSpec(Protocol):
    """What predictions need of a ConfigSpec."""

    structure: FunctionOutline
    facts: Facts
    entries: Entries
    target: Target
    resource_model: ResourceModel

    def sizes(self, values: Mapping[str, Any]) -> TileSizes:
        """Physical sizes of all dimensions."""
        ...


class Predictor:
    """Predicts normalised values; made once for a specification."""

    def __init__(self, spec: PredictedSpec) -> None:
        self._spec = spec
        self.device: Device = device_of(spec.target)

    @cached_property
    def _work(self) -> WorkModel:
        spec = self._spec
        return WorkModel(spec.structure, spec.facts, spec.resource_model.pipeline)

    @cached_property
    def _gpu(self) -> GpuModel:
        spec = self._spec
        products = ProductModel(spec.target, self.device, spec.resource_model.pipeline)
        return GpuModel(self._work, spec.entries, self.device, products)

    @cached_property
    def _cpu(self) -> CpuModel:
        return CpuModel(self._work, self._spec.target, self.device)

    def predict(self, values: Mapping[str, Any]) -> Prediction:
        """The time of one launch."""
        spec, sizes = self._spec, self._spec.sizes(values)
        if not spec.target.is_gpu:
            return self._cpu.predict(values, sizes)
        launch = launch_of(spec, values)
        use = spec.resource_model.estimate(sizes, launch)
        return self._gpu.predict(values, sizes, launch, use)

    def predict_fitting(self, values: Mapping[str, Any]) -> Prediction | None:
        """The same, or None for values that do not fit the device."""
        spec, sizes = self._spec, self._spec.sizes(values)
        launch = launch_of(spec, values) if spec.target.is_gpu else None
        use = spec.resource_model.estimate(sizes, launch)
        if not use.fits:
            return None
        if launch is None:
            return self._cpu.predict(values, sizes)
        return self._gpu.predict(values, sizes, launch, use)

    def roofline_ms(self) -> float:
        """The time of the products alone, or of moving every tensor once: whichever is longer.

        0 where neither is known before the launch.
        """
        return least_ms(self._spec.facts, self.device)


def least_ms(facts: Facts, device: Device) -> float:
    """The roofline of facts on a device."""
    flops = facts.flops or {}
    products = sum(count / device.matrix_rate(kind) for kind, count in flops.items())
    return max(products, (facts.bytes or 0) / device.dram_rate) / 1e6
