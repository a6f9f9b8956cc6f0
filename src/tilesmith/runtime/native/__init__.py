"""LLVM IR text to functions in this process; the only place that names llvmlite."""
