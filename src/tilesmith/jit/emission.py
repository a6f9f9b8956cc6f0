"""Code of one specialization: a Config and a target become an artifact or the text of a module."""

from __future__ import annotations

from tilesmith.artifacts import Artifact
from tilesmith.compiler.compile import compile_to_native, compile_to_triton
from tilesmith.compiler.module_source import HostMemo, with_host_function
from tilesmith.jit.definition import KernelDefinition
from tilesmith.jit.determinism import check_deterministic
from tilesmith.jit.specs import SpecStore
from tilesmith.jit.variants import Variant, VariantStore
from tilesmith.schedule.config import Config
from tilesmith.targets import Target


class Emission:
    """Makes code; nothing is built or launched."""

    def __init__(
        self, definition: KernelDefinition, variants: VariantStore, specs: SpecStore
    ) -> None:
        self._definition = definition
        self._variants = variants
        self._specs = specs
        self._host_parts: HostMemo = {}

    def artifact(self, config: Config, target: Target) -> Artifact:
        """Source and launch contract."""
        return self._compile(config, target)[1]

    def triton_module(self, config: Config, target: Target) -> str:
        """The device function with the host function around it."""
        variant, artifact = self._compile(config, target)
        return with_host_function(
            artifact, self._definition.split, variant.trace, config, self._host_parts
        )

    def _compile(self, config: Config, target: Target) -> tuple[Variant, Artifact]:
        normal = self._specs.get(self._variants.default, target).normalize(config)
        variant = self._variants.find(normal)
        spec = self._specs.get(variant, target)
        if variant is not self._variants.default:
            normal = spec.normalize(config)
        check_deterministic(variant.function, normal, self._definition.settings)
        compile_config = compile_to_triton if target.is_gpu else compile_to_native
        return variant, compile_config(spec, normal, self._definition.settings)
