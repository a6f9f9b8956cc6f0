"""Config specifications of one specialization, by trace and target."""

from __future__ import annotations

from tilesmith.backends.table import BACKENDS
from tilesmith.jit.variants import Variant
from tilesmith.schedule.product_forms import MultiFormSpec
from tilesmith.schedule.single_programs import require_single_programs
from tilesmith.schedule.spec import ConfigSpec
from tilesmith.settings import Settings
from tilesmith.targets import Target


class SpecStore:
    """Makes a ConfigSpec for a trace on a target once."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._specs: dict[tuple[int, Target], tuple[Variant, ConfigSpec]] = {}

    def get(self, variant: Variant, target: Target) -> ConfigSpec:
        """The specification of what a Config may say."""
        key = (id(variant), target)
        if key not in self._specs:
            function = variant.function
            spec = MultiFormSpec(
                require_single_programs(function) if self._settings.deterministic else function,
                BACKENDS.rules(target),
                variant.trace.session.tunable_fragments,
                allow_warp_specialize=self._settings.allow_warp_specialize,
            )
            # The variant is kept alive with its entry, so its id stays its own.
            self._specs[key] = (variant, spec)
        return self._specs[key][1]
