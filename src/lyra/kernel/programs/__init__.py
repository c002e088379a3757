"""Programs and their lifetimes: starting, replaying and ending them, and the `Context` that a program is given.

`lifetime` starts and ends processes, `context` is `ctx`, `handle` is what callers of `spawn` hold,
`registry` finds a program by its durable name.
"""
