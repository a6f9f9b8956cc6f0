"""The command that writes a page about a kernel."""
