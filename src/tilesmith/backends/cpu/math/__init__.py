"""Elementary functions as inline LLVM vector code, and calls of libm for the rest."""
