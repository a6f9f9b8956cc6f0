"""Native code for CPUs: loop nests, then LLVM IR text."""
