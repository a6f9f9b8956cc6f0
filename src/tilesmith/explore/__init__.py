"""The explorer: one page about a bound kernel, from the user's lines to machine code."""
