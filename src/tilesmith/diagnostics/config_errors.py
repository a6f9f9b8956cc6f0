"""Mistakes in configs and tuning: keys and values, block sizes, tunables, builds, caches."""

from __future__ import annotations

from tilesmith.diagnostics.catalogue import BaseError, WrappingError
from tilesmith.diagnostics.statement_errors import NotAllowedOnDevice


class InvalidConfig(BaseError):
    """A config that does not fit the kernel."""

    message = "invalid config: {problem}"


class InvalidConfigKeys(InvalidConfig):
    """Unknown config keys. ``suggestions``: known keys like them."""

    message = "Invalid config keys [{keys}]"
    fix = "did you mean {suggestions}?"


class UnsupportedConfigKeys(InvalidConfig):
    """Config keys of another backend."""

    message = "Unsupported config keys for backend {backend}: [{keys}]"
    fix = "leave them out for this backend"


class InvalidConfigValue(InvalidConfig):
    """A config value out of range or of the wrong type. ``allowed`` describes the right ones."""

    message = "invalid config: {key} = {value}"
    expected = "{allowed}"


class InvalidConfigLength(InvalidConfig):
    """A config list of the wrong length. ``slots`` says what its entries are for."""

    message = "invalid config: {key} has {given} entries, the kernel needs {needed}"
    expected = "one entry for each of {slots}"


class MissingBlockSizes(InvalidConfig):
    """The config has no block sizes, or too few. ``slots`` says what they are for."""

    message = "invalid config: block_sizes has {given} entries, the kernel needs {needed}"
    expected = "one entry for each of {slots}"
    fix = "did you forget block_sizes? e.g. Config(block_sizes=[...])"


class ConfigSpecFragmentWithSymInt(BaseError):
    """A tunable's bound is not a constant."""

    message = "the bounds of tunable `{name}` must be plain integers"
    found = "the bound {bound}, which is a runtime value"
    fix = "fix it first, e.g. `n = hl.specialize(x.size(0))`"


class TunableNameConflict(BaseError):
    """A tunable named like a built-in config key."""

    message = "tunable `{name}` has the name of a built-in config key"
    fix = "give the tunable another name"


class TunableTypeNotSupported(BaseError):
    """A tunable with values that are not numbers."""

    message = "tunable `{name}` has values of type {type}"
    expected = "int, float or bool"


class RegisterTunableArgTypes(BaseError):
    """Wrong arguments of ``hl.register_tunable``."""

    message = "hl.register_tunable was given {kind} as its {argument}"
    expected = 'a literal name and a fragment: hl.register_tunable("k", PowerOfTwoFragment(1, 64))'


class SpecializeArgType(BaseError):
    """``hl.specialize`` of something that is not an integer."""

    message = "hl.specialize takes sizes, strides and integers, not {type}"


class HostAPIOnDevice(NotAllowedOnDevice):
    """A host-only function in device code."""

    message = "{function} works on the host only"
    fix = "call it before the device loop"


class RegisterOnDevice(HostAPIOnDevice):
    """``hl.register_block_size`` or ``hl.register_tunable`` in device code."""


class SpecializeOnDevice(HostAPIOnDevice):
    """``hl.specialize`` in device code."""

    message = "hl.specialize works on the host only"


class AutotuneError(BaseError):
    """Tuning found no config that works."""

    message = "autotuning kernel `{function}` failed: {problem}"
    fix = 'pass config=Config(...), or autotune_effort="none" to use the default config'


class AutotuningDisallowedInEnvironment(BaseError):
    """Tuning is needed, but forbidden."""

    message = "kernel `{function}` needs autotuning, which {variable} forbids"
    fix = "pass config=Config(...), or unset {variable}"


class CacheAssertionError(BaseError):
    """A cache entry was demanded and is not there."""

    message = "no cache entry for kernel `{function}`, and TILESMITH_ASSERT_CACHE_HIT is set"
    found = "looked for {key}"


class NoConfigFound(BaseError):
    """No candidate config works."""

    message = "none of the {count} configs given works for kernel `{function}`"


class NotEnoughConfigs(BaseError):
    """A finite search with fewer than two configs."""

    message = "a search over given configs needs at least 2, not {count}"
    fix = "pass more configs, or one as config= to use it without a search"


class InconsistantConfigsAcrossRanks(BaseError):
    """Ranks hold different configs (the spelling is part of the interface)."""

    message = "the ranks of this job hold different configs for kernel `{function}`"
    fix = "tune on one rank and share the result, or pass config=Config(...)"


class TritonError(WrappingError):
    """Triton failed to compile or launch the generated code."""

    message = "Triton failed on kernel `{function}`: {problem}"
    found = "config {config}\ncode in {path}"
    fix = "TILESMITH_PRINT_OUTPUT_CODE=1 shows the code; please report it if the kernel looks right"


class TritonUnrecoverableRuntimeError(WrappingError):
    """A device error after which the process cannot use the device."""

    message = "the device failed while running kernel `{function}`: {problem}"
    fix = (
        "restart the process; TILESMITH_INTERPRET=1 runs the kernel bounds-checked and shows\n"
        "the line of an access out of bounds"
    )
