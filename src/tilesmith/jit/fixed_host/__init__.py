"""Host code of calls whose arguments have known forms: what follows from these is fixed."""
