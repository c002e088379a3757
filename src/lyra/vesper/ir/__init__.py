"""The typed IR that every path reads. Start at `program`; `expressions` is what its steps compute."""
