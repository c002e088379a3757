"""Processes as the kernel holds them: the process itself, its mailbox, links, call keys and replay, and the scheduler.

Nothing here starts or ends a process; that is `kernel.programs`. The table of processes is in `kernel.base.waiting`.
Start with `process`, then `scheduler`.
"""
