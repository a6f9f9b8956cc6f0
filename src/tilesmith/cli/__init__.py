"""The command line: ``tilesmith run script.py``."""
