"""From a time to rates, and the time that a device's limits allow at best."""

from __future__ import annotations

from typing import Any

import torch

from tilesmith.bench.case import Arguments, Operator
from tilesmith.bench.tensors import total_bytes
from tilesmith.frontend.containers import tensors_in
from tilesmith.runtime.device import target_of
from tilesmith.schedule.device_model import Device, device_of

RATE_CLASSES = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.bfloat16: "bf16",
    torch.float16: "f16",
    torch.int8: "i8",
    torch.float8_e4m3fn: "f8e4m3",
    torch.float8_e5m2: "f8e5m2",
}


class Work:
    """How much one call does."""

    def __init__(self, operator: Operator, arguments: Arguments, result: Any) -> None:
        self.flops = operator.flops(*arguments) if operator.flops is not None else None
        if operator.num_bytes is not None:
            self.num_bytes = float(operator.num_bytes(*arguments, result))
        else:
            self.num_bytes = float(total_bytes(arguments) + total_bytes(result))
        self._first = next(tensors_in(arguments), None)

    def rates(self, latency_ms: float) -> dict[str, float]:
        """Fields of a row: TFLOP/s, GB/s and the roofline."""
        found = {"gbps": self.num_bytes / latency_ms / 1e6}
        if self.flops is not None:
            found["tflops"] = self.flops / latency_ms / 1e9
        if self._first is not None:
            device = device_of(target_of(self._first.device))
            found["roofline_ms"] = self._roofline_ms(device, self._first.dtype)
        return found

    def _roofline_ms(self, device: Device, dtype: torch.dtype) -> float:
        memory_ms = self.num_bytes / device.dram_rate / 1e6
        rate_class = RATE_CLASSES.get(dtype)
        if self.flops is None or rate_class is None:
            return memory_ms
        return max(memory_ms, self.flops / device.matrix_rate(rate_class) / 1e6)
