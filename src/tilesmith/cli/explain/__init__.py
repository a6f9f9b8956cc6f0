"""``tilesmith facts`` and ``tilesmith explain``, and why a default stands before faster ones."""
