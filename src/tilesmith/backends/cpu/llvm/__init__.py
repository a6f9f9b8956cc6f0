"""LLVM text: registers, instructions, structured loops, and lanes of vectors with their memory."""
