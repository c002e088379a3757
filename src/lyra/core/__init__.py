"""Values and pure state machines: no I/O, no clock of its own, no task, no randomness that was not handed in.

Everything here takes `now` or a generator as an argument and returns a value, which is why it can be tested by
properties and replayed by a seed. Start with `effect` (what a program asks for), then `capability` and `budget`
(what it may), then `policy` (how to react). Nothing here imports the kernel.
"""
