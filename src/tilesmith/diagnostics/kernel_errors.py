"""Mistakes in defining, calling or tuning a kernel: its signature, source, arguments, config."""

from __future__ import annotations

from pickle import PicklingError

from tilesmith.diagnostics.catalogue import BaseError, WrappingError


class NotAKernelFunction(BaseError, AssertionError):
    message = "@kernel decorates a plain Python function, not {kind}"
    fix = "write the kernel with `def`; wrap a method, a class or a partial in such a function"


class SourceNotAvailable(BaseError, OSError):
    message = "the source code of kernel `{function}` is not available"
    expected = "a function defined in a file or in a notebook cell"
    found = "code from exec(), eval(), `python -c` or the plain Python prompt, which keep no source"
    fix = "move `{function}` into a .py file and import it"


class SourceChanged(SourceNotAvailable):
    message = "the source file of kernel `{function}` changed after it was imported"
    expected = ""
    found = "at the place of `{function}` the file now holds other code"
    fix = "reload the module or restart Python"


class UnsupportedSignature(BaseError, TypeError):
    message = "kernel `{function}` has the parameter `{parameter}`"
    expected = "parameters with names, or `*rest` for any number of positional arguments"
    fix = "name each parameter; for values with names take one dict"


class KernelNotPicklable(BaseError, PicklingError):
    message = "kernel `{function}` cannot be pickled: `{name}` does not lead to it"
    expected = "a kernel at the top of a module, or in a class there; it is found again by its name"
    fix = "move it out of the function that makes it, or pickle what it is made from"


class BoundKernelNotPicklable(BaseError, PicklingError):
    message = "a bound kernel cannot be pickled: `{function}` is compiled for this process"
    fix = "pickle the kernel, and bind it again where it is loaded"


class WrongArguments(BaseError, TypeError):
    """The call does not fit the signature. ``problem`` starts with "Too many arguments" if so."""

    message = "kernel `{function}`: {problem}"
    expected = "{function}{signature}"


class UnsupportedArgumentType(BaseError, TypeError):
    message = "unsupported argument type: `{argument}` is {kind}"
    expected = (
        "a tensor, int, float, bool, str, None, torch.dtype, torch.device, a Python function or\n"
        "functools.partial, a member of an Enum; a list, tuple, dict, named tuple or dataclass\n"
        "of these"
    )
    fix = "pass what the kernel needs from `{argument}` as separate arguments"


class NoTensorArgs(BaseError):
    message = "kernel `{function}` cannot tell which device to run on: no argument is a tensor"
    fix = "pass at least one tensor, or a torch.device"


class TensorsOnDifferentDevices(BaseError):
    message = "tensor `{tensor}` is on {device}, but the kernel runs on {kernel_device}"
    expected = "all tensors of one kernel on one device, that of the first tensor argument"
    fix = 'move it before the call: {tensor}.to("{kernel_device}")'


class OverlappingElements(BaseError, RuntimeError):
    message = (
        "more than one element of `{tensor}`, which is written, refers to a single memory location"
    )
    found = "sizes {shape} with strides {strides}"
    expected = "memory of its own for each element that is written, as for in-place ops of torch"
    fix = "pass a copy, such as `{tensor}.contiguous()` or `{tensor}.clone()`, and use that later"


class DecoratorAfterHelionKernelDecorator(BaseError):
    message = "decorator `@{decorator}` stands below the kernel decorator of `{function}`"
    expected = "the kernel decorator directly above `def {function}`"
    fix = "move `@{decorator}` above the kernel decorator"


class ClosuresNotSupported(BaseError):
    message = "kernel `{function}` uses variables of the enclosing function: {names}"
    fix = "pass them as arguments of `{function}`, or define them at module level"


class NamingConflict(BaseError):
    message = "the name `{name}` is reserved in kernels"
    expected = "torch, math, operator, helion and hl to mean those modules"
    fix = "rename the variable `{name}`"


class GraphModuleUnsupportedOps(BaseError):
    message = "the GraphModule argument contains {ops}"
    expected = "only call_function and call_method nodes"
    fix = "trace a function that takes its parameters as inputs instead of an nn.Module"


class NotInsideKernel(BaseError):
    message = "{function} was called outside a kernel"
    fix = "call it in a function decorated with @kernel, or in a helper that such a function calls"


class DeviceAPIOnHost(BaseError):
    message = "{function} works in device code only"
    found = "a call in host code, outside the `for ... in hl.tile(...)` loops"
    fix = "move the call into a device loop; on the host use torch"


class NestedKernelCallsNotSupported(BaseError):
    message = "kernel `{function}` is called from device code"
    fix = (
        "remove the kernel decorator from `{function}` to use it as a helper,\n"
        "or call it from host code, outside the device loops"
    )


class ConflictingArguments(BaseError, AssertionError):
    message = "{first} and {second} cannot be given together"
    fix = "keep one of them"


class IncompatibleInterpretModes(BaseError):
    message = "TILESMITH_INTERPRET and TRITON_INTERPRET cannot both be set"
    fix = (
        "keep TILESMITH_INTERPRET=1 to run the kernel's meaning with torch on the CPU,\n"
        "or TRITON_INTERPRET=1 to run the generated Triton code in Triton's interpreter"
    )


