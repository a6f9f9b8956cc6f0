"""LLVM text from the loop IR. What changes on the way is a context, handed down, never written."""
