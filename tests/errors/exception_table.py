"""The classes that users know by name, and why some of them are never raised here."""

from __future__ import annotations

TABLE = (
    "AssignmentMultipleTargets", "AtomicOnDeviceTensor", "AutodiffKernelNotCalled",
    "AutodiffNotSupported", "AutotuneError", "AutotuningDisallowedInEnvironment",
    "BackendImplementationMissing", "BackendUnsupported", "BarrierOnlyAllowedAtTopLevel",
    "BarrierRequiresPersistent", "BreakpointInDeviceLoopRequiresInterpret", "CacheAssertionError",
    "CannotModifyHostVariableOnDevice", "CannotReadDeviceVariableOnHost",
    "CantCombineTypesInControlFlow", "CantReadOnDevice", "ClosureMutation", "ClosuresNotSupported",
    "ConfigSpecFragmentWithSymInt", "ControlFlowTensorMismatch", "CuteBackendUnavailable",
    "MissingEnableTile", "DataDependentOutputShapeNotSupported",
    "DecoratorAfterHelionKernelDecorator", "DeviceAPIOnHost", "DeviceLoopElseBlock",
    "DeviceTensorSubscriptAssignmentNotAllowed", "DotBatchDimensionMismatch",
    "DuplicateStoreIndicesError", "EmptyDeviceLoopAfterDCE", "ErrorCompilingKernel",
    "FailedToUnpackTile", "FailedToUnpackTupleAssign", "GlobalMutation",
    "GraphModuleUnsupportedOps", "HostTensorDirectUsage", "IncompatibleInterpretModes",
    "InconsistantConfigsAcrossRanks", "IncorrectTileUsage", "IndexOffsetOutOfRangeForInt32",
    "InductorLoweringError", "InputTensorNumelExceedsIndexType", "InternalError",
    "InvalidAPIUsage", "InvalidAssignment", "InvalidConfig", "InvalidDeviceForLoop",
    "InvalidIndexingType", "InvalidJaggedTileUsage", "InvalidReductionDim",
    "InvalidSequenceSubscription", "InvalidTileRange", "LoopDependencyError",
    "LoopFunctionNotInFor", "MultipleReductionDims", "NamingConflict", "NestedDeviceLoopsConflict",
    "NestedGridLoop", "NestedKernelCallsNotSupported", "NoConfigFound", "NoDeviceLoopsInKernel",
    "NonTensorSubscriptAssign", "NoTensorArgs", "NotAllowedInHelperFunction", "NotAllowedOnDevice",
    "NotEnoughConfigs", "NotInsideKernel", "OverpackedTile", "RankMismatch",
    "ReductionDimInvalidForShape", "ReductionOnNonTile", "RefEagerModeCodePrintError",
    "RegisterTunableArgTypes", "RequiresTensorInAssignment", "ShapeMismatch",
    "ShapeSpecializingAllocation", "ShapeSpecializingCall", "SpecializeArgType",
    "SpecializeOnDevice", "StackTensorcOnHost", "StackTensorDevPtrOnHost",
    "StackTensorDevPtrDtype", "StackTensorExampleOnDevice", "StarredArgsNotSupportedOnDevice",
    "StatementNotSupported", "TileOfTile", "TopLevelStatementBetweenLoops", "TorchOpTracingError",
    "TracedArgNotSupported", "TritonError", "TritonUnrecoverableRuntimeError",
    "TunableNameConflict", "TunableTypeNotSupported", "TypeInferenceError", "UndefinedVariable",
    "UnsupportedPythonType", "UnsupportedSplitOperation", "TensorOperationInWrapper",
    "TensorOperationsInHostCall", "TiledKMatmulAccumulationWarning", "WrongDevice",
    "BlockSizeIgnoredInInterpretMode", "ProcessGroupNameNotFound", "NoAOTHeuristicWarning",
    "BlockPtrIndexingUnavailable",
)  # fmt: skip
"""Names that scripts written for Helion catch or silence."""

NEVER_RAISED = {
    "AutodiffKernelNotCalled": "backwards are derived from source, not from a call",
    "AutodiffNotSupported": "only derived gradients raise it, as their tests show",
    "CacheAssertionError": "its text names this machine; the tests of the tuner raise it",
    "NoConfigFound": "a kernel of which no config works is interpreted, with a warning",
    "InconsistantConfigsAcrossRanks": "there are no distributed kernels yet",
    "ProcessGroupNameNotFound": "there are no distributed kernels yet",
    "NoAOTHeuristicWarning": "a shape that was not tuned gets one of the table's configs",
    "BackendImplementationMissing": "every backend has a rule for every op, as a test checks",
    "ErrorCompilingKernel": "the first error is raised itself, with its place",
    "InternalError": "it would be a mistake of ours",
    "StarredArgsNotSupportedOnDevice": "starred targets are lists of device values",
    "MultipleReductionDims": "several dimensions are reduced one after the other",
    "ReductionOnNonTile": "every axis can be reduced",
    "TopLevelStatementBetweenLoops": "device loops before and after it are separate launches",
    "TritonError": "needs a GPU to launch on",
    "TritonUnrecoverableRuntimeError": "a failed device is reported in the words of Triton or "
    "the driver",
    "BlockPtrIndexingUnavailable": "every Triton that is supported has block pointers; "
    "an access that does not fit them uses pointers without a remark",
    "BlockSizeIgnoredInInterpretMode": "our interpreter takes the block sizes of the config",
}
