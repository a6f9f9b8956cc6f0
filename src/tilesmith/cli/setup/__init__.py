"""What one does first: look at the machine, begin a kernel, let the shell complete."""
