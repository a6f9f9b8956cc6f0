"""The batching rule of operators."""
