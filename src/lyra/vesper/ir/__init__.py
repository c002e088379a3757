"""The typed IR that every path reads."""
