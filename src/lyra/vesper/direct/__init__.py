"""The direct path: closures over the typed IR. Start with `run`, which compiles and runs programs."""
