"""What is installed on this machine, and whether kernels run here."""
