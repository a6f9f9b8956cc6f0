"""The reference interpreter: runs IR on torch tensors and so defines what each op means."""
