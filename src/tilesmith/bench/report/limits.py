"""What the device of a run can do at most, from what its rows say of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tilesmith.bench.row import Row
from tilesmith.schedule.device_model import Device, device_of
from tilesmith.targets import parse_target

_RATE_CLASSES = {
    "float64": {"fp64": "f64"},
    "float32": {"fp32": "f32", "tf32": "tf32"},
    "bfloat16": {"16-bit": "f16"},
    "float16": {"16-bit": "f16"},
    "float8_e4m3fn": {"fp8": "f8"},
    "float8_e5m2": {"fp8": "f8"},
    "int8": {"int8": "i8"},
}


@dataclass(frozen=True)
class Limits:
    """Of one device, as far as they matter to the rows of a run."""

    device: str
    dram_gbps: float
    l2_gbps: float
    tflops: Mapping[str, float]
    """Of matrix products, by what their elements are called."""


def find_limits(environment: Mapping[str, str], rows: Sequence[Row]) -> Limits | None:
    """The limits of the device named in an environment; None where it names none."""
    try:
        target = parse_target(environment.get("target", ""))
    except ValueError:
        return None
    cores = environment.get("cores", "")
    if cores.isdecimal():
        target = replace(target, num_sms=int(cores))
    if "matrix tiles" in environment:
        target = replace(target, features=f"+{environment['matrix tiles']}")
    device = device_of(replace(target, model=environment.get("device", "")))
    name = environment.get("device") or device.name
    return Limits(name, device.dram_rate, device.l2_rate, _peaks(device, rows))


def _peaks(device: Device, rows: Sequence[Row]) -> dict[str, float]:
    """Of the types that occur; types with the same rate share a line."""
    classes = {
        name: rate_class
        for row in rows
        for name, rate_class in _RATE_CLASSES.get(row.dtype, {}).items()
    }
    peaks: dict[float, list[str]] = {}
    for name, rate_class in classes.items():
        peaks.setdefault(device.matrix_rate(rate_class) / 1e3, []).append(name)
    return {", ".join(names): peak for peak, names in peaks.items()}
