"""The command line: tune, explain, bench, compare, accuracy, cache and run."""
