"""What is known of the lengths of axes before a kernel runs."""
