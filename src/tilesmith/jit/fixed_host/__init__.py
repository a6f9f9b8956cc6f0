"""Host code of calls whose arguments have forms that are known: what follows from these is fixed."""
