"""Forks of agents and programs: a run once more from one of its steps, with something changed.

Start with `fork`: `fork_run(kernel, …)`; it also makes an agent again from the journal alone, where that has enough.
`change` says what may be changed at which step, and which rows that comes to; `program_frames` runs a Python program
again over its journal to see its variables, and performs nothing. The kernel's part is `kernel.forks`.
"""
