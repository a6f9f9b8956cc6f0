"""Block sizes that are known while tracing, since the trace is for them only."""
