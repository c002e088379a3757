"""Which calls may be made ahead of their turn, and why others may not: the analysis behind automatic parallelism.

`summaries` says what each function and agent does (by a fixpoint over the calls), `aliases` which agents a process may
be, `straight_line` how the calls of a stretch without barriers depend on each other, `plan` keeps the outcome of it,
and `render` shows that as text, JSON, DOT and SVG. The compiler asks here and writes the code; nothing here makes code.
"""
