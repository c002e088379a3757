"""`lyra replay` and `lyra diff`."""
