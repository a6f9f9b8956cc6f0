"""Forms of arguments: which native code can tell, and tests of them in Python."""
