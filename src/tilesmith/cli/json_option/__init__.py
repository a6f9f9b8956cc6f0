"""``--json`` of commands that can also write it to a file."""
