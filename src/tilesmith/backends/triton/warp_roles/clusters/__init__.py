"""Products whose tiles two programs compute, each with half of the rows."""

CLUSTERED = "clustered_roles"
"""The value of ``structure`` in a Config."""
PROGRAMS = 2
"""Of a cluster."""
