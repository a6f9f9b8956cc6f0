"""What is behind an element, also of code with thousands of ops."""
