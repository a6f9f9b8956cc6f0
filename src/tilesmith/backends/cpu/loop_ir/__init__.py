"""The loop IR: what a kernel does on a CPU, between the plan and LLVM text. Frozen records only."""
