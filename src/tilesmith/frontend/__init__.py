"""From a Python function and its arguments to the tile IR.

Split the source, rewrite it, run it once with proxies.
"""
