"""What a Python function does and a kernel must do too: any signature, methods, copies, pickles."""
