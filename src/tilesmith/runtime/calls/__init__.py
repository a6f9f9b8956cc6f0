"""Recognising the arguments of a call and reading their addresses, in native code."""
