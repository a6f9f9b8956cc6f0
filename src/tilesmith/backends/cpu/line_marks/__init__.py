"""Which of the user's lines instructions come from, for those who want to read machine code."""
