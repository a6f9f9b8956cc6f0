"""IR to source in the language: what a backward program looks like to its readers."""
