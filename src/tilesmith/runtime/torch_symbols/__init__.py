"""Functions of torch's libraries that native code calls itself."""
