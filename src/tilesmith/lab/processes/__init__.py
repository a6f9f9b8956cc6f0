"""Child processes that may crash or hang without harm to their parent."""
