"""The direct path: closures over the typed IR."""
