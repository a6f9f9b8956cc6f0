"""Files of code on the disk: whom to trust with them, which of them to keep."""
