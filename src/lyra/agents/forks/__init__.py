"""Forks of agents and programs: a run once more from one of its steps, with something changed.

Start with `fork`: `fork_run(kernel, …)`. `change` says what may be changed at which step, and which rows that comes to;
`restored` makes an agent again from the journal alone, where that has enough. The kernel's part is `kernel.forks`.
"""
