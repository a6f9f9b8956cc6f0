"""Every kernel of ``examples/ports`` that has an fp64 reference, as data."""

from __future__ import annotations

from tests.examples.ports.attention_ports import ATTENTION_PORTS
from tests.examples.ports.pointwise_ports import POINTWISE_PORTS
from tests.examples.ports.port import Port
from tests.examples.ports.product_ports import PRODUCT_PORTS
from tests.examples.ports.sequence_ports import SEQUENCE_PORTS

PORTS: tuple[Port, ...] = (
    *ATTENTION_PORTS, *PRODUCT_PORTS, *POINTWISE_PORTS, *SEQUENCE_PORTS,
)  # fmt: skip
