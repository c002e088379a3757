"""The expression language: its grammar and its functions."""