class BreakpointInDeviceLoopRequiresInterpret(BaseError):
    message = "breakpoint() in device code needs an interpreter"
    fix = "set TILESMITH_INTERPRET=1, or pass ref_mode=RefMode.EAGER to the decorator"


class RefEagerModeCodePrintError(BaseError):
    message = "there is no output code to print in reference mode"
    fix = "unset print_output_code, or set ref_mode=RefMode.OFF"


class BackendImplementationMissing(BaseError):
    message = "backend {backend} does not implement {hook}"
    fix = 'choose another backend, e.g. backend="triton"'


class CuteBackendUnavailable(BaseError):
    message = 'backend "cute" is not available'
    fix = 'use backend="triton" or backend="auto"'


class MissingEnableTile(BaseError):
    message = 'backend "tileir" is not available'
    fix = 'use backend="triton" or backend="auto"'


class ErrorCompilingKernel(BaseError):
    """Closes a list of errors that was printed before."""

    message = "kernel `{function}` has {errors} errors and {warnings} warnings"


class NondeterministicKernel(BaseError):
    """``deterministic=True``, and programs that update one element in any order."""

    message = "{deed} `{tensor}` in any order: {harm} from run to run"
    found = "{meeting} meet in one element"
    note = "deterministic=True asks for the same bits in every run"
    fix = (
        "let each program write elements of its own and add them up in a second loop or on the\n"
        "host, or leave deterministic=True away"
    )


class NondeterministicAlgorithm(NondeterministicKernel):
    """``torch.use_deterministic_algorithms(True)``, and no config makes the kernel so."""

    note = "torch.use_deterministic_algorithms(True) asks for the same bits in every run"
    fix = (
        "let each program write elements of its own and add them up in a second loop or on the\n"
        "host, or pass warn_only=True to torch.use_deterministic_algorithms"
    )


class InvalidConfig(BaseError):
    message = "invalid config: {problem}"


class InvalidConfigKeys(InvalidConfig):
    """Unknown config keys. ``suggestions``: known keys like them."""

    message = "Invalid config keys [{keys}]"
    fix = "did you mean {suggestions}?"


class UnsupportedConfigKeys(InvalidConfig):
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
    fix = "list them all: Config(block_sizes=[...])"


class ConfigSpecFragmentWithSymInt(BaseError):
    message = "the bounds of tunable `{name}` must be plain integers"
    found = "the bound {bound}, which is a runtime value"
    fix = "fix it first, e.g. `n = hl.specialize(x.size(0))`"


class TunableNameConflict(BaseError):
    message = "tunable `{name}` has the name of a built-in config key"
    fix = "give the tunable another name"


class TunableTypeNotSupported(BaseError):
    message = "tunable `{name}` has values of type {type}"
    expected = "int, float or bool"


class RegisterTunableArgTypes(BaseError):
    message = "hl.register_tunable was given {kind} as its {argument}"
    expected = 'a literal name and a fragment: hl.register_tunable("k", PowerOfTwoFragment(1, 64))'


class SpecializeArgType(BaseError):
    message = "hl.specialize takes sizes, strides and integers, not {type}"
    fix = "give it what must be a constant of the code, e.g. hl.specialize(x.size(1))"


class CannotExport(BaseError):
    message = "kernel `{function}` cannot be exported: {problem}"


class AutotuneError(BaseError):
    message = "autotuning kernel `{function}` failed: {problem}"
    fix = 'pass config=Config(...), or autotune_effort="none" to use the default config'


class AutotuningDisallowedInEnvironment(BaseError):
    message = "kernel `{function}` needs autotuning, which {variable} forbids"
    fix = "pass config=Config(...), or unset {variable}"


class CacheAssertionError(BaseError):
    message = "no cache entry for kernel `{function}`, and TILESMITH_ASSERT_CACHE_HIT is set"
    found = "looked for {key}"
    fix = "search once: `tilesmith tune`; or unset TILESMITH_ASSERT_CACHE_HIT"


class NoConfigFound(BaseError):
    message = "none of the {count} configs given works for kernel `{function}`"


class NotEnoughConfigs(BaseError):
    message = "a search over given configs needs at least 2, not {count}"
    fix = "pass more configs, or one as config= to use it without a search"


class InconsistantConfigsAcrossRanks(BaseError):
    """Ranks hold different configs (the spelling is part of the interface)."""

    message = "the ranks of this job hold different configs for kernel `{function}`"
    fix = "tune on one rank and share the result, or pass config=Config(...)"


class TritonError(WrappingError):
    message = "Triton failed on kernel `{function}`: {problem}"
    found = "config {config}\ncode in {path}"
    fix = "TILESMITH_PRINT_OUTPUT_CODE=1 shows the code; please report it if the kernel looks right"


class TritonUnrecoverableRuntimeError(WrappingError):
    message = "the device failed while running kernel `{function}`: {problem}"
    fix = (
        "restart the process; TILESMITH_INTERPRET=1 runs the kernel bounds-checked and shows\n"
        "the line of an access out of bounds"
    )
