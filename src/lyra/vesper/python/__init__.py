"""The Python path: generated code and its small runtime."""
