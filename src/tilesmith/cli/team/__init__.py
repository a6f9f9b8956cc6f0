"""``tilesmith cache push``, ``pull``, ``diff`` and ``prune``."""
