"""What shows that two paths agree, and the mode that it allows."""
