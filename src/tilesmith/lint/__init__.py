"""What would fail when the kernels of a file are called, found without running the file."""
