"""From a Python function and its arguments to the tile IR.

``source`` reads, splits and rewrites the function; ``trace.py`` runs it once with proxies.
``tracing`` has the proxies, ``language`` and ``functions`` what device code may do with them.
"""
