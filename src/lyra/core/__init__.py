"""Values and pure state machines: no I/O, no clock, no task and no randomness of their own.

Everything here takes `now` or a generator as an argument and returns a value, which is why it can be tested by
properties and replayed by a seed. Start with `effect` (what a program asks for), then `rights.capability` and
`budgets.budget` (what it may do and spend), then `policies.policy` (how failures are handled). Nothing here imports the
kernel.
"""
