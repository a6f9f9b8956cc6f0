"""What a wrong result looks like, and which small change of the kernel would give it."""
