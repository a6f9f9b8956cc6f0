"""The loop IR as readable text."""
